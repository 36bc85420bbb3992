"""Classes of output pixels as batches of matrices, in plain PyTorch: what they see, and where their results go.

All outputs with the same displacements have one filter. Along an axis they lie evenly spaced, and so do their
neighbours; outputs of neighbouring phases lie side by side. A `Block` is some neighbouring phases of an axis that have
equally many outputs; a `Class` is a block of every axis. It is computed at once, as B matrices, one for each of its
filters: [B*g, M, T*Ci] of what they see and [B*g, M, Co] of what that becomes, where M are the images and the steps.
In memory, filters or rows come first, as the products want it (`products.py`).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product

from torch import Tensor

from contconv.grid import Axis
from contconv.strategies.problem import Problem

PIECE_BYTES = 4 * 2**20  # of what is seen, so that it stays in the cache and its memory is used again and again
FILTER_BYTES = 2 * 2**20  # of the filters of several rows, so that they stay in the cache, too


@dataclass(frozen=True)
class Block:
    """Some neighbouring phases of an axis, and all outputs of each."""

    axis: Axis
    phase: int  # the first
    phases: int
    steps: int  # outputs of each

    @property
    def count(self) -> int:
        """Outputs."""
        return self.steps * self.phases

    @property
    def begin(self) -> int:
        """Of the seen pixels, the one at the first tap of the first output."""
        return self.axis.first[self.phase] - self.axis.first[0]

    @cached_property
    def starts(self) -> tuple[tuple[int, ...], ...]:
        """[steps][phases] the seen pixel at the first tap of each output, counted from the first one's."""
        first, every = self.axis.first[self.phase :], self.axis.phases
        return tuple(
            tuple(first[step * every + phase] - first[0] for phase in range(self.phases)) for step in range(self.steps)
        )

    def of_outputs(self, y: Tensor, dim: int) -> Tensor:
        """A view of these outputs along a dimension: [..., steps, ..., phases]."""
        every = self.axis.phases
        return y.narrow(dim, self.phase, (self.steps - 1) * every + self.phases).unfold(dim, self.phases, every)


@dataclass(frozen=True)
class Class:
    """A block of every axis."""

    blocks: tuple[Block, ...]

    @cached_property
    def phases(self) -> tuple[slice, ...]:
        """Of basis or filters, [*phases, ...]."""
        return tuple(slice(block.phase, block.phase + block.phases) for block in self.blocks)

    @cached_property
    def filters(self) -> int:
        """How many."""
        return math.prod(block.phases for block in self.blocks)

    @cached_property
    def outputs(self) -> int:
        """Of one image."""
        return math.prod(block.count for block in self.blocks)

    def pieces(self, problem: Problem) -> "Iterator[Piece]":
        images = max(1, PIECE_BYTES // _seen_bytes(problem, self.outputs))
        for start in range(0, problem.batch, images):
            yield Piece(self, problem, slice(start, min(start + images, problem.batch)))


@dataclass(frozen=True)
class Piece:
    """Images of a class that are computed at once."""

    one: Class
    problem: Problem
    images: slice

    @property
    def rows(self) -> int:
        """Outputs of each filter."""
        return (self.images.stop - self.images.start) * self.one.outputs // self.one.filters

    def of_outputs(self, y: Tensor) -> Tensor:
        """A view of y [N, *out, Cout]: [*phases, g, images, *steps, Co]."""
        part, axes = y[self.images], len(self.one.blocks)
        for number, block in enumerate(self.one.blocks, start=1):
            part = block.of_outputs(part, number)
        part = part.unflatten(1 + axes, (self.problem.groups, -1))  # [images, *steps, g, Co, *phases]
        return part.permute(*range(3 + axes, 3 + 2 * axes), 1 + axes, *range(1 + axes), 2 + axes)


def classes(problem: Problem) -> tuple[Class, ...]:
    """All of a problem's."""
    filter_bytes = problem.taps * problem.weights * problem.width
    outputs = PIECE_BYTES // _seen_bytes(problem, max(1, problem.batch))
    return _classes(problem.axes, max(1, FILTER_BYTES // filter_bytes), outputs)


@lru_cache(maxsize=1024)
def _classes(axes: tuple[Axis, ...], most: int, outputs: int) -> tuple[Class, ...]:
    """With at most so many filters, if several rows are computed at once, and so many outputs of an image, if those are
    rows side by side: fewer filters for all images are better than more for some, but the rows of a phase that comes
    again reach over the whole image, and each class passes over what it reaches."""
    *leading, last = axes
    found = []
    for columns in blocks(last, last.phases):
        together = most // columns.phases
        if leading and leading[-1].phases == leading[-1].out_size:
            together = min(together, outputs // columns.count)
        others = [
            blocks(axis, max(1, together) if number == len(leading) else 1)
            for number, axis in enumerate(leading, start=1)
        ]
        found += [Class((*some, columns)) for some in product(*others)]
    return tuple(found)


def blocks(axis: Axis, most: int) -> list[Block]:
    """All phases of an axis, at most so many in a block."""
    steps, longer = divmod(axis.out_size, axis.phases)  # the first ones may have one output more
    return [
        Block(axis, phase, min(most, stop - phase), count)
        for start, stop, count in ((0, longer, steps + 1), (longer, axis.phases, steps))
        for phase in range(start, stop, most)
    ]


def most_filters(problem: Problem) -> int:
    """Of a class."""
    return max(one.filters for one in classes(problem))


def piece_bytes(problem: Problem) -> int:
    """What the largest piece sees."""
    image = max(_seen_bytes(problem, one.outputs) for one in classes(problem))
    return min(max(PIECE_BYTES, image), problem.batch * image)


def _seen_bytes(problem: Problem, outputs: int) -> int:
    """By so many outputs of one image."""
    return outputs * problem.taps * problem.in_channels * problem.width


def filters(weights: Tensor, problem: Problem) -> Tensor:
    """[*phases, *taps, g, Ci, Co] of a class -> [B*g, T*Ci, Co]."""
    axes = len(problem.axes)
    weights = weights.flatten(axes, 2 * axes - 1).flatten(0, axes - 1)
    return weights.movedim(2, 1).flatten(2, 3).flatten(0, 1)


def over_phases(own: Tensor, one: Class, problem: Problem) -> Tensor:
    """The transpose of `filters`: [B*g, T*Ci, Co] -> [*phases, *taps, g, Ci, Co]."""
    axes = len(one.blocks)
    phases, taps = zip(*((block.phases, block.axis.taps) for block in one.blocks), strict=True)
    return own.view(*phases, problem.groups, *taps, -1, own.shape[-1]).movedim(axes, 2 * axes)
