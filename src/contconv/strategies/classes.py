"""Classes of output pixels as batches of matrices, in plain PyTorch: what a class sees, and where its results go.

A class is all outputs whose displacements along the leading axes are the same: rows that lie evenly spaced, and whose
neighbours do. Every output column is one matrix of its batch, [M, J*g, T*Ci] of what it sees and [M, J*g, Co] of what
it becomes, where M are the images and the rows of the class.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional as F

from contconv.grid import Axis, phase_index, seen_index
from contconv.strategies.problem import Problem
from contconv.transforms import unobserved

PIECE_BYTES = 8 * 2**20  # of what is seen, so that it stays in the cache and its memory is used again and again


@dataclass(frozen=True)
class Rows:
    """The rows of a class along one leading axis."""

    outputs: slice
    first: int  # of the seen pixels, at the first row's first tap
    step: int  # to the next row
    count: int

    def seen(self, tap: int) -> slice:
        """Of the seen pixels, those that the rows read at a tap."""
        start = self.first + tap
        return slice(start, start + self.step * (self.count - 1) + 1, self.step)


@dataclass(frozen=True)
class Class:
    """One class of the leading axes (one of everything where there is only one axis)."""

    phases: tuple[int, ...]
    rows: tuple[Rows, ...]

    def pieces(self, problem: Problem) -> Iterator[slice]:
        """Images that are computed at once."""
        images = max(1, PIECE_BYTES // _seen_bytes(problem, math.prod(rows.count for rows in self.rows)))
        for start in range(0, problem.batch, images):
            yield slice(start, min(start + images, problem.batch))

    def outputs(self, images: slice) -> tuple[slice, ...]:
        """Of y [N, *out, Cout]."""
        return (images, *(rows.outputs for rows in self.rows))


def classes(problem: Problem) -> Iterator[Class]:
    """All of a problem's."""
    leading = problem.axes[:-1]
    for phases in product(*(range(axis.phases) for axis in leading)):
        yield Class(phases, tuple(_rows(axis, phase) for axis, phase in zip(leading, phases, strict=True)))


def _rows(axis: Axis, phase: int) -> Rows:
    first = axis.first[phase :: axis.phases]
    step = first[1] - first[0] if len(first) > 1 else 1
    return Rows(slice(phase, None, axis.phases), first[0] - axis.first[0], step, len(first))


