"""Blocks of the output one after the other, recomputed in backward: bounded memory for any problem, at some time.

The paper's "clear memory": only the kernel's parameters are kept between forward and backward.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from contconv.grid import cut
from contconv.kernels import Kernel
from contconv.strategies.problem import Cost, Problem
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
        parts = [
            checkpoint(self.inner.run, x, kernel, bias, block, use_reentrant=False, preserve_rng_state=False)
            for block in blocks(problem, self.inner)
        ]
        return torch.cat([part.flatten(2) for part in parts], dim=2).unflatten(2, problem.out_size)


def blocks(problem: Problem, inner: Reference, limit: int = BLOCK_BYTES) -> Iterator[Problem]:
    """The problem cut into blocks of consecutive outputs that need at most `limit` bytes each, where one row can."""
    per_row = inner.cost(problem).bytes // max(1, problem.axes[0].out_size)
    rows = max(1, min(problem.axes[0].out_size, limit // max(1, per_row)))
    first, *rest = problem.axes
    for start in range(0, first.out_size, rows):
        yield replace(problem, axes=(cut(first, start, min(start + rows, first.out_size)), *rest))
