"""One filter per class of output pixels, applied to the whole class at once: the paper's "discrete convolutions".

A class is all output pixels with exactly equal displacements. At scale k/l every k-th output of an axis is of one
class, and its neighbours lie l pixels further each time, so a class is a slice; at a scale that never repeats, each
output is a class of its own and the batch is what shares a filter.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from contconv.kernels import Kernel
from contconv.kernels.memory import MOST_BYTES
from contconv.kernels.sampling import sampled_basis, sampled_weights
from contconv.strategies.classes import classes, most_filters, piece_bytes
from contconv.strategies.engine import lane_waste, native_bytes, native_conv, plan_of, sampled_anew, why_not_native
from contconv.strategies.interleaved_conv import interleaved_conv, waste
from contconv.strategies.passing_filters import conv_with_passing_filters
from contconv.strategies.phase_conv import phase_conv
from contconv.strategies.problem import Cost, Problem, biased
from contconv.transforms import forward_mode, traced, transformed

MOST_WASTE = 3.0  # up to which one wide convolution in PyTorch beats a loop over classes


def filters_pass(problem: Problem) -> bool:
    """Whether plain PyTorch makes filters class by class: where they are used once, or are too many to be kept."""
    many = 4 * problem.phases * problem.taps * problem.weights > MOST_BYTES
    return waste(problem) > MOST_WASTE and not problem.per_tap and (problem.training or many)


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
        answers = problem.batch * problem.out_channels * problem.outputs
        if waste(problem) <= MOST_WASTE:
            wide = waste(problem)
            numbers = int((1 + wide) * filters) + problem.pixels + answers  # interleaved, and not yet
            return Cost(round(wide * problem.macs) + made, problem.width * numbers)
        of_a_class = most_filters(problem) * problem.taps * problem.weights
        kept = of_a_class if filters_pass(problem) else filters
        basis = problem.phases * problem.taps * problem.basis_functions
        numbers = 2 * kept + of_a_class + problem.batch * problem.in_channels * problem.inputs + basis
        piece = piece_bytes(problem)
        pieces = 2  # what is seen, and its gradient
        if problem.groups > 1:  # in their order, once more
            pieces += 1
            numbers += 2 * of_a_class
        indices = 24 * piece // (problem.width * problem.in_channels // problem.groups)
        needed = pieces * piece + indices
        if problem.training:
            numbers += basis
            needed += piece // problem.taps * (problem.in_channels + problem.out_channels) // problem.in_channels
        return Cost(macs, problem.width * numbers + needed)

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
            plan = plan_of(problem, "filters")
            counts["classes, all at once" if plan.filters else "classes"] = problem.phases
            if problem.training:
                numbers = problem.phases * problem.taps * problem.basis_functions
                counts["basis in place" if plan.in_place else "basis"] = numbers
                if problem.net:  # the gradient of the basis, which others have none of
                    counts["learned"] = counts["generated"]
            else:
                counts["sampled"] = sampled_anew(problem, "filters")
        elif waste(problem) <= MOST_WASTE:
            counts["macs"] *= waste(problem)
        else:
            counts["classes"] = len(classes(problem))
            counts["gathered"] = problem.batch * problem.outputs * problem.taps * problem.in_channels
        return counts

    def _native(self, problem: Problem) -> bool:
        return self.native and not why_not_native(problem)

    def run(self, x: Tensor, kernel: Kernel, bias: Tensor | None, problem: Problem) -> Tensor:
        if self._native(problem):
            return native_conv(x, kernel, bias, problem, "filters")
        dtype = torch.promote_types(x.dtype, torch.float32)
        if filters_pass(problem) and not (transformed() or forward_mode() or traced()):
            basis = sampled_basis(kernel, problem.axes, problem.device)
            y = conv_with_passing_filters(x.to(dtype), basis.to(dtype), kernel.mixing.to(dtype), problem)
            return biased(y.to(x.dtype), bias)
        weights = sampled_weights(kernel, problem.axes, problem.device)  # [*phases, *taps, Cout, Cin/groups]
        apply = interleaved_conv if waste(problem) <= MOST_WASTE else phase_conv
        return biased(apply(x.to(dtype), weights.to(dtype), problem).to(x.dtype), bias)