def piece_bytes(problem: Problem) -> int:
    """What the largest piece sees."""
    rows = math.prod(-(-axis.out_size // axis.phases) for axis in problem.axes[:-1])
    image = _seen_bytes(problem, rows)
    return min(max(PIECE_BYTES, image), problem.batch * image)


def _seen_bytes(problem: Problem, rows: int) -> int:
    """By so many rows of one image."""
    return rows * problem.axes[-1].out_size * problem.taps * problem.in_channels * max(problem.dtype.itemsize, 4)


class Desk:
    """Memory that one step of a loop after the other writes its results to: new memory costs a page fault every 4 KiB,
    which takes about as long as a matrix product needs to fill it."""

    def __init__(self, like: Tensor) -> None:
        self.like = like
        self.sheets: dict[str, Tensor] = {}

    def sheet(self, name: str, *shape: int) -> Tensor:
        """Uninitialised, until the next one of that name."""
        count = math.prod(shape)
        if name not in self.sheets or self.sheets[name].numel() < count:
            self.sheets[name] = self.like.new_empty(count)
        return self.sheets[name][:count].view(shape)


def windows(pixels: Tensor, one: Class, images: slice, problem: Problem, desk: Desk | None = None) -> Tensor:
    """pixels: [N, *seen, Cin] contiguous -> [M, J*g, T*Ci] what every output column sees."""
    axis, groups = problem.axes[-1], problem.groups
    part = pixels[images]
    along, *leading, column, _ = part.stride()
    rows = [rows.count for rows in one.rows]
    taps = [axis.taps for axis in problem.axes[:-1]]
    # The taps of a line lie side by side, so that a window is one run of memory for each line, whatever its column.
    overlapping = part.as_strided(
        (len(part), *rows, part.shape[-2] - axis.taps + 1, *taps, axis.taps * problem.in_channels),
        (along, *(r.step * s for r, s in zip(one.rows, leading, strict=True)), column, *leading, 1),
        part.storage_offset() + sum(r.first * s for r, s in zip(one.rows, leading, strict=True)),
    )
    where, dim = seen_index(axis, pixels.device)[:, 0], len(problem.axes)
    if desk is None:
        seen = overlapping.index_select(dim, where)
    else:
        seen = desk.sheet("windows", len(part), *rows, axis.out_size, *overlapping.shape[dim + 1 :])
        torch.index_select(overlapping, dim, where, out=seen)
    if groups > 1:
        seen = seen.reshape(-1, axis.out_size, problem.taps, groups, problem.in_channels // groups).transpose(2, 3)
    return seen.reshape(-1, axis.out_size * groups, problem.taps * problem.in_channels // groups)


def add_windows(seen: Tensor, to: Tensor, one: Class, images: slice, problem: Problem) -> None:
    """The transpose of `windows`: [M, J*g, T*Ci] added to what they were taken from, [N, *seen, Cin]."""
    *leading, axis = problem.axes
    taps = [other.taps for other in leading]
    own, lines = _landing(axis, problem.groups, seen.device), math.prod(taps)
    count = len(seen) * lines  # times a window's line is summed: rows of the class, and lines of its windows
    line = torch.arange(count, device=seen.device)[:, None]
    row = line // lines * (seen.shape[1] * lines) + line % lines
    where = ((row + own.column * lines) * axis.taps + own.tap).flatten()
    begin = (line * len(own.tap) + own.begin).flatten()
    sums = F.embedding_bag(where, seen.view(-1, problem.in_channels // problem.groups), begin, mode="sum")
    sums = sums.view(-1, *(rows.count for rows in one.rows), *taps, *to.shape[-2:])
    for tap in product(*map(range, taps)):
        reads = (images, *(rows.seen(t) for rows, t in zip(one.rows, tap, strict=True)))
        to[reads] += sums[(slice(None),) * (1 + len(tap)) + tap]


@dataclass(frozen=True)
class Landing:
    """What of the windows of output columns lies on a seen column, ordered by columns seen."""

    column: Tensor  # [J*g*K] the output column
    tap: Tensor  # [J*g*K] and its tap
    begin: Tensor  # [seen*g] the first of those on each


@lru_cache(maxsize=1024)
def _landing(axis: Axis, groups: int, device: torch.device) -> Landing:
    with unobserved():
        group = torch.arange(groups)[:, None]
        seen = (seen_index(axis, torch.device("cpu"))[:, None] * groups + group).flatten()  # [J, g, K]
        order = seen.argsort(stable=True)
        count = seen.bincount()
        return Landing(*(t.to(device) for t in (order // axis.taps, order % axis.taps, count.cumsum(0) - count)))


def convolved(
    pixels: Tensor, problem: Problem, weights_of: Callable[[Class], Tensor], desk: Desk | None = None
) -> Tensor:
    """[N, *seen, Cin] -> [N, *out, Cout], each class by its weights [phases of the last axis, *taps, g, Ci, Co]."""
    y = pixels.new_empty(problem.batch, *problem.out_size, problem.out_channels)
    for one in classes(problem):
        own = filters(weights_of(one), problem)
        for images in one.pieces(problem):
            part = y[one.outputs(images)]
            part.copy_(applied(windows(pixels, one, images, problem, desk), own, desk).reshape(part.shape))
    return y


def filters(weights: Tensor, problem: Problem) -> Tensor:
    """[phases, *taps, g, Ci, Co] of the last axis -> [J*g, T*Ci, Co] of every output column."""
    weights = weights.flatten(1, len(problem.axes))
    weights = weights.movedim(2, 1)
    axis = problem.axes[-1]
    if axis.phases < axis.out_size:
        weights = weights.index_select(0, phase_index(axis, weights.device))
    return weights.flatten(0, 1).flatten(1, 2)


def over_phases(columns: Tensor, problem: Problem) -> Tensor:
    """The transpose of `filters`: [J*g, T*Ci, Co] of every output column -> [phases, *taps, g, Ci, Co], their sums."""
    axis, count = problem.axes[-1], len(problem.axes)
    taps = [other.taps for other in problem.axes]
    parts = columns.view(axis.out_size, problem.groups, *taps, -1, columns.shape[-1]).movedim(1, count + 1)
    if axis.phases == axis.out_size:
        return parts
    return parts.new_zeros(axis.phases, *parts.shape[1:]).index_add_(0, phase_index(axis, parts.device), parts)


def applied(seen: Tensor, own: Tensor, desk: Desk | None = None) -> Tensor:
    """What windows [M, J, K] become by filters [J, K, Co]: [M, J, Co]."""
    if not _convolves(seen, 128):
        return _product(seen.transpose(0, 1), own, desk).transpose(0, 1)
    return _columns(F.conv_transpose2d(_image(seen), own.reshape(-1, own.shape[2], 1, 1), groups=len(own)), seen)


def sent_back(y: Tensor, own: Tensor, desk: Desk | None = None) -> Tensor:
    """What gradients [M, J, Co] become by filters [J, K, Co]: [M, J, K], contiguous."""
    if not _convolves(y, 16):
        return _product(y.transpose(0, 1), own.mT, desk).transpose(0, 1).contiguous()
    return _columns(F.conv2d(_image(y), own.reshape(-1, own.shape[2], 1, 1), groups=len(own)), y)


def correlated(seen: Tensor, y: Tensor, before: Tensor | None, desk: Desk | None = None) -> Tensor:
    """The gradient of filters, of windows [M, J, K] and gradients [M, J, Co]: [J, K, Co], added to the one before."""
    if before is not None:
        return before.baddbmm_(seen.permute(1, 2, 0), y.transpose(0, 1))
    return _product(seen.permute(1, 2, 0), y.transpose(0, 1), desk, "gradient")


def _product(a: Tensor, b: Tensor, desk: Desk | None, name: str = "product") -> Tensor:
    if desk is None:
        return torch.bmm(a, b)
    return torch.bmm(a, b, out=desk.sheet(name, a.shape[0], a.shape[1], b.shape[2]))


def _convolves(columns: Tensor, rows: int) -> bool:
    """Whether grouped convolutions of single pixels are the faster matrix products: oneDNN's, with enough rows."""
    plain = columns.device.type == "cpu" and columns.dtype == torch.float32
    has = torch.backends.mkldnn.is_available() and bool(torch.backends.mkldnn.enabled)
    return plain and has and len(columns) >= rows


def _image(columns: Tensor) -> Tensor:
    """[M, J, K] as one image of M pixels with a group of K channels for each column."""
    return columns.reshape(1, len(columns), 1, -1).permute(0, 3, 1, 2)


def _columns(image: Tensor, like: Tensor) -> Tensor:
    """And back."""
    return image.permute(0, 2, 3, 1).reshape(*like.shape[:2], -1)


def columns_of(y: Tensor, problem: Problem) -> Tensor:
    """[N, *rows, J, Cout] -> [M, J*g, Co]."""
    return y.reshape(-1, y.shape[-2] * problem.groups, problem.out_channels // problem.groups)
