"""Pictures of continuous kernels. Needs matplotlib: pip install 'contconv[plot]'."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from contconv.grid import axis_plan
from contconv.kernels import as_kernel, support
from contconv.modules import ContinuousConv
from contconv.size import PerAxis, exact_scales, exact_size, scaled_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_MARKS = 4000
IN_SIZE = 60  # of the input whose phases are marked: it has many divisors


def kernel(
    layer: nn.Module,
    *,
    channels: tuple[int, int] = (0, 0),
    resolution: int = 200,
    scale: PerAxis | None = None,
    in_size: int = IN_SIZE,
    slices: int = 5,
    axes: int | None = None,
    ax: "Axes | None" = None,
    title: str | None = None,
    limit: float | None = None,
) -> "Figure":
    """Draw the continuous kernel from input channel `channels[1]` to output channel `channels[0]`.

    layer: a layer or a kernel; 1D kernels become a curve, 2D ones a map, 3D ones `slices` maps along the first axis.
    `scale` marks the displacements that this scale looks at, for an input of `in_size` pixels. `axes` says how many
    axes a kernel of any number of them (`Cubic()`) has. `ax` draws into a plot of yours. `limit` fixes the colours.
    """
    pyplot = _pyplot()
    owned = layer.kernel if isinstance(layer, ContinuousConv) else as_kernel(layer)
    sizes = _sizes(layer, owned, axes)
    exact_size(resolution, "resolution")
    if len(sizes) == 3:
        if ax is not None:
            raise ValueError("ax must be None for a 3D kernel, which is drawn as several slices")
        figure, places = pyplot.subplots(1, exact_size(slices, "slices"), figsize=(2.4 * slices, 2.8), squeeze=False)
        cuts = [(number + 0.5) / slices * sizes[0] - sizes[0] / 2 for number in range(slices)]
        maps = [_values(owned, sizes[1:], resolution, channels, (cut,)) for cut in cuts]
        top = limit or max(float(values.abs().max()) for values in maps)
        for place, cut, values in zip(places[0], cuts, maps, strict=True):
            _map(place, values, sizes[1:], top)
            place.set_title(f"d = {cut:+.2f}")
        figure.suptitle(title or "")
        return figure
    if ax is None:
        _, ax = pyplot.subplots(figsize=(4.2, 3.6), layout="constrained")
    values = _values(owned, sizes, resolution, channels, ())
    if len(sizes) == 1:
        ax.plot(_line(sizes[0], resolution), values)
        ax.axhline(0, linewidth=0.6, color="gray")
        ax.set_xlabel("displacement (input pixels)")
    else:
        shown = _map(ax, values, sizes, limit or float(values.abs().max()))
        if limit is None:
            ax.figure.colorbar(shown, ax=ax, shrink=0.8)
    if scale is not None:
        _mark(ax, owned, sizes, scale, in_size, channels)
    if title is not None:
        ax.set_title(title)
    return ax.figure  # type: ignore[return-value]


def _sizes(layer: nn.Module, owned: nn.Module, axes: int | None) -> tuple[int, ...]:
    if isinstance(layer, ContinuousConv):
        return layer.kernel_size
    size = getattr(owned, "kernel_size", None)
    count = len(size) if isinstance(size, Sequence) else 2 if axes is None else axes
    return support(as_kernel(owned), count)


def _line(size: int, resolution: int) -> Tensor:
    return torch.linspace(-size / 2, size / 2, resolution, dtype=torch.float64)


def _values(
    owned: Any, sizes: tuple[int, ...], resolution: int, channels: tuple[int, int], ahead: tuple[float, ...]
) -> Tensor:
    """[resolution] * axes the kernel over its support, behind the fixed displacements `ahead`."""
    lines = [torch.tensor([value], dtype=torch.float64) for value in ahead]
    lines += [_line(size, resolution) for size in sizes]
    d = torch.stack(torch.meshgrid(*lines, indexing="ij"), -1)
    return _of_pair(owned, d, channels).reshape([resolution] * len(sizes))


def _of_pair(owned: Any, d: Tensor, channels: tuple[int, int]) -> Tensor:
    with torch.no_grad():
        device = owned.mixing.device
        weights = owned(d.to(device, torch.promote_types(owned.mixing.dtype, torch.float32)))
    out_channel, in_channel = channels
    if not (0 <= out_channel < weights.shape[-2] and 0 <= in_channel < weights.shape[-1]):
        raise ValueError(
            f"channels must be (output, input) within {weights.shape[-2]} and {weights.shape[-1]}, got {channels}"
        )
    return weights[..., out_channel, in_channel].double().cpu()


def _map(ax: "Axes", values: Tensor, sizes: tuple[int, ...], top: float) -> Any:
    """A 2D kernel in colours around zero, displacements as they lie in the image: down and to the right."""
    height, width = sizes[0] / 2, sizes[1] / 2
    return ax.imshow(values.numpy(), cmap="RdBu_r", vmin=-top, vmax=top, extent=(-width, width, height, -height))


def _mark(
    ax: "Axes", owned: Any, sizes: tuple[int, ...], scale: PerAxis, in_size: int, channels: tuple[int, int]
) -> None:
    """The displacements that a scale looks at, as dots."""
    lines = []
    for size, exact in zip(sizes, exact_scales(scale, len(sizes)), strict=True):
        plan = axis_plan(in_size, scaled_size(in_size, exact), exact, size)
        lines.append(torch.tensor([float(d) for row in plan.offset for d in row], dtype=torch.float64).unique())
    if len(lines) == 1:
        ax.plot(lines[0], _of_pair(owned, lines[0][:, None], channels), "o", markersize=4)
        return
    points = torch.cartesian_prod(lines[0], lines[1])
    if len(points) <= MOST_MARKS:
        ax.plot(points[:, 1], points[:, 0], ".", markersize=2.5, color="black", alpha=0.7)


def _pyplot() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            "contconv.plot needs matplotlib, which is not installed: pip install 'contconv[plot]'"
        ) from error
    return pyplot
