"""One filter per class of output pixels, applied to the whole class at once: the paper's "discrete convolutions".

A class is all output pixels with exactly equal displacements. At scale k/l every k-th output of an axis is of one
class, and its neighbours lie l pixels further each time, so a class is a slice; at a scale that never repeats, each
output is a class of its own and the batch is what shares a filter.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from contconv.kernels import Kernel
from contconv.kernels.sampling import sampled_weights
from contconv.strategies.engine import lane_waste, native_bytes, native_conv, sampled_anew, why_not_native
from contconv.strategies.interleaved_conv import interleaved_conv, waste
from contconv.strategies.phase_conv import phase_conv, rows_of_a_class
from contconv.strategies.problem import Cost, Problem, biased

MOST_WASTE = 3.0  # up to which one wide convolution in PyTorch beats a loop over classes


@dataclass(frozen=True)
class Phases:
    """`native=False` keeps to PyTorch even where the native kernel would serve."""

    native: bool = True
    name: ClassVar[str] = "phases"

    def why_not(self, problem: Problem) -> list[str]:
        return []

    def cost(self, problem: Problem) -> Cost:
        filters = problem.phases * problem.taps * problem.weights
        made = problem.basis_functions * filters + problem.sampling_macs
        macs = problem.macs + made
        if self._native(problem):
            return Cost(macs, native_bytes(problem, "filters"))
        if waste(problem) <= MOST_WASTE:
            wide = waste(problem)
            return Cost(
                round(wide * problem.macs) + made,
                max(problem.dtype.itemsize, 4) * (int((1 + wide) * filters) + problem.pixels),
            )
        last = problem.axes[-1].out_size * problem.taps
        gathered = problem.batch * problem.in_channels * (problem.inputs + last * rows_of_a_class(problem))
        return Cost(macs, max(problem.dtype.itemsize, 4) * (2 * filters + last * problem.weights + gathered))

    def engine(self, problem: Problem) -> str:
        if self._native(problem):
            return "phases/native"
        return "phases/interleaved" if waste(problem) <= MOST_WASTE else "phases/torch"

    def counts(self, problem: Problem) -> dict[str, float]:
        filters = problem.phases * problem.taps * problem.weights
        counts = {
            "call": 1.0,
            "macs": problem.macs,
            "pixels": problem.pixels,
            "filters": filters,
            "generated": problem.basis_functions * filters,
        }
        if self._native(problem):
            along_output = lane_waste(problem.out_channels // problem.groups)
            along_input = lane_waste(problem.in_channels // problem.groups)
            # Lanes are output channels, but for the gradient of x: a third of the training.
            counts["macs"] *= (2 * along_output + along_input) / 3 if problem.training else along_output
            counts["generated"] *= along_output
            if not problem.training:
                counts["sampled"] = sampled_anew(problem, "filters")
        elif waste(problem) <= MOST_WASTE:
            counts["macs"] *= waste(problem)
        else:
            leading = problem.axes[:-1]
            counts["rows"] = math.prod(axis.phases * axis.taps for axis in leading)
            counts["gathered"] = problem.batch * problem.outputs * problem.taps * problem.in_channels
            counts["columns"] = counts["rows"] * problem.axes[-1].out_size * problem.axes[-1].taps * problem.weights
        return counts

    def _native(self, problem: Problem) -> bool:
        return self.native and not why_not_native(problem)

    def run(self, x: Tensor, kernel: Kernel, bias: Tensor | None, problem: Problem) -> Tensor:
        if self._native(problem):
            return native_conv(x, kernel, bias, problem, "filters")
        dtype = torch.promote_types(x.dtype, torch.float32)
        weights = sampled_weights(kernel, problem.axes, problem.device)  # [*phases, *taps, Cout, Cin/groups]
        apply = interleaved_conv if waste(problem) <= MOST_WASTE else phase_conv
        return biased(apply(x.to(dtype), weights.to(dtype), problem).to(x.dtype), bias)
