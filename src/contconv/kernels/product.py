"""Kernels whose basis functions are products of one function along each axis: on a grid, axes can be sampled apart."""

import math
from collections.abc import Callable, Sequence
from typing import TypeGuard

import torch
from torch import Tensor

from contconv.kernels.base import Kernel, LearnedKernel


class ProductKernel(LearnedKernel):
    """The basis is all products of one function from each axis, the last axis innermost."""

    def along(self, d: Tensor, axis: int) -> Tensor:
        """[...] -> [..., functions of the axis]."""
        raise NotImplementedError(f"{type(self).__name__} must define along(d: [...], axis) -> [..., functions]")

    def basis(self, d: Tensor) -> Tensor:
        """[..., D] -> [..., R]."""
        assert isinstance(self.kernel_size, tuple)
        if d.shape[-1] != len(self.kernel_size):
            raise ValueError(f"d must have {len(self.kernel_size)} displacements, one for each axis, got {d.shape[-1]}")
        return products([self.along(d[..., axis], axis) for axis in range(d.shape[-1])])


def folded(eta: Callable[[Tensor], Tensor], u: Tensor, d: Tensor, size: int, step: int, last: float = 1.0) -> Tensor:
    """eta(u) for u [..., R] at the displacements d [...], and the outermost of `size` neighbours take what lies beyond:
    the first one eta(u + step) + last * eta(u + 2 step), the last one the same to its side.

    eta: even. It is called once, for everything.
    """
    leftmost, rightmost = (d > size / 2 - 1).to(d.dtype), (d <= 1 - size / 2).to(d.dtype)
    shares = torch.stack([torch.ones_like(d), leftmost, leftmost * last, rightmost, rightmost * last], dim=-1)
    values = eta(u[..., None] + u.new_tensor([0, step, 2 * step, -step, -2 * step]))  # [..., R, 5]
    return (values * shares[..., None, :]).sum(-1)


def products(along: Sequence[Tensor]) -> Tensor:
    """One [..., R_axis] for each axis -> [..., R]: all products of one function of each.

    >>> products([torch.tensor([1.0, 2.0]), torch.tensor([1.0, 10.0, 100.0])])
    tensor([  1.,  10., 100.,   2.,  20., 200.])
    """
    product, *rest = along
    for functions in rest:
        product = (product[..., :, None] * functions[..., None, :]).flatten(-2)
    return product


def products_on_grid(along: Sequence[Tensor]) -> Tensor:
    """The same for small tensors that broadcast to a large one: one long loop over R serves many short ones."""
    counts = [functions.shape[-1] for functions in along]
    spread = []
    for axis, functions in enumerate(along):
        before, after = math.prod(counts[:axis]), math.prod(counts[axis + 1 :])
        repeated = functions[..., None, :, None].expand(*functions.shape[:-1], before, counts[axis], after)
        spread.append(repeated.flatten(-3))
    return math.prod(spread[1:], start=spread[0])


def is_product(kernel: Kernel) -> TypeGuard[ProductKernel]:
    """Whether the basis is what `ProductKernel` says; a subclass, or somebody's patch, may make it another."""
    return isinstance(kernel, ProductKernel) and getattr(kernel.basis, "__func__", None) is ProductKernel.basis
