"""Sizes -> projected grid -> one `Axis` of neighbours per spatial axis.

Everything here is exact (integers over one common denominator) and depends on sizes alone, so it is planned once and
cached; floats begin where a plan becomes a tensor of displacements.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from contconv.size import PerAxis, Size, exact_sizes, scales_and_sizes
from contconv.transforms import unobserved

PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


@dataclass(frozen=True)
class Axis:
    """The plan of one spatial axis. Equal (and hashed) by what defines it, the first six fields.

    `kernel_size` neighbours belong to an output pixel, unless the kernel is stretched (`stretch` < 1, see
    `axis_plan`): then `taps` of them do, and those outside the stretched support are masked out by `inside`.
    """

    in_size: int
    out_size: int
    scale: Fraction
    kernel_size: int
    center: Fraction
    stretch: Fraction
    taps: int = field(compare=False)
    first: tuple[int, ...] = field(compare=False, repr=False)  # [out] leftmost neighbour, may lie outside the input
    phase: tuple[int, ...] = field(compare=False, repr=False)  # [out] row of `residual` that this output uses
    residual: tuple[Fraction, ...] = field(compare=False, repr=False)  # [phases] g - first
    reach: tuple[int, int] = field(compare=False)  # pixels needed beyond either end of the input (negative: spare)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Plans are keys of every cache on the way of a call, and fractions take long to hash."""
        return hash((self.in_size, self.out_size, self.scale, self.kernel_size, self.center, self.stretch))

    @property
    def phases(self) -> int:
        """How many different sets of displacements there are."""
        return len(self.residual)

    @property
    def offset(self) -> tuple[tuple[Fraction, ...], ...]:
        """[phases, taps] displacements g - m of the neighbours, in units of the (stretched) kernel."""
        return tuple(tuple(self.stretch * (r - j) for j in range(self.taps)) for r in self.residual)

    @property
    def inside(self) -> tuple[tuple[bool, ...], ...]:
        """[phases, taps] whether the neighbour lies in the half-open support (-K/2, K/2]."""
        return tuple(tuple(d > Fraction(-self.kernel_size, 2) for d in row) for row in self.offset)


def projected_grid(
    in_size: Size, *, scale: PerAxis | None = None, size: Size | None = None
) -> tuple[Fraction, ...] | tuple[tuple[Fraction, ...], ...]:
    """Where each output pixel lies in the input, exactly: one tuple of positions per axis (for an int: just one).

    g(i) = i / s + (in - 1) / 2 - (out - 1) / (2 s)

    >>> [float(g) for g in projected_grid(4, scale=0.5)]
    [0.5, 2.5]
    """
    sizes = exact_sizes(in_size, len(in_size) if isinstance(in_size, Sequence) else 1, "in_size")
    grids = tuple(
        tuple(Fraction(g, denominator) for g in numerators)
        for n, s, out in zip(sizes, *scales_and_sizes(sizes, scale, size), strict=True)
        for numerators, denominator in [_grid(n, out, s, Fraction(0))]
    )
    return grids if isinstance(in_size, Sequence) else grids[0]


def _grid(in_size: int, out_size: int, scale: Fraction, center: Fraction) -> tuple[list[int], int]:
    """The projected grid, moved by `center`, as numerators over one common denominator."""
    k, l = scale.numerator, scale.denominator  # noqa: E741 - the scale is k / l, as in the paper
    denominator = 2 * k * center.denominator
    start = (k * (in_size - 1) - l * (out_size - 1)) * center.denominator + 2 * k * center.numerator
    step = 2 * l * center.denominator
    return [start + i * step for i in range(out_size)], denominator


