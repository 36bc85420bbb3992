"""What a class of output pixels sees, gathered into matrices, and its transpose, in plain PyTorch."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from contconv.strategies.classes import Class, Piece, classes, filters
from contconv.strategies.problem import Problem
from contconv.strategies.products import Desk, applied, convolves
from contconv.transforms import unobserved

KEPT_ENTRIES = 2**18  # of an index that is kept from call to call


def convolved(
    pixels: Tensor, problem: Problem, weights_of: Callable[[Class], Tensor], desk: Desk | None = None
) -> Tensor:
    """[N, *seen, Cin] -> [N, *out, Cout], each class by its weights [*phases, *taps, g, Ci, Co]."""
    desk = desk or Desk(pixels)
    y = pixels.new_empty(problem.batch, *problem.out_size, problem.out_channels)
    for one in classes(problem):
        own = filters(weights_of(one), problem)
        for piece in one.pieces(problem):
            part = piece.of_outputs(y)
            seen = windows(pixels, piece, desk, by_rows=convolves(own, piece.rows))
            part.copy_(applied(seen, own, desk).view(part.shape))
    return y


def matrices(y: Tensor, piece: Piece, desk: Desk, by_rows: bool = False) -> Tensor:
    """[N, *out, Cout] -> [B*g, M, Co] of a class, in memory [M, B*g, Co] `by_rows`."""
    part = piece.of_outputs(y)
    count = piece.one.filters * piece.problem.groups
    if not by_rows:
        return desk.sheet("outputs", *part.shape).copy_(part).view(count, piece.rows, -1)
    half = part.ndim // 2  # filters and rows have equally many dimensions
    part = part.permute(*range(half, 2 * half), *range(half), -1)
    return desk.sheet("outputs", *part.shape).copy_(part).view(piece.rows, count, -1).transpose(0, 1)


def windows(pixels: Tensor, piece: Piece, desk: Desk, by_rows: bool = False) -> Tensor:
    """pixels: [N, *seen, Cin] contiguous -> [B*g, M, T*Ci] what every output of a class sees."""
    one, problem, part = piece.one, piece.problem, pixels[piece.images]
    groups, channels, sight = problem.groups, problem.in_channels, _sight(one, pixels)
    lines = _lines if _small(sight, 1, len(part)) else _lines.__wrapped__
    where = lines(sight, len(part), by_rows, part.device)
    # The taps of a line lie side by side, so that a window is one run of memory for each line, wherever it begins.
    begin = sum(block.begin * stride for block, stride in zip(one.blocks, sight.strides, strict=True))
    runs = part.view(-1)[begin * channels :].unfold(0, sight.taps[-1] * channels, channels)
    seen = desk.sheet("windows", len(where), runs.shape[1])
    torch.index_select(runs, 0, where, out=seen)
    shape = (piece.rows, one.filters) if by_rows else (one.filters, piece.rows)
    seen = seen.view(*shape, problem.taps, groups, channels // groups)
    if by_rows:
        return seen.transpose(2, 3).reshape(piece.rows, one.filters * groups, -1).transpose(0, 1)
    return seen.movedim(3, 1).reshape(one.filters * groups, piece.rows, -1)


def add_windows(seen: Tensor, to: Tensor, piece: Piece) -> None:
    """The transpose of `windows`: [B*g, M, T*Ci] added to what they were taken from, [N, *seen, Cin]."""
    problem, part, sight = piece.problem, to[piece.images], _sight(piece.one, to)
    by_rows, reach = not seen.is_contiguous(), sight.reach()
    landings = _landing if _small(sight, problem.groups, len(part)) else _landing.__wrapped__
    landing = landings(sight, problem.groups, len(part), by_rows, part.device)
    rows = (seen.transpose(0, 1) if by_rows else seen).reshape(-1, problem.in_channels // problem.groups)
    sums = F.embedding_bag(landing.where, rows, landing.begin, mode="sum")
    touched = (slice(b.begin, b.begin + pixels) for b, pixels in zip(piece.one.blocks, reach, strict=True))
    part[(slice(None), *touched)].add_(sums.view(len(part), *reach, problem.in_channels))


@dataclass(frozen=True)
class Sight:
    """What the outputs of a class see of one image, counted from the first output's first tap: equal for many classes.

    Taps are in the order of the pixels.
    """

    starts: tuple[tuple[tuple[int, ...], ...], ...]  # for every axis, as a block's
    taps: tuple[int, ...]
    sizes: tuple[int, ...]  # of the seen pixels

    @property
    def strides(self) -> list[int]:
        """Pixels in memory, from one to the next along each axis."""
        return [math.prod(self.sizes[number + 1 :]) for number in range(len(self.sizes))]

    @property
    def outputs(self) -> int:
        return math.prod(len(starts) * len(starts[0]) for starts in self.starts)

    def places(self) -> Tensor:
        """[phases, steps] where in memory each output's first tap lies, counted in pixels."""
        axes, places = len(self.starts), torch.zeros((), dtype=torch.int64)
        for number, (starts, stride) in enumerate(zip(self.starts, self.strides, strict=True)):
            shape = [1] * (2 * axes)
            shape[number], shape[axes + number] = len(starts[0]), len(starts)
            places = places + torch.tensor(starts).mT.reshape(shape) * stride
        return places.flatten(axes).flatten(0, axes - 1)

    def taps_of(self, counts: Sequence[int]) -> Tensor:
        """[taps] where so many along every axis lie, counted from the first."""
        return replace(self, starts=tuple((tuple(range(count)),) for count in counts)).places().flatten()

    def reach(self) -> list[int]:
        """Along every axis, how many pixels may be seen."""
        return [starts[-1][-1] + taps for starts, taps in zip(self.starts, self.taps, strict=True)]


