"""The four blocks of the paper, literally. It defines what is correct, on any device and dtype, and is slow."""

import torch
from torch import Tensor
from torch.nn import functional as F

from contconv.grid import phase_index, sources
from contconv.kernels import Kernel
from contconv.kernels.sampling import sampled_weights
from contconv.strategies.problem import Cost, Problem, biased


class Reference:
    """Block 1, the projected grid, is `problem.axes`."""

    name = "reference"

    def why_not(self, problem: Problem) -> list[str]:
        return []

    def cost(self, problem: Problem) -> Cost:
        padded = problem.batch * problem.in_channels * problem.inputs
        more = 3 if problem.training else 2
        weights = problem.taps * problem.weights
        neighbours = problem.batch * problem.in_channels * problem.taps
        return Cost(
            macs=(problem.batch * problem.outputs + problem.phases * problem.basis_functions) * weights
            + problem.sampling_macs,
            bytes=problem.width * (problem.outputs * (more * weights + (more + 1) * neighbours) + padded),
        )

    def engine(self, problem: Problem) -> str:
        return self.name

    def counts(self, problem: Problem) -> dict[str, float]:
        return {}

    def run(self, x: Tensor, kernel: Kernel, bias: Tensor | None, problem: Problem) -> Tensor:
        dtype = torch.promote_types(x.dtype, torch.float32)
        neighbours = extracted_neighbours(x.to(dtype), problem)
        weights = calculated_weights(kernel, problem).to(dtype)
        return biased(applied_weights(neighbours, weights, problem).to(x.dtype), bias)


def extracted_neighbours(x: Tensor, problem: Problem) -> Tensor:
    """Block 2: [N, Cin, *in] -> [N, Cin, *out, *taps]."""
    for number, axis in enumerate(problem.axes):
        source = sources(axis, problem.padding_mode, x.device)  # [out, taps]
        x = x.movedim(2 + 2 * number, -1)
        x = F.pad(x, (1, 0))  # so that source -1, plus one, is a zero
        x = x.index_select(-1, source.flatten() + 1).unflatten(-1, source.shape)
        x = x.movedim((-2, -1), (2 + 2 * number, 3 + 2 * number))  # [N, Cin, out, taps, ..., in, ...]
    axes = len(problem.axes)
    return x.movedim([3 + 2 * number for number in range(axes)], [2 + axes + number for number in range(axes)])


def calculated_weights(kernel: Kernel, problem: Problem) -> Tensor:
    """Block 3: [*out, *taps, Cout, Cin/groups], a filter for every output pixel."""
    weights = sampled_weights(kernel, problem.axes, problem.device)
    for number, axis in enumerate(problem.axes):
        weights = weights.index_select(number, phase_index(axis, problem.device))
    return weights


def applied_weights(neighbours: Tensor, weights: Tensor, problem: Problem) -> Tensor:
    """Block 4: multiply, and sum over neighbours and input channels. -> [N, Cout, *out]."""
    axes, groups = len(problem.axes), problem.groups
    neighbours = neighbours.flatten(2 + axes).flatten(2, 1 + axes)  # [N, Cin, out, taps]
    neighbours = neighbours.unflatten(1, (groups, problem.in_channels // groups))  # [N, groups, Cin/groups, out, taps]
    weights = weights.flatten(axes, 2 * axes - 1).flatten(0, axes - 1)  # [out, taps, Cout, Cin/groups]
    weights = weights.unflatten(
        2, (groups, problem.out_channels // groups)
    )  # [out, taps, groups, Cout/groups, Cin/groups]
    y = torch.einsum("ngipt,ptgoi->ngop", neighbours, weights)
    return y.flatten(1, 2).unflatten(-1, problem.out_size)
