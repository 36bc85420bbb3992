"""Blocks of the output one after the other, recomputed in backward: bounded memory for any problem, at some time.

The paper's "clear memory": only the kernel's parameters are kept between forward and backward.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from contconv.grid import cut
from contconv.kernels import Kernel
from contconv.strategies.problem import Cost, Problem
from contconv.strategies.recompute import recomputed
from contconv.strategies.reference import Reference

BLOCK_BYTES = 64 * 2**20


class Chunked:
    name = "chunked"
    inner = Reference()

    def why_not(self, problem: Problem) -> list[str]:
        return []

    def cost(self, problem: Problem) -> Cost:
        block = next(blocks(problem, self.inner))
        return Cost(macs=self.inner.cost(problem).macs, bytes=self.inner.cost(block).bytes)

    def run(self, x: Tensor, kernel: Kernel, bias: Tensor | None, problem: Problem) -> Tensor:
        parts = []
        for block in blocks(problem, self.inner):

            def run(module: Kernel, x: Tensor, bias: Tensor | None, block: Problem = block) -> Tensor:
                return self.inner.run(x, module, bias, block)

            parts.append(recomputed(run, kernel, x, bias))
        return torch.cat(parts, dim=2)


def blocks(problem: Problem, inner: Reference, limit: int = BLOCK_BYTES) -> Iterator[Problem]:
    """The problem cut along its first axis into blocks of at most `limit` bytes, or of one row."""
    first, *rest = problem.axes
    per_row = inner.cost(problem).bytes // first.out_size
    rows = max(1, min(first.out_size, limit // max(1, per_row)))
    for start in range(0, first.out_size, rows):
        yield replace(problem, axes=(cut(first, start, min(start + rows, first.out_size)), *rest))