@lru_cache(maxsize=4096)
def axis_plan(
    in_size: int,
    out_size: int,
    scale: Fraction,
    kernel_size: int,
    center: Fraction = Fraction(0),
    antialias: bool = False,
) -> Axis:
    """The neighbours of every output pixel along one axis.

    They are the K pixel centres ceil(g - K/2) ... ceil(g - K/2) + K - 1. With `antialias`, an axis that shrinks has
    its kernel stretched by 1/s, and they are all pixel centres in the stretched half-open support.

    >>> plan = axis_plan(6, 4, Fraction(2, 3), 3)
    >>> plan.first, plan.phase
    ((-1, 1, 2, 4), (0, 1, 0, 1))
    """
    stretch = min(scale, Fraction(1)) if antialias else Fraction(1)
    support = kernel_size / stretch
    grid, denominator = _grid(in_size, out_size, scale, center)
    # One more common denominator, so that half the support is an integer as well.
    unit = 2 * support.denominator
    half = support.numerator * denominator
    grid, denominator = [g * unit for g in grid], denominator * unit

    first = tuple(-((half - g) // denominator) for g in grid)
    last = -((-grid[-1] - half) // denominator) - 1
    classes: dict[int, int] = {}
    phase = tuple(classes.setdefault(g - m * denominator, len(classes)) for g, m in zip(grid, first, strict=True))
    return Axis(
        in_size=in_size,
        out_size=out_size,
        scale=scale,
        kernel_size=kernel_size,
        center=center,
        stretch=stretch,
        taps=-(-support.numerator // support.denominator),
        first=first,
        phase=phase,
        residual=tuple(Fraction(r, denominator) for r in classes),
        reach=(-first[0], last - (in_size - 1)),
    )


@lru_cache(maxsize=4096)
def cut(axis: Axis, start: int, stop: int) -> Axis:
    """The plan of output pixels start ... stop - 1 alone: the same grid, centred elsewhere.

    >>> cut(axis_plan(6, 4, Fraction(2, 3), 3), 1, 3).first
    (1, 2)
    """
    grid, denominator = _grid(axis.in_size, axis.out_size, axis.scale, axis.center)
    centred, unit = _grid(axis.in_size, stop - start, axis.scale, Fraction(0))
    center = Fraction(grid[start], denominator) - Fraction(centred[0], unit)
    return axis_plan(axis.in_size, stop - start, axis.scale, axis.kernel_size, center, axis.stretch != 1)


@lru_cache(maxsize=1024)
def sources(axis: Axis, padding_mode: str, device: torch.device) -> Tensor:
    """[out, taps] the input pixel that each neighbour is read from; -1 where it is zero. Never write to it."""
    with unobserved():
        first = torch.tensor(axis.first)
        source = folded(first[:, None] + torch.arange(axis.taps), axis.in_size, padding_mode)
        if axis.stretch != 1:
            inside = torch.tensor(axis.inside)[torch.tensor(axis.phase)]
            source = torch.where(inside, source, -1)
        return source.to(device)


@lru_cache(maxsize=1024)
def pixels_read(axis: Axis, padding_mode: str) -> slice:
    """The input pixels from the first to the last that any output reads.

    >>> pixels_read(cut(axis_plan(9, 6, Fraction(2, 3), 3), 1, 3), "zeros")
    slice(1, 5, None)
    """
    source = sources(axis, padding_mode, torch.device("cpu"))
    with unobserved():
        inside = source[source >= 0]
        return slice(int(inside.min()), int(inside.max()) + 1) if inside.numel() else slice(0, 0)


def folded(m: Tensor, in_size: int, padding_mode: str) -> Tensor:
    """Pixel positions, in or outside the input -> the input pixel that the padding puts there; -1 where it is zero."""
    last = in_size - 1
    if padding_mode == "zeros":
        return torch.where((m < 0) | (m > last), -1, m)
    if padding_mode == "replicate":
        return m.clamp(0, last)
    if padding_mode == "circular":
        return m % in_size
    return last - (last - m.abs()).abs()


@lru_cache(maxsize=1024)
def phase_index(axis: Axis, device: torch.device) -> Tensor:
    """[out] `axis.phase` as a tensor. Never write to it."""
    with unobserved():
        return torch.tensor(axis.phase, device=device)


@lru_cache(maxsize=1024)
def seen_index(axis: Axis, device: torch.device) -> Tensor:
    """[out, taps] the neighbours, counted from the first one that any output sees. Never write to it."""
    with unobserved():
        first = torch.tensor(axis.first) - axis.first[0]
        return (first[:, None] + torch.arange(axis.taps)).to(device)


def check_reach(axes: Sequence[Axis], padding_mode: str) -> None:
    """Refuse a reflection that would need more pixels than the input has."""
    if padding_mode != "reflect":
        return
    for number, axis in enumerate(axes):
        reach = max(axis.reach)
        if reach >= axis.in_size:
            raise ValueError(
                f"padding_mode='reflect' needs {reach} pixels beyond the border of spatial axis {number}, which has "
                f"only {axis.in_size}: it reaches at most size - 1; use another padding_mode or a larger input"
            )
