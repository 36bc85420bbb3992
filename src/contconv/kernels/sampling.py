"""A kernel sampled at the displacements of a plan: what every strategy works with."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps

import torch
from torch import Tensor

from contconv.grid import Axis
from contconv.kernels.base import Kernel, traits
from contconv.kernels.memory import remembered
from contconv.kernels.product import ProductKernel, is_product, products_on_grid
from contconv.transforms import unobserved

MOST_KEPT = 2**16  # displacements of a plan


def sampled_basis(kernel: Kernel, axes: Sequence[Axis], device: torch.device, *, once: bool = False) -> Tensor:
    """[*phases, *taps, R] the basis at every displacement of the plan (per tap: the same for all taps of a phase).

    once: do not remember it.
    """
    plan = tuple(axes)
    if once:
        return _basis(kernel, plan, device)
    return remembered(kernel, ("basis", plan, device), lambda: _basis(kernel, plan, device))


def sampled_weights(kernel: Kernel, axes: Sequence[Axis], device: torch.device) -> Tensor:
    """[*phases, *taps, Cout, Cin/groups] the kernel at every displacement of the plan."""
    plan = tuple(axes)
    return remembered(kernel, ("weights", plan, device), lambda: _weights(kernel, plan, device))


def _basis(kernel: Kernel, axes: tuple[Axis, ...], device: torch.device) -> Tensor:
    dtype = basis_dtype(kernel, device)
    kind = traits(kernel)
    if kind.per_tap:
        basis = kernel.basis(_window_displacements(axes, dtype, device))
        basis = basis.reshape(*basis.shape[:-1], *(1 for _ in axes), -1)  # [*phases, *1, R]
        basis = basis.expand(*(axis.phases for axis in axes), *(axis.taps for axis in axes), -1)
    elif is_product(kernel):
        basis = products_on_grid([_along(kernel, axes, number, dtype, device) for number in range(len(axes))])
    else:
        basis = kernel.basis(_displacements(axes, dtype, device))
    if basis.shape[-1] != kernel.mixing.shape[-3]:
        raise ValueError(
            f"kernel's basis has {basis.shape[-1]} functions, its mixing {kernel.mixing.shape[-3]}; they must agree"
        )
    if any(axis.stretch != 1 for axis in axes):
        basis = basis * _stretch_gain(axes, dtype, device)[..., None]
    if kind.normalize and not kind.per_tap:
        taps = tuple(range(len(axes), 2 * len(axes)))
        basis = basis / basis.sum(taps, keepdim=True)
    return basis


def _weights(kernel: Kernel, axes: tuple[Axis, ...], device: torch.device) -> Tensor:
    basis = _basis(kernel, axes, device)
    mixing = kernel.mixing.to(basis)
    kind = traits(kernel)
    if not kind.per_tap:
        return torch.tensordot(basis, mixing, dims=1)
    count = len(axes)
    flat = basis.flatten(count, -2).flatten(0, count - 1).transpose(0, 1)  # [taps, phases, R]
    weights = torch.bmm(flat, mixing.flatten(2)).transpose(0, 1).unflatten(-1, mixing.shape[-2:])
    if kind.normalize:
        weights = weights / weights.sum(1, keepdim=True)
    return weights.reshape(*basis.shape[:-1], *mixing.shape[-2:])


def basis_dtype(kernel: Kernel, device: torch.device) -> torch.dtype:
    """At least float32; float64 for kernels without parameters, where it costs nothing."""
    if traits(kernel).channelwise:
        return torch.float32 if device.type == "mps" else torch.float64
    return torch.promote_types(kernel.mixing.dtype, torch.float32)


def _along(
    kernel: ProductKernel, axes: tuple[Axis, ...], number: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """The functions of one axis, in their place: [*phases, *taps, R_axis] with ones for the other axes."""
    functions = kernel.along(rounded_offset(axes[number], dtype, device), number)
    return _placed(functions, number, len(axes))


def _places(axes: tuple[Axis, ...]) -> int:
    """Displacements of the plan: phases times taps."""
    return math.prod(axis.phases * axis.taps for axis in axes)


Sampled = Callable[[tuple[Axis, ...], torch.dtype, torch.device], Tensor]


def _kept_if_small(make: Sampled) -> Sampled:
    """`make`, whose results are kept where they are small: hundreds of large ones would fill the memory."""
    kept = lru_cache(maxsize=256)(make)

    @wraps(make)
    def found(axes: tuple[Axis, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        return (kept if _places(axes) <= MOST_KEPT else make)(axes, dtype, device)

    return found


@_kept_if_small
def _displacements(axes: tuple[Axis, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """[*phases, *taps, D]. Never write to it."""
    with unobserved():
        return _outer([rounded_offset(axis, dtype, device) for axis in axes], len(axes))


@lru_cache(maxsize=1024)
def rounded_offset(axis: Axis, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[phases, taps] `axis.offset` in floats that stay on their side of the border between two taps.

    A tap's displacements are a half-open interval; rounding must not move one onto the open end, which is the next's.
    Never write to it.
    """
    with unobserved():
        offset = torch.tensor([[float(d) for d in row] for row in axis.offset], dtype=dtype)
        if axis.stretch == 1:
            open_end = axis.kernel_size / 2 - 1 - torch.arange(axis.taps, dtype=dtype)
            offset = torch.maximum(offset, torch.nextafter(open_end, open_end + 1))
        return offset.to(device)


@_kept_if_small
def _window_displacements(axes: tuple[Axis, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """[*phases, D] the grid's displacement from the centre of its window, in (-1/2, 1/2]. Never write to it."""
    with unobserved():
        along = [_window_offset(axis, dtype, device) for axis in axes]
        return _outer(along, len(axes)).flatten(len(axes), -2).squeeze(len(axes))


@lru_cache(maxsize=1024)
def _window_offset(axis: Axis, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[phases, 1]. Never write to it."""
    with unobserved():
        along = [[float(2 * residual - axis.taps + 1) / 2] for residual in axis.residual]
        return torch.tensor(along, dtype=torch.float64).to(device, dtype)


@_kept_if_small
def _stretch_gain(axes: tuple[Axis, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """[*phases, *taps] the scale where the axis is stretched, and zero outside the stretched support."""
    with unobserved():
        gain = torch.ones((), dtype=torch.float64)
        for number, axis in enumerate(axes):
            gain = gain * _placed(_axis_gain(axis), number, len(axes))
        return gain.to(device, dtype)


@lru_cache(maxsize=1024)
def _axis_gain(axis: Axis) -> Tensor:
    """[phases, taps]. Never write to it."""
    with unobserved():
        return torch.tensor(axis.inside, dtype=torch.float64) * float(axis.stretch)


def _outer(along: Sequence[Tensor], axes: int) -> Tensor:
    """One [phases, taps] per axis -> [*phases, *taps, D]: every pair of displacements."""
    return torch.stack(torch.broadcast_tensors(*(_placed(a, number, axes) for number, a in enumerate(along))), dim=-1)


def _placed(along: Tensor, number: int, axes: int) -> Tensor:
    """[phases, taps, ...] -> its place in [*phases, *taps, ...], with ones elsewhere."""
    shape = [1] * (2 * axes)
    shape[number], shape[axes + number], *rest = along.shape
    return along.reshape(*shape, *rest)
