"""A kernel that is a product over the axes, applied one axis after the other: K + K multiply-adds instead of K * K."""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from contconv.grid import Axis, phase_index, seen_index, sources
from contconv.kernels import Kernel
from contconv.kernels.sampling import sampled_basis
from contconv.native.counting import count
from contconv.strategies.padding import extended
from contconv.strategies.problem import Cost, Problem, biased
from contconv.transforms import forward_mode, traced, transformed, unobserved


class Separable:
    name = "separable"

    def why_not(self, problem: Problem) -> list[str]:
        if not problem.separable:
            return ["the kernel is not a product of one function per axis"]
        if (problem.basis_functions, problem.in_channels, problem.out_channels) != (1, 1, 1):
            return ["the kernel mixes basis functions or channels, which no axis can do alone"]
        return []

    def cost(self, problem: Problem) -> Cost:
        sizes = list(problem.in_size)
        macs, largest = 0, 0
        for number in shrinking_first(problem):
            axis = problem.axes[number]
            sizes[number] = axis.out_size
            macs += math.prod(sizes) * axis.taps
            largest = max(largest, math.prod(sizes))
        width = problem.width
        sampling = problem.basis_macs * sum(axis.phases * axis.taps for axis in problem.axes)
        return Cost(macs=problem.batch * macs + sampling, bytes=3 * width * problem.batch * largest)

    def engine(self, problem: Problem) -> str:
        return self.name

    def counts(self, problem: Problem) -> dict[str, float]:
        return {}

    def run(self, x: Tensor, kernel: Kernel, bias: Tensor | None, problem: Problem) -> Tensor:
        y = x.to(torch.promote_types(x.dtype, torch.float32))
        for turn, number in enumerate(shrinking_first(problem)):
            axis = problem.axes[number]
            profile = sampled_basis(kernel, (axis,), x.device)
            if turn == 0:
                profile = profile * kernel.mixing.to(profile).flatten()
            profile = profile.to(y.dtype)
            resample = summed if can_be_summed(y, profile) else resized
            y = resample(y, 2 + number, axis, profile, problem.padding_mode)
            count(axis.taps * y.numel())
        return biased(y.to(x.dtype), bias)


def shrinking_first(problem: Problem) -> list[int]:
    """The axes in the order that leaves the least work for the later ones."""
    return sorted(range(len(problem.axes)), key=lambda number: problem.axes[number].scale)


def sums_lines(problem: Problem) -> bool:
    """Whether `summed` should serve, as far as it is known beforehand; then no convolution is faster."""
    return problem.device.type == "cpu" and not problem.differentiated and problem.memory_limit is None


def can_be_summed(x: Tensor, profile: Tensor) -> bool:
    """Whether `summed` serves: on the CPU, where the kernel itself is not trained, and nobody else looks on."""
    return x.device.type == "cpu" and not (profile.requires_grad and torch.is_grad_enabled()) and not observed()


def observed() -> bool:
    """Whether somebody looks on who knows nothing of functions like `_WeightedSums`."""
    return transformed() or forward_mode() or traced()


class Sums(NamedTuple):
    """Lines that are weighted sums of others: number i sums members[starts[i]] ... members[starts[i + 1] - 1]."""

    members: Tensor  # numbers of the other lines
    owners: Tensor  # the line that each is a member of, ascending
    starts: Tensor
    weights: Tensor  # which of the [phases * taps] weights each member has


@lru_cache(maxsize=256)
def sums(axis: Axis, padding_mode: str) -> tuple[Sums, Sums]:
    """Of output lines over input lines, and the other way round. Padding is in none. Never write to them."""
    with unobserved():
        source = sources(axis, padding_mode, torch.device("cpu"))  # [out, taps]
        outputs, taps = torch.nonzero(source >= 0, as_tuple=True)
        inputs, weights = source[outputs, taps], phase_index(axis, source.device)[outputs] * axis.taps + taps
        order = torch.argsort(inputs, stable=True)
        return (
            Sums(inputs, outputs, _starts(outputs, axis.out_size), weights),
            Sums(outputs[order], inputs[order], _starts(inputs, axis.in_size), weights[order]),
        )


def _starts(owners: Tensor, count: int) -> Tensor:
    """Where the members of each of `count` sums begin."""
    sizes = torch.bincount(owners, minlength=count)
    return sizes.cumsum(0) - sizes


def summed(x: Tensor, dim: int, axis: Axis, profile: Tensor, padding_mode: str) -> Tensor:
    """x with one axis resampled in one pass over memory: whole lines are weighted and summed."""
    strides = x.stride()
    order = sorted(range(x.ndim), key=lambda other: (other != dim, -strides[other]))  # the axis, the rest as it lies
    lines = x.permute(order)
    y = _WeightedSums.apply(lines.flatten(1), profile.flatten(), *sums(axis, padding_mode))
    return y.reshape(axis.out_size, *lines.shape[1:]).permute([order.index(place) for place in range(x.ndim)])


class _WeightedSums(torch.autograd.Function):
    """lines: [in, rest] -> [out, rest]. Linear in the lines, so its derivative is another one of these."""

    @staticmethod
    def forward(ctx: Any, lines: Tensor, weights: Tensor, along: Sums, back: Sums) -> Tensor:
        ctx.save_for_backward(weights)
        ctx.along, ctx.back = along, back
        if lines.shape[1] == 0:
            return lines.new_zeros(len(along.starts), 0)
        return F.embedding_bag(
            along.members, lines.contiguous(), along.starts, mode="sum",
            per_sample_weights=weights.index_select(0, along.weights),
        )  # fmt: skip

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (weights,) = ctx.saved_tensors
        if not observed():
            return _WeightedSums.apply(grad, weights, ctx.back, ctx.along), None, None, None
        members, owners, starts, chosen = ctx.back
        terms = grad.index_select(0, members) * weights.index_select(0, chosen)[:, None]
        return grad.new_zeros(len(starts), grad.shape[1]).index_add(0, owners, terms), None, None, None


def resized(x: Tensor, dim: int, axis: Axis, profile: Tensor, padding_mode: str) -> Tensor:
    """x with one axis resampled; profile: [phases, taps, 1] the kernel along it."""
    x = extended(x, [(dim, axis.first[0], axis.first[-1] + axis.taps)], padding_mode).movedim(dim, 0)
    lines = x.flatten(1)  # [seen, rest], so that whole lines are copied and weighted
    seen = seen_index(axis, x.device)  # [out, taps]
    weights = profile[phase_index(axis, x.device)]  # [out, taps, 1]
    y = lines.index_select(0, seen[:, 0]) * weights[:, 0]
    for tap in range(1, axis.taps):
        y = torch.addcmul(y, lines.index_select(0, seen[:, tap]), weights[:, tap])
    return y.reshape(axis.out_size, *x.shape[1:]).movedim(0, dim)
