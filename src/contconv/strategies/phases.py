"""One filter per class of output pixels, applied to the whole class at once: the paper's "discrete convolutions".

A class is all output pixels with exactly equal displacements. At scale k/l every k-th output of an axis is of one
class, and its neighbours lie l pixels further each time, so a class is a slice; at a scale that never repeats, each
output is a class of its own and the batch is what shares a filter.
"""

import torch
from torch import Tensor

from contconv.kernels import Kernel
from contconv.kernels.sampling import sampled_weights
from contconv.strategies.engine import native_conv, why_not_native
from contconv.strategies.phase_conv import phase_conv
from contconv.strategies.problem import Cost, Problem, biased


class Phases:
    name = "phases"

    def why_not(self, problem: Problem) -> list[str]:
        return []

    def cost(self, problem: Problem) -> Cost:
        weights = problem.taps * problem.weights
        columns = problem.axes[-1].out_size * weights
        row = problem.batch * problem.in_channels * problem.taps * problem.axes[-1].out_size
        return Cost(
            macs=(problem.batch * problem.outputs + problem.phases * problem.basis_functions) * weights,
            bytes=problem.dtype.itemsize
            * (problem.phases * weights + columns + problem.batch * problem.in_channels * problem.inputs + row),
        )

    def run(self, x: Tensor, kernel: Kernel, bias: Tensor | None, problem: Problem) -> Tensor:
        if not why_not_native(problem):
            return native_conv(x, kernel, bias, problem, "filters")
        dtype = torch.promote_types(x.dtype, torch.float32)
        weights = sampled_weights(kernel, problem.axes, problem.device)  # [*phases, *taps, Cout, Cin/groups]
        return biased(phase_conv(x.to(dtype), weights.to(dtype), problem).to(x.dtype), bias)
