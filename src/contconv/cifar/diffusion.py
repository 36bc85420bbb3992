"""Filters that level out from tap to tap while they learn, as heat does: smooth ones let less through that aliases.

Diffusion is to the slope of a filter what weight decay is to its size. Weight decay steps down the energy of the taps,
diffusion down that of the differences between neighbours: a constant filter stays, one that alternates fades first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn

from contconv.kernels import SplineKernel, TapKernel, support
from contconv.kernels.spline import control_points
from contconv.modules import ContinuousConv2d


@dataclass(frozen=True)
class Filters:
    """A parameter that holds taps, [Cout, Cin, *points], or control points, [all points, Cout, Cin]."""

    parameter: Tensor
    points: tuple[int, int]
    """So many along each axis."""
    per_pixel: tuple[float, float] = (1.0, 1.0)
    """So many points on a pixel, along each axis."""

    @torch.no_grad()
    def diffuse(self, time: float) -> None:
        """Let every filter level out for so long, in which what alternates from pixel to pixel shrinks by exp(-4 time).

        >>> filters = Filters(nn.Parameter(torch.tensor([[[[0.0, 3.0, 0.0]]]])), (1, 3))
        >>> filters.diffuse(100)
        >>> filters.parameter.flatten()
        tensor([1., 1., 1.], grad_fn=<ViewBackward0>)
        """
        values: Tensor = self.parameter
        if values.ndim == 3:
            values = values.movedim(0, -1).unflatten(-1, self.points)
        for axis, (count, density) in enumerate(zip(self.points, self.per_pixel, strict=True), start=2):
            mixed = values.movedim(axis, -1) @ leveling(count, time * density**2).to(values)
            values.copy_(mixed.movedim(-1, axis))


@lru_cache(maxsize=16)
def leveling(count: int, time: float) -> Tensor:
    """[count, count]: what so many numbers in a row become in that time, with nothing lost at the ends.

    Never write to it: the layers of a step share it.

    >>> leveling(2, 0.5) @ torch.tensor([1.0, -1.0]).double()  # by exp(-1)
    tensor([ 0.3679, -0.3679], dtype=torch.float64)
    """
    difference = torch.diff(torch.eye(count, dtype=torch.float64), dim=0)  # [count - 1, count]
    return torch.linalg.matrix_exp(-time * difference.mT @ difference)


def diffusing(model: nn.Module, rates: Sequence[float]) -> list[tuple[Filters, float]]:
    """The filters that level out, and how fast: `rates` has one number for all layers, one for each, or none."""
    layers = {n: module for n, module in model.named_modules() if isinstance(module, nn.Conv2d | ContinuousConv2d)}
    if len(rates) not in (0, 1, len(layers)):
        raise ValueError(
            f"diffusion must be one number, or {len(layers)}, one for each convolutional layer; got {len(rates)}"
        )
    each = rates if len(rates) == len(layers) else [*rates] * len(layers)
    return [(filters_of(module, n), rate) for (n, module), rate in zip(layers.items(), each, strict=False) if rate > 0]


def filters_of(layer: nn.Module, name: str) -> Filters:
    """A convolutional layer's; refuses a kernel whose parameters are no points of the filter."""
    kernel = layer.kernel if isinstance(layer, ContinuousConv2d) else layer
    if isinstance(kernel, nn.Conv2d):
        height, width = kernel.weight.shape[2:]
        return Filters(kernel.weight, (height, width))
    if isinstance(kernel, TapKernel):
        height, width = kernel.weight.shape[2:]
        vertical, horizontal = (n / k for n, k in zip(kernel.density, kernel.dilation, strict=True))
        return Filters(kernel.weight, (height, width), (vertical, horizontal))
    if isinstance(kernel, SplineKernel):
        height, width = (len(control_points(size, kernel.density)) for size in support(kernel, 2))
        density = float(kernel.density or 1)
        return Filters(kernel.mixing, (height, width), (density, density))
    raise ValueError(
        f"diffusion is for kernels made of taps or of control points (taps, spline), got {name} with {kernel!r}"
    )
