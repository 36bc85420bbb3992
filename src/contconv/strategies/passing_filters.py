"""`phase_conv` with filters that are made, used and forgotten class by class, in forward and again in backward.

Where every output pixel has a filter of its own, all of them together are many times as large as the image; those of a
class stay in the cache.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from contconv.precision import full_precision
from contconv.strategies.classes import (
    Class,
    classes,
    filters,
    over_phases,
)
from contconv.strategies.phase_conv import PhaseConv, pixels_seen
from contconv.strategies.problem import Problem
from contconv.strategies.products import Desk, convolves, correlated, sent_back
from contconv.strategies.windows import add_windows, convolved, matrices, windows
from contconv.transforms import refuse_batched

LONGEST_SUM = 1024  # terms, and added as a whole: rounding errors grow with the length of a running sum


def conv_with_passing_filters(x: Tensor, basis: Tensor, mixing: Tensor, problem: Problem) -> Tensor:
    """x: [N, Cin, *in], basis: [*phases, *taps, R], mixing: [R, Cout, Cin/groups] -> [N, Cout, *out].

    It knows plain autograd only, to any order.
    """
    mixing = mixing.unflatten(1, (problem.groups, problem.out_channels // problem.groups)).mT
    y: Tensor = _PassingFilters.apply(pixels_seen(x, problem), basis.contiguous(), mixing.contiguous(), problem)
    return y.movedim(-1, 1)


class _PassingFilters(Function):
    """Of pixels [N, *seen, Cin], basis [*phases, *taps, R] and mixing [R, g, Ci, Co]."""

    @staticmethod
    def forward(ctx: Any, pixels: Tensor, basis: Tensor, mixing: Tensor, problem: Problem) -> Tensor:
        ctx.save_for_backward(pixels, basis, mixing)
        ctx.problem = problem
        desk = Desk(pixels)
        return convolved(pixels, problem, lambda one: _made(basis, mixing, one, desk), desk)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        refuse_batched(dy)
        # Somebody may want to differentiate this.
        gradients = _differentiable if torch.is_grad_enabled() else _gradients
        with full_precision(dy.device):  # autocast may be on where backward is called
            return *gradients(ctx.saved_tensors, ctx.problem, dy, ctx.needs_input_grad[:3]), None


def _made(basis: Tensor, mixing: Tensor, one: Class, desk: Desk) -> Tensor:
    """The filters of a class: [*phases, *taps, g, Ci, Co]."""
    own = basis[one.phases]
    made = desk.sheet("filters", *own.shape[:-1], *mixing.shape[1:])
    functions = len(mixing)
    every = mixing.view(functions, -1).expand(one.filters, -1, -1)  # a batch of products is shared out among threads
    torch.bmm(own.reshape(one.filters, -1, functions), every, out=made.view(one.filters, -1, every.shape[-1]))
    return made


def _parts(columns: int) -> int:
    """Into which the gradient of mixing is cut, for threads to share: few, or the products are of few columns, which
    are slow, and sums without any blocks."""
    return next(parts for parts in (8, 4, 2, 1) if columns % parts == 0 and (columns >= 64 * parts or parts == 1))


def _gradients(tensors: Sequence[Tensor], problem: Problem, dy: Tensor, needs: Sequence[bool]) -> list[Tensor | None]:
    pixels, basis, mixing = tensors
    grad_pixels = torch.zeros_like(pixels) if needs[0] else None
    grad_basis = torch.zeros_like(basis) if needs[1] else None
    parts = _parts(mixing[0].numel())
    grad_mixing = mixing.new_zeros(parts, len(mixing), mixing[0].numel() // parts) if needs[2] else None
    desk = Desk(dy)
    for one in classes(problem):
        own = filters(_made(basis, mixing, one, desk), problem)
        grad_own: Tensor | None = None
        for piece in one.pieces(problem):
            columns = matrices(dy, piece, desk, by_rows=convolves(own, piece.rows))
            if grad_pixels is not None:
                add_windows(sent_back(columns, own, desk), grad_pixels, piece)
            if needs[1] or needs[2]:
                grad_own = correlated(windows(pixels, piece, desk), columns, grad_own, desk)
        if grad_own is None:  # nobody asked, or there are no images
            continue
        made = over_phases(grad_own, one, problem).flatten(-3).flatten(0, -2)  # [B * T, g * Ci * Co]
        own_basis = basis[one.phases]
        if grad_basis is not None:
            grad_basis[one.phases] = torch.mm(made, mixing.flatten(1).mT).view(own_basis.shape)
        if grad_mixing is not None:
            for terms, some in zip(own_basis.flatten(0, -2).split(LONGEST_SUM), made.split(LONGEST_SUM), strict=True):
                columns = some.unflatten(1, (parts, -1)).transpose(0, 1)
                grad_mixing += torch.bmm(terms.mT.expand(parts, -1, -1), columns)
    if grad_mixing is not None:
        grad_mixing = grad_mixing.transpose(0, 1).reshape(mixing.shape)
    return [grad_pixels, grad_basis, grad_mixing]


def _differentiable(
    tensors: Sequence[Tensor], problem: Problem, dy: Tensor, needs: Sequence[bool]
) -> list[Tensor | None]:
    """The same gradients, with all filters at once."""
    pixels, basis, mixing = own = [tensor.view_as(tensor) for tensor in tensors]  # whose histories may meet
    y = PhaseConv.apply(pixels, torch.tensordot(basis, mixing, dims=1), problem)
    wanted = [tensor for tensor, need in zip(own, needs, strict=True) if need]
    found = iter(torch.autograd.grad(y, wanted, dy, create_graph=True))
    return [next(found) if need else None for need in needs]
