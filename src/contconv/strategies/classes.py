"""Classes of output pixels as batches of matrices, in plain PyTorch: what they see, and where their results go.

All outputs with the same displacements have one filter. Along an axis they lie evenly spaced, and so do their
neighbours; outputs of neighbouring phases lie side by side. A `Block` is some neighbouring phases of an axis that have
equally many outputs, in the order they have in memory, [steps, phases]; a `Class` is a block of every axis. It is
computed at once, as B matrices, one for each of its filters: [M, B*g, T*Ci] of what they see and [M, B*g, Co] of what
that becomes, where M are the images and the steps.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional as F

from contconv.grid import Axis
from contconv.strategies.problem import Problem
from contconv.strategies.products import Desk, applied
from contconv.transforms import unobserved

PIECE_BYTES = 8 * 2**20  # of what is seen, so that it stays in the cache and its memory is used again and again
KEPT_ENTRIES = 2**19  # of an index that is kept from call to call
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
    def step(self) -> int:
        """Seen pixels from an output to the next of its phase."""
        first, every = self.axis.first, self.axis.phases
        return first[self.phase + every] - first[self.phase] if self.steps > 1 else 1

    def first(self, number: int) -> int:
        """Of the seen pixels, the one at the first tap of the first output of the block's phase of that number."""
        return self.axis.first[self.phase + number] - self.axis.first[0]

    def seen(self, number: int, tap: int) -> slice:
        """Of the seen pixels, those that the outputs of a phase read at a tap."""
        start = self.first(number) + tap
        return slice(start, start + self.step * (self.steps - 1) + 1, self.step)

    def of_outputs(self, y: Tensor, dim: int) -> Tensor:
        """A view of these outputs along a dimension: [..., steps, ..., phases]."""
        every = self.axis.phases
        return y.narrow(dim, self.phase, (self.steps - 1) * every + self.phases).unfold(dim, self.phases, every)


