"""A problem cut into blocks of images and output rows that need a bounded amount of memory each."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from contconv.grid import cut
from contconv.kernels import Kernel
from contconv.strategies.problem import Problem
from contconv.strategies.recompute import owns_its_inputs, recomputed
from contconv.transforms import forward_mode, transformed

Run = Callable[[Tensor, Kernel, Tensor | None, Problem], Tensor]


def block_sizes(problem: Problem, needed: Callable[[Problem], int], limit: int) -> tuple[int, int]:
    """The images and the output rows of a block that needs at most `limit` bytes, or one row of one image.

    Rows are doubled first, and images once a block has all the rows: whole images share the most.
    """
    images, rows = min(1, problem.batch), 1
    height = problem.axes[0].out_size
    while rows < height and needed(block(problem, images, 0, 2 * rows)) <= limit:
        rows = min(2 * rows, height)
    while rows == height and images < problem.batch and needed(block(problem, 2 * images, 0, rows)) <= limit:
        images = min(2 * images, problem.batch)
    return images, rows


def block(problem: Problem, images: int, start: int, stop: int) -> Problem:
    """The problem of so many images, and of the output rows start ... stop - 1 alone."""
    first, *rest = problem.axes
    return replace(problem, batch=images, axes=(cut(first, start, min(stop, first.out_size)), *rest))


def macs_in_blocks(problem: Problem, macs: Callable[[Problem], int], sizes: tuple[int, int]) -> int:
    """The multiply-adds of `run_in_blocks`: every block samples the kernel anew, and one displacement is a probe."""
    images, rows = sizes
    whole, rest = divmod(problem.batch, images) if images else (0, 0)
    total = problem.basis_macs
    for start in range(0, problem.axes[0].out_size, rows):
        total += whole * macs(block(problem, images, start, start + rows))
        total += macs(block(problem, rest, start, start + rows)) if rest or not images else 0
    return total


def run_in_blocks(
    run: Run, x: Tensor, kernel: Kernel, bias: Tensor | None, problem: Problem, sizes: tuple[int, int]
) -> Tensor:
    """`run` on one block after the other, each forgotten until backward needs it.

    A kernel that reads tensors of others (of a net that steers it) cannot be forgotten: they would get no gradient.
    """
    images, rows = sizes
    probe = x.new_zeros(1, len(problem.axes), dtype=torch.float32)
    if not (transformed() or forward_mode()) and not owns_its_inputs(kernel, _basis_and_mixing, probe):
        return run(x, kernel, bias, problem)
    parts = x.split(images) if images else (x,)
    return torch.cat([torch.cat(list(_rows(run, part, kernel, bias, problem, rows)), dim=2) for part in parts])


def _basis_and_mixing(kernel: Kernel, d: Tensor) -> tuple[Tensor, Tensor]:
    return kernel.basis(d.to(torch.promote_types(kernel.mixing.dtype, d.dtype))), kernel.mixing


def _rows(run: Run, x: Tensor, kernel: Kernel, bias: Tensor | None, problem: Problem, rows: int) -> Iterator[Tensor]:
    for start in range(0, problem.axes[0].out_size, rows):
        part = block(problem, x.shape[0], start, start + rows)

        def call(module: Kernel, x: Tensor, bias: Tensor | None, part: Problem = part) -> Tensor:
            return run(x, module, bias, part)

        yield recomputed(call, kernel, x, bias)