def _sight(one: Class, pixels: Tensor) -> Sight:
    """Of [N, *seen, Cin]."""
    starts, taps = zip(*((block.starts, block.axis.taps) for block in one.blocks), strict=True)
    return Sight(starts, taps, tuple(pixels.shape[1:-1]))


def _small(sight: Sight, groups: int, images: int) -> bool:
    """Whether an index is kept from call to call: all rows of a problem share a few."""
    return images * sight.outputs * groups * math.prod(sight.taps) <= KEPT_ENTRIES


@lru_cache(maxsize=64)
def _lines(sight: Sight, images: int, by_rows: bool, device: torch.device) -> Tensor:
    """[B*M*lines] where in memory each line of what an output sees begins, in pixels from the first."""
    with unobserved():
        first = sight.places()[:, None] + torch.arange(images)[:, None] * math.prod(sight.sizes)  # [B, images, steps]
        first = first.flatten(1).mT if by_rows else first.flatten(1)
        return (first[..., None] + sight.taps_of([*sight.taps[:-1], 1])).int().flatten().to(device)


@dataclass(frozen=True)
class Landing:
    """What of the windows of outputs [B*g, M, T] lies on a seen pixel, pixel by pixel, in order."""

    where: Tensor  # [B*g*M*T] of the windows
    begin: Tensor  # [images*reach*g] the first of those on each pixel


@lru_cache(maxsize=64)
def _landing(sight: Sight, groups: int, images: int, by_rows: bool, device: torch.device) -> Landing:
    with unobserved():
        near = replace(sight, sizes=tuple(sight.reach()))
        pixel = near.places()[:, None, :, None] + near.taps_of(sight.taps)  # [B, 1, steps, T]
        seen = pixel * groups + torch.arange(groups)[:, None, None]  # [B, g, steps, T]
        across, steps, taps = len(seen) * groups, *seen.shape[2:]
        rows = images * steps
        to_filter, to_row = (1, across) if by_rows else (rows, 1)
        order = seen.flatten().argsort(stable=True)
        own, row, tap = order // (steps * taps), order // taps % steps, order % taps
        where = (own * to_filter + row * to_row) * taps + tap
        image = torch.arange(images)[:, None]
        count = seen.flatten().bincount(minlength=math.prod(near.sizes) * groups)
        begin = image * len(order) + count.cumsum(0) - count
        where = where + image * (steps * to_row * taps)
        return Landing(where.int().flatten().to(device), begin.int().flatten().to(device))
