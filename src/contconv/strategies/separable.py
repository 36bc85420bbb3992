"""A kernel that is a product over the axes, applied one axis after the other: K + K multiply-adds instead of K * K."""

import math

import torch
from torch import Tensor

from contconv.grid import Axis, phase_index, seen_index
from contconv.kernels import Kernel
from contconv.kernels.sampling import sampled_basis
from contconv.native.flops import count
from contconv.strategies.padding import extended
from contconv.strategies.problem import Cost, Problem, biased


class Separable:
    name = "separable"

    def why_not(self, problem: Problem) -> list[str]:
        if not problem.separable:
            return ["the kernel is not a product of one function per axis"]
        return []

    def cost(self, problem: Problem) -> Cost:
        sizes = list(problem.in_size)
        macs, largest = 0, 0
        for number in shrinking_first(problem):
            axis = problem.axes[number]
            sizes[number] = axis.out_size
            macs += math.prod(sizes) * axis.taps
            largest = max(largest, math.prod(sizes))
        width = max(problem.dtype.itemsize, 4)
        sampling = problem.basis_macs * sum(axis.phases * axis.taps for axis in problem.axes)
        return Cost(macs=problem.batch * macs + sampling, bytes=3 * width * problem.batch * largest)

    def engine(self, problem: Problem) -> str:
        return self.name

    def counts(self, problem: Problem) -> dict[str, float]:
        return {}

    def run(self, x: Tensor, kernel: Kernel, bias: Tensor | None, problem: Problem) -> Tensor:
        y = x.to(torch.promote_types(x.dtype, torch.float32))
        for number in shrinking_first(problem):
            axis = problem.axes[number]
            y = resized(y, 2 + number, axis, sampled_basis(kernel, (axis,), x.device), problem.padding_mode)
        return biased(y.to(x.dtype), bias)


def shrinking_first(problem: Problem) -> list[int]:
    """The axes in the order that leaves the least work for the later ones."""
    return sorted(range(len(problem.axes)), key=lambda number: problem.axes[number].scale)


def resized(x: Tensor, dim: int, axis: Axis, profile: Tensor, padding_mode: str) -> Tensor:
    """x with one axis resampled; profile: [phases, taps, 1] the kernel along it."""
    x = extended(x, dim, axis.first[0], axis.first[-1] + axis.taps, padding_mode).movedim(dim, 0)
    lines = x.flatten(1)  # [seen, rest], so that whole lines are copied and weighted
    seen = seen_index(axis, x.device)  # [out, taps]
    weights = profile.to(x.dtype)[phase_index(axis, x.device)]  # [out, taps, 1]
    y = lines.index_select(0, seen[:, 0]) * weights[:, 0]
    for tap in range(1, axis.taps):
        y = torch.addcmul(y, lines.index_select(0, seen[:, tap]), weights[:, tap])
    count(axis.taps * y.numel())
    return y.reshape(axis.out_size, *x.shape[1:]).movedim(0, dim)
