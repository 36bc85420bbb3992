"""Contract the basis and the mixing one after the other and never form a filter: memory without Cout * Cin per pixel.

At the output:  z[r] = sum over taps of basis_r * x     then  y = z . mixing     R Cin (T + Cout) multiply-adds
At the input:   u[r] = mixing_r . x, per input pixel    then  y = sum over taps and r of basis_r * u[r]
                                                              R Cout (T + Cin in/out) multiply-adds
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from contconv.kernels import Kernel
from contconv.strategies.blocks import block, block_sizes, macs_in_blocks, run_in_blocks
from contconv.strategies.contraction import (
    begins_at_output,
    contracted,
    contracted_bytes,
    contracted_macs,
)
from contconv.strategies.engine import (
    few_output_lanes,
    inputs_seen,
    lane_waste,
    native_bytes,
    native_conv,
    plan_of,
    sampled_anew,
    why_not_native,
)
from contconv.strategies.problem import Cost, Problem

BLOCK_BYTES = 64 * 2**20
FEW_OUTPUTS = 8
MOST_WASTE = 2.0  # of lanes, where either channels or basis functions may fill them


@dataclass(frozen=True)
class Factored:
    """`native=False` keeps to PyTorch even where the native kernel would serve."""

    native: bool = True
    name: ClassVar[str] = "factored"

    def why_not(self, problem: Problem) -> list[str]:
        if problem.per_tap:
            return ["the kernel has one mixing per tap, which leaves nothing to factor out"]
        return []

    def cost(self, problem: Problem) -> Cost:
        if self._native(problem):
            algorithm = self._algorithm(problem)
            at_output = algorithm == "factored-output"
            again = 0 if at_output else inputs_seen(problem, algorithm) - problem.inputs
            macs = macs_at_output(problem) if at_output else macs_at_input(problem)
            macs += again * problem.batch * problem.basis_functions * problem.weights
            in_place = plan_of(problem, algorithm).in_place
            macs += problem.basis_macs * problem.outputs * problem.taps if in_place else problem.sampling_macs
            return Cost(macs, native_bytes(problem, algorithm))
        images, rows = sizes = block_sizes(problem, contracted_bytes, BLOCK_BYTES)
        whole = sizes == (problem.batch, problem.axes[0].out_size)
        macs = contracted_macs(problem) if whole else macs_in_blocks(problem, contracted_macs, sizes)
        return Cost(macs, contracted_bytes(block(problem, images, 0, rows)))

    def engine(self, problem: Problem) -> str:
        return f"{self._algorithm(problem)}/{'native' if self._native(problem) else 'torch'}"

    def counts(self, problem: Problem) -> dict[str, float]:
        at_output = self._algorithm(problem) == "factored-output"
        channels, mixed = (
            (problem.in_channels, problem.outputs) if at_output else (problem.out_channels, problem.inputs)
        )
        functions = problem.batch * problem.basis_functions
        counts = {
            "call": 1.0,
            "spread": functions * problem.outputs * channels * problem.taps,
            "mixed": functions * mixed * problem.weights,
            "pixels": problem.pixels,
            "basis": problem.phases * problem.taps * problem.basis_functions,
        }
        if self._native(problem):
            if _has_few_outputs(problem):
                lanes = problem.batch * few_output_lanes(problem.basis_functions, problem.out_channels)
                counts["spread"] = lanes * problem.outputs * problem.taps
                counts["mixed"] = lanes * problem.inputs * problem.in_channels
            else:
                turned = problem.groups == 1 and at_output  # lanes are functions then, where channels are few
                counts["spread"] *= min(MOST_WASTE if turned else math.inf, lane_waste(channels // problem.groups))
                counts["mixed"] *= lane_waste(problem.out_channels // problem.groups)
            if problem.training and problem.net:  # the gradient of the basis, which others have none of
                counts["learned"] = counts["spread"]
            if plan_of(problem, self._algorithm(problem)).in_place:
                del counts["basis"]
                counts["basis in place"] = problem.outputs * problem.taps * problem.basis_functions
            if not problem.training:
                counts["sampled"] = sampled_anew(problem, self._algorithm(problem))
        else:
            gathered = problem.batch * problem.outputs * problem.taps * channels
            counts["gathered"] = gathered if at_output else gathered * problem.basis_functions
        return counts

    def run(self, x: Tensor, kernel: Kernel, bias: Tensor | None, problem: Problem) -> Tensor:
        if self._native(problem):
            return native_conv(x, kernel, bias, problem, self._algorithm(problem))
        sizes = block_sizes(problem, contracted_bytes, BLOCK_BYTES)
        if sizes == (problem.batch, problem.axes[0].out_size):
            return contracted(x, kernel, bias, problem)
        return run_in_blocks(contracted, x, kernel, bias, problem, sizes)

    def _native(self, problem: Problem) -> bool:
        return self.native and not why_not_native(problem)

    def _algorithm(self, problem: Problem) -> str:
        """The native kernel takes as long as its multiply-adds, PyTorch as long as what it moves. In training a basis
        that is stored nowhere is worth more: most multiply-adds are those of the way back, the same at either end."""
        if self._native(problem):
            if _has_few_outputs(problem):
                return "few-outputs"
            unstored = plan_of(problem, "factored-output").in_place
            at_output = unstored or macs_at_output(problem) <= macs_at_input(problem)
        else:
            at_output = begins_at_output(problem)
        return "factored-output" if at_output else "factored-input"


def _has_few_outputs(problem: Problem) -> bool:
    """Whether basis functions should be the native kernel's lanes, at the input, because output channels fill few. That
    keeps mixed inputs, which is not for those who want to save memory."""
    free = problem.groups == 1 and problem.memory_limit is None
    return free and problem.out_channels <= min(FEW_OUTPUTS, problem.in_channels)


def macs_at_output(problem: Problem) -> int:
    per_output = problem.in_channels * problem.taps + problem.weights
    return problem.batch * problem.outputs * problem.basis_functions * per_output


def macs_at_input(problem: Problem) -> int:
    per_output = problem.outputs * problem.out_channels * problem.taps + problem.inputs * problem.weights
    return problem.batch * problem.basis_functions * per_output