@dataclass(frozen=True)
class Class:
    """A block of every axis. After a block of several phases all others have one step, so that a view can have all
    steps before all phases."""

    blocks: tuple[Block, ...]

    @property
    def phases(self) -> tuple[slice, ...]:
        """Of basis or filters, [*phases, ...]."""
        return tuple(slice(block.phase, block.phase + block.phases) for block in self.blocks)

    @property
    def filters(self) -> int:
        """How many."""
        return math.prod(block.phases for block in self.blocks)

    @property
    def leading_shape(self) -> list[int]:
        """Steps and phases of all axes but the last."""
        return [size for block in self.blocks[:-1] for size in (block.steps, block.phases)]

    def pieces(self, problem: Problem) -> Iterator[slice]:
        """Images that are computed at once."""
        images = max(1, PIECE_BYTES // _seen_bytes(problem, math.prod(block.count for block in self.blocks)))
        for start in range(0, problem.batch, images):
            yield slice(start, min(start + images, problem.batch))

    def of_outputs(self, y: Tensor, images: slice) -> Tensor:
        """A view of y [N, *out, Cout]: [images, *(steps, phases), Cout]."""
        part, axes = y[images], len(self.blocks)
        for number, block in enumerate(self.blocks, start=1):
            part = block.of_outputs(part, number)
        order = [dim for number in range(axes) for dim in (1 + number, 2 + axes + number)]
        return part.permute(0, *order, 1 + axes)


def classes(problem: Problem) -> tuple[Class, ...]:
    """All of a problem's."""
    filter_bytes = problem.taps * problem.weights * max(problem.dtype.itemsize, 4)
    return _classes(problem.axes, max(1, FILTER_BYTES // filter_bytes))


@lru_cache(maxsize=1024)
def _classes(axes: tuple[Axis, ...], most: int) -> tuple[Class, ...]:
    """With at most so many filters, if several rows are computed at once."""
    *leading, last = axes
    found = []
    for columns in blocks(last, last.phases):
        # Rows of several phases can be computed at once where every column has a phase of its own.
        together = max(1, most // columns.phases) if columns.steps == 1 else 1
        others = [
            blocks(axis, together if number == len(leading) else 1) for number, axis in enumerate(leading, start=1)
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
    image = max(_seen_bytes(problem, math.prod(block.count for block in one.blocks)) for one in classes(problem))
    return min(max(PIECE_BYTES, image), problem.batch * image)


def _seen_bytes(problem: Problem, outputs: int) -> int:
    """By so many outputs of one image."""
    return outputs * problem.taps * problem.in_channels * max(problem.dtype.itemsize, 4)


def windows(pixels: Tensor, one: Class, images: slice, problem: Problem, desk: Desk) -> Tensor:
    """pixels: [N, *seen, Cin] contiguous -> [M, B*g, T*Ci] what every output of a class sees."""
    *leading, last = one.blocks
    groups, part = problem.groups, pixels[images]
    along, *strides, column, _ = part.stride()
    taps = [block.axis.taps for block in leading]
    wide = last.axis.taps * problem.in_channels
    seen = desk.sheet("windows", len(part), *one.leading_shape, last.count, *taps, wide)
    where = _columns(last, pixels.device)
    for numbers in product(*(range(block.phases) for block in leading)):
        # The taps of a line lie side by side, so that a window is one run of memory for each line, whatever its column.
        overlapping = part.as_strided(
            (len(part), *(block.steps for block in leading), part.shape[-2] - last.axis.taps + 1, *taps, wide),
            (along, *(b.step * s for b, s in zip(leading, strides, strict=True)), column, *strides, 1),
            part.storage_offset() + sum(b.first(n) * s for b, n, s in zip(leading, numbers, strides, strict=True)),
        )
        torch.index_select(overlapping, 1 + len(leading), where, out=seen[_of_phases(numbers)])
    if groups > 1:
        seen = seen.reshape(-1, one.filters, problem.taps, groups, problem.in_channels // groups).transpose(2, 3)
    return seen.reshape(-1, one.filters * groups, problem.taps * problem.in_channels // groups)


def add_windows(seen: Tensor, to: Tensor, one: Class, images: slice, problem: Problem) -> None:
    """The transpose of `windows`: [M, B*g, T*Ci] added to what they were taken from, [N, *seen, Cin]."""
    *leading, last = one.blocks
    taps = [block.axis.taps for block in leading]
    rows = seen.shape[0] * seen.shape[1] // (last.count * problem.groups)
    small = seen.numel() // (problem.in_channels // problem.groups) <= KEPT_ENTRIES
    own = (_landing if small else _landing.__wrapped__)(last, problem.groups, rows, math.prod(taps), seen.device)
    sums = F.embedding_bag(own.where, seen.view(-1, problem.in_channels // problem.groups), own.begin, mode="sum")
    sums = sums.view(-1, *one.leading_shape, *taps, own.width, to.shape[-1])
    whole, part = slice(None), to[images]
    for numbers in product(*(range(block.phases) for block in leading)):
        of_phase = sums[_of_phases(numbers)]
        for tap in product(*map(range, taps)):
            reads = (whole, *(b.seen(n, t) for b, n, t in zip(leading, numbers, tap, strict=True)))
            part[(*reads, slice(own.width))].add_(of_phase[(whole,) * (1 + len(tap)) + tap])


def _of_phases(numbers: tuple[int, ...]) -> tuple[int | slice, ...]:
    """Of [images, *(steps, phases), ...] along the leading axes, all images and steps of one phase of each."""
    return (slice(None), *(index for number in numbers for index in (slice(None), number)))


@lru_cache(maxsize=4096)
def _columns(block: Block, device: torch.device) -> Tensor:
    """[steps * phases] the first seen pixel of each output."""
    with unobserved():
        own = torch.tensor([block.first(number) for number in range(block.phases)])
        return (torch.arange(block.steps)[:, None] * block.step + own).flatten().to(device)


@dataclass(frozen=True)
class Landing:
    """What of the windows of outputs [rows, J*g, lines, taps] lies on a seen pixel of each row and line, in order."""

    where: Tensor  # [rows*lines*J*g*taps] of the windows
    begin: Tensor  # [rows*lines*width*g] the first of those on each pixel
    width: int  # of the seen pixels, how many may have some


@lru_cache(maxsize=32)  # equal for all pieces of a problem, or nearly so
def _landing(block: Block, groups: int, rows: int, lines: int, device: torch.device) -> Landing:
    with unobserved():
        taps = block.axis.taps
        pixel = _columns(block, torch.device("cpu"))[:, None] + torch.arange(taps)  # [J, taps]
        seen = (pixel[:, None] * groups + torch.arange(groups)[:, None]).flatten()  # [J, g, taps]
        order, count = seen.argsort(stable=True), seen.bincount()
        order, count = order.int(), count.int()
        line = torch.arange(rows * lines, dtype=torch.int32)[:, None]
        row = line // lines * (block.count * groups * lines) + line % lines
        where = (row + order // taps * lines) * taps + order % taps
        begin = line * len(order) + (count.cumsum(0, dtype=torch.int32) - count)
        return Landing(where.flatten().to(device), begin.flatten().to(device), width=int(pixel.max()) + 1)


def convolved(
    pixels: Tensor, problem: Problem, weights_of: Callable[[Class], Tensor], desk: Desk | None = None
) -> Tensor:
    """[N, *seen, Cin] -> [N, *out, Cout], each class by its weights [*phases, *taps, g, Ci, Co]."""
    desk = desk or Desk(pixels)
    y = pixels.new_empty(problem.batch, *problem.out_size, problem.out_channels)
    for one in classes(problem):
        own = filters(weights_of(one), problem)
        for images in one.pieces(problem):
            part = one.of_outputs(y, images)
            part.copy_(applied(windows(pixels, one, images, problem, desk), own, desk).reshape(part.shape))
    return y


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


def matrices(y: Tensor, one: Class, images: slice, problem: Problem) -> Tensor:
    """[N, *out, Cout] -> [M, B*g, Co] of a class."""
    return one.of_outputs(y, images).reshape(-1, one.filters * problem.groups, problem.out_channels // problem.groups)
