"""A continuous convolution whose input size is a symbol: its plan is integer arithmetic on tensors, in the graph.

`torch.export` with a dynamic input size needs it. The scale must be a fraction of ints small enough for int64. All of
it is standard operations; every output pixel has displacements of its own, which costs more than a plan of known sizes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor
from torch.nn import functional as F

from contconv.grid import folded
from contconv.kernels import Kernel, traits
from contconv.kernels.sampling import basis_dtype
from contconv.strategies.problem import biased

MOST = 2**20  # numerators and denominators up to this; products of three with a size fit into int64


@dataclass(frozen=True)
class FlexibleAxis:
    """`grid.Axis` with tensors for tuples, and every output pixel a phase of its own."""

    source: Tensor  # [out, taps] as `grid.sources`
    offset: Tensor  # [out, taps] float64
    window: Tensor  # [out] float64, the grid's displacement from the centre of its window
    gain: Tensor | None  # [out, taps] where the kernel is stretched


def flexible_axis(
    in_size: int, out_size: int, scale: Fraction, kernel_size: int, center: Fraction, antialias: bool,
    padding_mode: str, device: torch.device,
) -> FlexibleAxis:  # fmt: skip
    """`grid.axis_plan` step by step."""
    stretch = min(scale, Fraction(1)) if antialias else Fraction(1)
    support = kernel_size / stretch
    taps = -(-support.numerator // support.denominator)
    numbers = (scale.numerator, scale.denominator, center.numerator, center.denominator)
    if max(map(abs, numbers)) > MOST:
        raise ValueError(
            f"for a dynamic size, numerators and denominators must be at most {MOST}, got scale={scale} and "
            f"center={center}: give a fraction, like Fraction(7071, 10000) in place of 0.7071"
        )
    check_padding(padding_mode, in_size, taps + abs(int(center)))
    k, l, c = scale.numerator, scale.denominator, center.denominator  # noqa: E741 - the scale is k / l
    unit = 2 * support.denominator
    denominator = 2 * k * c * unit
    half = support.numerator * 2 * k * c
    start = (k * (in_size - 1) - l * (out_size - 1)) * c + 2 * k * center.numerator
    grid = (torch.arange(out_size, device=device) * (2 * l * c) + start) * unit
    first = -torch.div(half - grid, denominator, rounding_mode="floor")
    rest = grid - first * denominator  # [out] g - first, over the denominator
    tap = torch.arange(taps, device=device)
    steps = (rest[:, None] - tap * denominator) * stretch.numerator  # [out, taps]
    whole = denominator * stretch.denominator
    offset = steps.double() / whole
    pixel = first[:, None] + tap
    if padding_mode == "circular":  # a remainder of a tensor by a symbol is beyond ONNX
        source = pixel.remainder(torch.full((), in_size, device=device, dtype=torch.long))
    else:
        source = folded(pixel, in_size, padding_mode)
    gain = None
    if stretch != 1:
        inside = 2 * steps > -kernel_size * whole
        source, gain = torch.where(inside, source, -1), inside.double() * float(stretch)
    window = (2 * rest - (taps - 1) * denominator).double() / (2 * denominator)
    return FlexibleAxis(source, offset, window, gain)


def check_padding(padding_mode: str, in_size: int, reach: int) -> None:
    """A reflection reaches at most size - 1; an exported program must know that its inputs are large enough."""
    if padding_mode == "reflect":
        torch._check(in_size > reach, lambda: f"padding_mode='reflect' needs inputs larger than {reach} pixels here")


def flexible_conv(
    x: Tensor, kernel: Kernel, bias: Tensor | None, axes: Sequence[FlexibleAxis], sizes: Sequence[int]
) -> Tensor:
    """x: [N, Cin, *in] -> [N, Cout, *out]."""
    kind = traits(kernel)
    dtype = torch.promote_types(x.dtype, torch.float32)
    y = x.to(dtype)
    if kind.separable:
        for number, axis in enumerate(axes):
            weights = flexible_basis(kernel, (axis,), sizes, x.device)[..., 0].to(dtype)  # [out, taps]
            y = (neighbours(y, 2 + number, axis).movedim(2 + number, -2) * weights).sum(-1).movedim(-1, 2 + number)
        return biased(y.to(x.dtype), bias)
    shape = y.shape[:2]
    if kind.channelwise:
        y = y.flatten(0, 1)[:, None]
    count = len(axes)
    basis = (
        flexible_basis(kernel, axes, sizes, x.device).to(dtype).flatten(count, -2).flatten(0, count - 1)
    )  # [out, T, R]
    out = [axis.source.shape[0] for axis in axes]
    for number, axis in enumerate(axes):  # [N, Cin, out, ..., in, ..., taps, ...]
        y = neighbours(y, 2 + number, axis)
    y = y.flatten(2 + count).flatten(2, 1 + count)  # [N, Cin, out, T]
    mixing = kernel.mixing.to(dtype)
    groups = y.shape[1] // mixing.shape[-1]
    y = contracted_neighbours(y, basis, mixing, groups, kind.per_tap and kind.normalize)
    y = y.reshape(*y.shape[:2], *out)
    return biased((y[:, 0].unflatten(0, shape) if kind.channelwise else y).to(x.dtype), bias)


def neighbours(x: Tensor, dim: int, axis: FlexibleAxis) -> Tensor:
    """x with one axis gathered: `out` in its place, `taps` at the end."""
    x = F.pad(x.movedim(dim, -1), (1, 0))  # so that source -1, plus one, is a zero
    return x[..., axis.source + 1].movedim(-2, dim)


def contracted_neighbours(near: Tensor, basis: Tensor, mixing: Tensor, groups: int, normalize: bool) -> Tensor:
    """near: [N, Cin, out, T], basis: [out, T, R], mixing: [R, Cout, Cin/groups] or one per tap -> [N, Cout, out]."""
    near = near.unflatten(1, (groups, -1))
    mixing = mixing.unflatten(-2, (groups, -1))
    if mixing.ndim == 4:
        z = torch.einsum("ngipt,ptr->npgri", near, basis)
        return torch.einsum("npgri,rgoi->ngop", z, mixing).flatten(1, 2)
    weights = torch.einsum("ptr,trgoi->ptgoi", basis, mixing)
    if normalize:
        weights = weights / weights.sum(1, keepdim=True)
    return torch.einsum("ngipt,ptgoi->ngop", near, weights).flatten(1, 2)


def flexible_basis(kernel: Kernel, axes: Sequence[FlexibleAxis], sizes: Sequence[int], device: torch.device) -> Tensor:
    """[*out, *taps, R], as `kernels.sampling`."""
    kind, count, dtype = traits(kernel), len(axes), basis_dtype(kernel, device)
    if kind.per_tap:
        d = _outer([axis.window for axis in axes]).to(dtype)
        basis = kernel.basis(d)
        basis = basis.reshape(*basis.shape[:-1], *(1 for _ in axes), -1)
        basis = basis.expand(*basis.shape[:count], *(axis.source.shape[1] for axis in axes), -1)
    else:
        along = [on_its_side(axis, size, dtype) for axis, size in zip(axes, sizes, strict=False)]
        basis = kernel.basis(_outer(along))
    if any(axis.gain is not None for axis in axes):
        gains = [torch.ones_like(axis.offset) if axis.gain is None else axis.gain for axis in axes]
        basis = basis * _outer(gains).prod(-1)[..., None].to(dtype)
    if kind.normalize and not kind.per_tap:
        basis = basis / basis.sum(tuple(range(count, 2 * count)), keepdim=True)
    return basis


def on_its_side(axis: FlexibleAxis, kernel_size: int, dtype: torch.dtype) -> Tensor:
    """Displacements in floats that stay in their tap's half-open interval, as `kernels.sampling` rounds them."""
    offset = axis.offset.to(dtype)
    if axis.gain is not None:
        return offset
    ends = [kernel_size / 2 - 1 - tap for tap in range(axis.source.shape[1])]
    least = [torch.nextafter(torch.tensor(end, dtype=dtype), torch.tensor(end + 1, dtype=dtype)).item() for end in ends]
    return torch.maximum(offset, torch.tensor(least, dtype=dtype, device=offset.device))


def _outer(along: Sequence[Tensor]) -> Tensor:
    """One [out, *rest] per axis -> [*out, *rests, D]: every combination."""
    count, rests = len(along), along[0].ndim - 1
    placed = []
    for number, tensor in enumerate(along):
        for other in range(count):
            if other != number:
                tensor = tensor.unsqueeze(other)
        for other in range(count if rests else 0):
            if other != number:
                tensor = tensor.unsqueeze(count + other)
        placed.append(tensor)
    return torch.stack(torch.broadcast_tensors(*placed), dim=-1)
