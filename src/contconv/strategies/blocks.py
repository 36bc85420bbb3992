"""A problem cut into blocks of images and output rows that need a bounded amount of memory each."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from contconv.grid import cut
from contconv.kernels import Kernel
from contconv.strategies.problem import Problem
from contconv.strategies.recompute import Piece, owns_its_inputs, recomputed
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
    count, height = len(x), problem.axes[0].out_size
    bands = [slice(start, min(start + images, count)) for start in range(0, count, max(1, images))] or [slice(0, 0)]
    steps = [slice(start, min(start + rows, height)) for start in range(0, height, rows)]
    return recomputed([[_piece(run, problem, band, step) for step in steps] for band in bands], kernel, x, bias)


def _piece(run: Run, problem: Problem, images: slice, rows: slice) -> Piece:
    part = block(problem, images.stop - images.start, rows.start, rows.stop)
    return Piece(images, rows, lambda kernel, x, bias: run(x, kernel, bias, part))


def _basis_and_mixing(kernel: Kernel, d: Tensor) -> tuple[Tensor, Tensor]:
    return kernel.basis(d.to(torch.promote_types(kernel.mixing.dtype, d.dtype))), kernel.mixing
