"""y = pixels (*) weights with one filter per class of output pixels, in plain PyTorch, differentiable to any order.

The classes of the leading axes are looped over. Of the last axis every output column is one batch entry of a matrix
product [J, M, K*Cin] @ [J, K*Cin, Cout], where M are the batch and the rows of the class. Nothing but the arguments is
kept for backward.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from contconv.grid import Axis, phase_index, seen_index
from contconv.precision import full_precision
from contconv.strategies.padding import extended
from contconv.strategies.problem import Problem
from contconv.transforms import one_by_one

Index = tuple[slice, ...]


def phase_conv(x: Tensor, weights: Tensor, problem: Problem) -> Tensor:
    """x: [N, Cin, *in], weights: [*phases, *taps, Cout, Cin/groups] -> [N, Cout, *out] (channels last in memory)."""
    spans = [(number, axis.first[0], axis.first[-1] + axis.taps) for number, axis in enumerate(problem.axes, start=1)]
    pixels = extended(x.movedim(1, -1), spans, problem.padding_mode)
    grouped = weights.unflatten(-2, (problem.groups, problem.out_channels // problem.groups)).movedim(
        -2, -1
    )  # [*phases, *taps, g, Ci, Co]
    y: Tensor = _PhaseConv.apply(pixels.contiguous(), grouped.contiguous(), problem)
    return y.movedim(-1, 1)


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


class _PhaseConv(_Bilinear):
    """Of pixels [N, *seen, Cin] and weights [*phases, *taps, g, Ci, Co]. The gradients of the three are each other."""

    @staticmethod
    @in_full_precision
    def forward(pixels: Tensor, weights: Tensor, problem: Problem) -> Tensor:
        y = pixels.new_empty(problem.batch, *problem.out_size, problem.out_channels)
        for row in rows(problem):
            total: Tensor | None = None
            for tap in row.taps:
                a, w = columns(pixels, tap, problem), filters(weights, tap, problem)
                total = torch.bmm(a, w) if total is None else total.baddbmm_(a, w)
            assert total is not None
            y[row.outputs] = from_batches(total, y[row.outputs].shape, problem)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        pixels, weights = ctx.saved_tensors
        need_pixels, need_weights, _ = ctx.needs_input_grad
        return (
            _GradPixels.apply(dy, weights, pixels.shape, *ctx.rest) if need_pixels else None,
            _GradWeights.apply(pixels, dy, weights.shape, *ctx.rest) if need_weights else None,
            None,
        )

    @staticmethod
    def jvp(ctx: Any, pixels: Tensor | None, weights: Tensor | None, *_: None) -> Tensor | None:
        return _PhaseConv.tangent(ctx, pixels, weights)

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], pixels: Tensor, weights: Tensor, problem: Problem) -> Any:
        if dims[1] is not None:
            return one_by_one(_PhaseConv.apply, info.batch_size, dims, pixels, weights, problem), 0
        more = replace(problem, batch=info.batch_size * problem.batch)
        y = _PhaseConv.apply(pixels.movedim(dims[0] or 0, 0).flatten(0, 1), weights, more)
        return y.unflatten(0, (info.batch_size, problem.batch)), 0


class _GradPixels(_Bilinear):
    @staticmethod
    @in_full_precision
    def forward(dy: Tensor, weights: Tensor, shape: torch.Size, problem: Problem) -> Tensor:
        gradient = dy.new_zeros(shape)
        for row in rows(problem):
            batches = to_batches(dy[row.outputs], problem)
            for tap in row.taps:
                part = torch.bmm(batches, filters(weights, tap, problem).mT)  # [J*g, M, K*Ci]
                seen = gradient[tap.inputs]
                part = from_tap_batches(part, seen.shape[:-2], problem)
                seen.index_add_(-2, column_index(problem, dy.device), part)
        return gradient

    @staticmethod
    def backward(ctx: Any, ddx: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        dy, weights = ctx.saved_tensors
        problem = ctx.rest[-1]
        need_dy, need_weights, *_ = ctx.needs_input_grad
        return (
            _PhaseConv.apply(ddx, weights, problem) if need_dy else None,
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
        gradient = dy.new_zeros(shape)
        for row in rows(problem):
            batches = to_batches(dy[row.outputs], problem)
            for tap in row.taps:
                part = torch.bmm(columns(pixels, tap, problem).mT, batches)  # [J*g, K*Ci, Co]
                of_tap = gradient[tap.weights]  # [phases, K, g, Ci, Co]
                part = part.unflatten(0, (-1, problem.groups)).unflatten(2, (of_tap.shape[1], of_tap.shape[3]))
                of_tap.index_add_(0, phase_index(problem.axes[-1], dy.device), part.movedim(1, 2))
        return gradient

    @staticmethod
    def backward(ctx: Any, ddw: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        pixels, dy = ctx.saved_tensors
        problem = ctx.rest[-1]
        need_pixels, need_dy, *_ = ctx.needs_input_grad
        return (
            _GradPixels.apply(dy, ddw, pixels.shape, problem) if need_pixels else None,
            _PhaseConv.apply(pixels, ddw, problem) if need_dy else None,
            None,
            None,
        )

    @staticmethod
    def jvp(ctx: Any, pixels: Tensor | None, dy: Tensor | None, *_: None) -> Tensor | None:
        return _GradWeights.tangent(ctx, pixels, dy)

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], *arguments: Any) -> Any:
        return one_by_one(_GradWeights.apply, info.batch_size, dims, *arguments), 0


@dataclass(frozen=True)
class Tap:
    """One tap of the leading axes, for one class of rows."""

    inputs: Index  # of pixels [N, *seen, Cin]: where the class's rows read this tap
    weights: tuple[int | slice, ...]  # of weights [*phases, *taps, ...]


@dataclass(frozen=True)
class Row:
    """One class of the leading axes."""

    outputs: Index  # of y [N, *out, Cout]
    taps: tuple[Tap, ...]


def rows(problem: Problem) -> Iterator[Row]:
    """The classes of the leading axes (one of everything where there is only one axis)."""
    leading = problem.axes[:-1]
    every = slice(None)
    for phases in product(*(range(axis.phases) for axis in leading)):
        taps = tuple(
            Tap(
                inputs=(every, *(_read(a, p, t) for a, p, t in zip(leading, phases, tap, strict=True))),
                weights=(*phases, every, *tap),
            )
            for tap in product(*(range(axis.taps) for axis in leading))
        )
        yield Row((every, *(slice(p, None, a.phases) for a, p in zip(leading, phases, strict=True))), taps)


def _read(axis: Axis, phase: int, tap: int) -> slice:
    """The seen pixels that the outputs of one phase read at one tap: every l-th one."""
    first = axis.first[phase :: axis.phases]
    start = first[0] - axis.first[0] + tap
    step = first[1] - first[0] if len(first) > 1 else 1
    return slice(start, start + step * (len(first) - 1) + 1, step)


def rows_of_a_class(problem: Problem) -> int:
    """The most rows (of the leading axes) that one class has."""
    return math.prod(-(-axis.out_size // axis.phases) for axis in problem.axes[:-1])


def column_index(problem: Problem, device: torch.device) -> Tensor:
    """[J*K] the seen column of every tap of every output column."""
    return seen_index(problem.axes[-1], device).flatten()


def columns(pixels: Tensor, tap: Tap, problem: Problem) -> Tensor:
    """[J*g, M, K*Ci] what every output column of a class sees at one tap of the leading axes."""
    axis, groups = problem.axes[-1], problem.groups
    seen = pixels[tap.inputs].index_select(-2, column_index(problem, pixels.device))  # [N, *rows, J*K, Cin]
    shape = (seen.shape[:-2].numel(), axis.out_size, axis.taps, groups, problem.in_channels // groups)
    return seen.reshape(shape).permute(1, 3, 0, 2, 4).flatten(0, 1).flatten(2)


def filters(weights: Tensor, tap: Tap, problem: Problem) -> Tensor:
    """[J*g, K*Ci, Co] the filters of every output column at one tap of the leading axes."""
    chosen = weights[tap.weights].index_select(0, phase_index(problem.axes[-1], weights.device))  # [J, K, g, Ci, Co]
    return chosen.movedim(2, 1).flatten(0, 1).flatten(1, 2)


def to_batches(y: Tensor, problem: Problem) -> Tensor:
    """[N, *rows, J, Cout] -> [J*g, M, Co]."""
    shape = (y.shape[:-2].numel(), y.shape[-2], problem.groups, problem.out_channels // problem.groups)
    return y.reshape(shape).permute(1, 2, 0, 3).flatten(0, 1)


def from_batches(batches: Tensor, shape: torch.Size, problem: Problem) -> Tensor:
    """[J*g, M, Co] -> [N, *rows, J, Cout], which is `shape`."""
    return batches.unflatten(0, (shape[-2], problem.groups)).permute(2, 0, 1, 3).reshape(shape)


def from_tap_batches(batches: Tensor, rows: torch.Size, problem: Problem) -> Tensor:
    """[J*g, M, K*Ci] -> [N, *rows, J*K, Cin]."""
    axis, groups = problem.axes[-1], problem.groups
    y = batches.unflatten(0, (axis.out_size, groups)).unflatten(-1, (axis.taps, problem.in_channels // groups))
    return y.permute(2, 0, 3, 1, 4).reshape(*rows, axis.out_size * axis.taps, problem.in_channels)
