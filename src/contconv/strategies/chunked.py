"""Blocks of images and rows one after the other, recomputed in backward: bounded memory for any problem, at some time.

The paper's "clear memory": only the arguments are kept between forward and backward.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from contconv.kernels import Kernel
from contconv.strategies.blocks import block, block_sizes, macs_in_blocks, run_in_blocks
from contconv.strategies.problem import Cost, Problem, Strategy

DEFAULT_LIMIT = 64 * 2**20


@dataclass(frozen=True)
class Chunked:
    """`inner` computes the blocks."""

    inner: Strategy
    name: ClassVar[str] = "chunked"

    def why_not(self, problem: Problem) -> list[str]:
        reasons = [f"{self.inner.name}: {reason}" for reason in self.inner.why_not(problem)]
        least = self._needed(block(problem, min(1, problem.batch), 0, 1))
        if problem.memory_limit is not None and least > problem.memory_limit:
            reasons.append(f"memory_limit={problem.memory_limit} is less than the {least} bytes that one row needs")
        return reasons

    def cost(self, problem: Problem) -> Cost:
        images, rows = sizes = self._sizes(problem)
        macs = macs_in_blocks(problem, lambda part: self.inner.cost(part).macs, sizes)
        return Cost(macs, self._needed(block(problem, images, 0, rows)))

    def engine(self, problem: Problem) -> str:
        return self.name

    def counts(self, problem: Problem) -> dict[str, float]:
        return {}

    def run(self, x: Tensor, kernel: Kernel, bias: Tensor | None, problem: Problem) -> Tensor:
        return run_in_blocks(self.inner.run, x, kernel, bias, problem, self._sizes(problem))

    def _sizes(self, problem: Problem) -> tuple[int, int]:
        limit = DEFAULT_LIMIT if problem.memory_limit is None else problem.memory_limit
        return block_sizes(problem, self._needed, limit)

    def _needed(self, part: Problem) -> int:
        """By a block: its output, and on the way back its gradients, are besides those of the whole."""
        numbers = part.batch * part.out_channels * part.outputs
        if part.training:
            numbers += part.pixels + part.basis_functions * part.weights
        return self.inner.cost(part).bytes + part.width * numbers
