"""y = pixels (*) weights with one filter per class of output pixels, in plain PyTorch, differentiable to any order.

The classes are looped over, each a batch of matrix products (`classes.py`). Nothing but the arguments is kept for
backward.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from contconv.precision import full_precision
from contconv.strategies.classes import (
    classes,
    filters,
    over_phases,
)
from contconv.strategies.padding import extended
from contconv.strategies.problem import Problem
from contconv.strategies.products import Desk, convolves, correlated, sent_back
from contconv.strategies.windows import add_windows, convolved, matrices, windows
from contconv.transforms import one_by_one, refuse_batched


def phase_conv(x: Tensor, weights: Tensor, problem: Problem) -> Tensor:
    """x: [N, Cin, *in], weights: [*phases, *taps, Cout, Cin/groups] -> [N, Cout, *out] (channels last in memory)."""
    grouped = weights.unflatten(-2, (problem.groups, problem.out_channels // problem.groups))
    y: Tensor = PhaseConv.apply(pixels_seen(x, problem), grouped.mT.contiguous(), problem)
    return y.movedim(-1, 1)


def pixels_seen(x: Tensor, problem: Problem) -> Tensor:
    """[N, Cin, *in] -> [N, *seen, Cin], contiguous."""
    spans = [(number, axis.first[0], axis.first[-1] + axis.taps) for number, axis in enumerate(problem.axes, start=1)]
    return extended(x.movedim(1, -1), spans, problem.padding_mode).contiguous()


def in_full_precision(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Backward may be called under autocast, and all the arithmetic of it is in these forwards."""

    def run(a: Tensor, b: Tensor, *rest: Any) -> Tensor:
        with full_precision(a.device):
            return forward(a, b, *rest)

    return run


class _Bilinear(Function):
    """A function that is linear in its first two arguments: only those are kept, and its tangent is made of itself."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        a, b, *ctx.rest = inputs
        ctx.save_for_backward(a, b)
        ctx.save_for_forward(a, b)

    @classmethod
    def tangent(cls, ctx: Any, da: Tensor | None, db: Tensor | None) -> Tensor | None:
        a, b = ctx.saved_tensors
        parts = [] if da is None else [cls.apply(da, b, *ctx.rest)]
        parts += [] if db is None else [cls.apply(a, db, *ctx.rest)]
        return sum(parts[1:], parts[0]) if parts else None


class PhaseConv(_Bilinear):
    """Of pixels [N, *seen, Cin] and weights [*phases, *taps, g, Ci, Co]. The gradients of the three are each other."""

    @staticmethod
    @in_full_precision
    def forward(pixels: Tensor, weights: Tensor, problem: Problem) -> Tensor:
        return convolved(pixels.contiguous(), problem, lambda one: weights[one.phases])

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        refuse_batched(dy)
        pixels, weights = ctx.saved_tensors
        need_pixels, need_weights, _ = ctx.needs_input_grad
        return (
            _GradPixels.apply(dy, weights, pixels.shape, *ctx.rest) if need_pixels else None,
            _GradWeights.apply(pixels, dy, weights.shape, *ctx.rest) if need_weights else None,
            None,
        )

    @staticmethod
    def jvp(ctx: Any, pixels: Tensor | None, weights: Tensor | None, *_: None) -> Tensor | None:
        return PhaseConv.tangent(ctx, pixels, weights)

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], pixels: Tensor, weights: Tensor, problem: Problem) -> Any:
        if dims[1] is not None:
            return one_by_one(PhaseConv.apply, info.batch_size, dims, pixels, weights, problem), 0
        more = replace(problem, batch=info.batch_size * problem.batch)
        y = PhaseConv.apply(pixels.movedim(dims[0] or 0, 0).flatten(0, 1), weights, more)
        return y.unflatten(0, (info.batch_size, problem.batch)), 0


class _GradPixels(_Bilinear):
    @staticmethod
    @in_full_precision
    def forward(dy: Tensor, weights: Tensor, shape: torch.Size, problem: Problem) -> Tensor:
        gradient, desk = dy.new_zeros(shape), Desk(dy)
        for one in classes(problem):
            own = filters(weights[one.phases], problem)
            for piece in one.pieces(problem):
                columns = matrices(dy, piece, desk, by_rows=convolves(own, piece.rows))
                add_windows(sent_back(columns, own, desk), gradient, piece)
        return gradient

    @staticmethod
    def backward(ctx: Any, ddx: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        dy, weights = ctx.saved_tensors
        problem = ctx.rest[-1]
        need_dy, need_weights, *_ = ctx.needs_input_grad
        return (
            PhaseConv.apply(ddx, weights, problem) if need_dy else None,
            _GradWeights.apply(ddx, dy, weights.shape, problem) if need_weights else None,
            None,
            None,
        )

    @staticmethod
    def jvp(ctx: Any, dy: Tensor | None, weights: Tensor | None, *_: None) -> Tensor | None:
        return _GradPixels.tangent(ctx, dy, weights)

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], *arguments: Any) -> Any:
        return one_by_one(_GradPixels.apply, info.batch_size, dims, *arguments), 0


class _GradWeights(_Bilinear):
    @staticmethod
    @in_full_precision
    def forward(pixels: Tensor, dy: Tensor, shape: torch.Size, problem: Problem) -> Tensor:
        pixels = pixels.contiguous()
        gradient, desk = dy.new_zeros(shape), Desk(dy)
        for one in classes(problem):
            own = None
            for piece in one.pieces(problem):
                own = correlated(windows(pixels, piece, desk), matrices(dy, piece, desk), own, desk)
            if own is not None:  # there are images
                gradient[one.phases] = over_phases(own, one, problem)
        return gradient

    @staticmethod
    def backward(ctx: Any, ddw: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        pixels, dy = ctx.saved_tensors
        problem = ctx.rest[-1]
        need_pixels, need_dy, *_ = ctx.needs_input_grad
        return (
            _GradPixels.apply(dy, ddw, pixels.shape, problem) if need_pixels else None,
            PhaseConv.apply(pixels, ddw, problem) if need_dy else None,
            None,
            None,
        )

    @staticmethod
    def jvp(ctx: Any, pixels: Tensor | None, dy: Tensor | None, *_: None) -> Tensor | None:
        return _GradWeights.tangent(ctx, pixels, dy)

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], *arguments: Any) -> Any:
        return one_by_one(_GradWeights.apply, info.batch_size, dims, *arguments), 0
