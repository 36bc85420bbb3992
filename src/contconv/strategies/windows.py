"""What a class of output pixels sees, gathered into matrices, and its transpose, in plain PyTorch."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from contconv.strategies.classes import Class, classes, filters
from contconv.strategies.problem import Problem
from contconv.strategies.products import Desk, applied
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
        for images in one.pieces(problem):
            part = one.of_outputs(y, images)
            part.copy_(applied(windows(pixels, one, images, problem, desk), own, desk).reshape(part.shape))
    return y


def windows(pixels: Tensor, one: Class, images: slice, problem: Problem, desk: Desk) -> Tensor:
    """pixels: [N, *seen, Cin] contiguous -> [M, B*g, T*Ci] what every output of a class sees."""
    groups, channels, part = problem.groups, problem.in_channels, pixels[images]
    sight = _sight(one, pixels)
    where = (_lines if _small(sight, 1, len(part)) else _lines.__wrapped__)(sight, len(part), part.device)
    # The taps of a line lie side by side, so that a window is one run of memory for each line, wherever it begins.
    begin = sum(block.begin * stride for block, stride in zip(one.blocks, sight.strides, strict=True))
    runs = part.view(-1)[begin * channels :].unfold(0, sight.taps[-1] * channels, channels)
    seen = desk.sheet("windows", len(where), runs.shape[1])
    torch.index_select(runs, 0, where, out=seen)
    if groups > 1:
        seen = seen.view(-1, one.filters, problem.taps, groups, channels // groups).transpose(2, 3)
    return seen.reshape(-1, one.filters * groups, problem.taps * channels // groups)


def add_windows(seen: Tensor, to: Tensor, one: Class, images: slice, problem: Problem) -> None:
    """The transpose of `windows`: [M, B*g, T*Ci] added to what they were taken from, [N, *seen, Cin]."""
    part, sight = to[images], _sight(one, to)
    own = (sight, problem.groups, len(part))
    landing = (_landing if _small(*own) else _landing.__wrapped__)(*own, part.device)
    rows = seen.view(-1, problem.in_channels // problem.groups)
    sums = F.embedding_bag(landing.where, rows, landing.begin, mode="sum")
    reach = sight.reach()
    touched = (slice(b.begin, b.begin + pixels) for b, pixels in zip(one.blocks, reach, strict=True))
    part[(slice(None), *touched)].add_(sums.view(len(part), *reach, problem.in_channels))


@dataclass(frozen=True)
class Sight:
    """What the outputs of a class see of one image, counted from the first output's first tap: equal for many classes.

    Outputs are in the order [*steps, *phases], their taps in that of the pixels.
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
        """[outputs] where in memory each one's first tap lies, counted in pixels."""
        axes, places = len(self.starts), torch.zeros((), dtype=torch.int64)
        for number, (starts, stride) in enumerate(zip(self.starts, self.strides, strict=True)):
            shape = [1] * (2 * axes)
            shape[number], shape[axes + number] = len(starts), len(starts[0])
            places = places + torch.tensor(starts).view(shape) * stride
        return places.flatten()

    def of_taps(self, counts: Sequence[int]) -> "Sight":
        """With neighbouring pixels in the place of outputs, so many along every axis: taps of the first output."""
        return replace(self, starts=tuple((tuple(range(count)),) for count in counts))

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
def _lines(sight: Sight, images: int, device: torch.device) -> Tensor:
    """[images*J*lines] where in memory each line of what an output sees begins, in pixels from the first."""
    with unobserved():
        lines = sight.places()[:, None] + sight.of_taps([*sight.taps[:-1], 1]).places()
        image = torch.arange(images)[:, None, None] * math.prod(sight.sizes)
        return (image + lines).int().flatten().to(device)


@dataclass(frozen=True)
class Landing:
    """What of the windows of outputs [images, J, g, T] lies on a seen pixel, pixel by pixel, in order."""

    where: Tensor  # [images*J*g*T] of the windows
    begin: Tensor  # [images*reach*g] the first of those on each pixel


@lru_cache(maxsize=64)
def _landing(sight: Sight, groups: int, images: int, device: torch.device) -> Landing:
    with unobserved():
        near = replace(sight, sizes=tuple(sight.reach()))
        pixel = near.places()[:, None, None] + near.of_taps(sight.taps).places()  # [J, 1, T]
        seen = (pixel * groups + torch.arange(groups)[:, None]).int().flatten()  # [J, g, T]
        order = seen.argsort(stable=True).int()
        count = seen.bincount(minlength=math.prod(near.sizes) * groups)
        image = torch.arange(images, dtype=torch.int32)[:, None] * len(order)
        begin = (count.cumsum(0) - count).int()
        return Landing((image + order).flatten().to(device), (image + begin).flatten().to(device))
