"""Where the windows of discrete layers lie: their output size and their place on the continuous grid, exactly.

A discrete layer counts its windows from the left end of the padded input, the projected grid is centred. The two agree
at the layer's own scale once the grid is moved by `center`, which depends on the input size: where the stride does not
divide what there is, the last pixels are left out, on the right alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

from contconv.overrides import Override, Resize
from contconv.size import exact_scales, exact_sizes, scaled_size


class Geometry(Protocol):
    """One axis of a discrete layer."""

    @property
    def scale(self) -> Fraction:
        """Output pixels per input pixel."""

    def size(self, in_size: int) -> int:
        """How many output pixels there are; less than one: the input is too small."""

    def origin(self, in_size: int) -> Fraction:
        """Where the first output pixel looks: the middle of its window, in input pixels."""


@dataclass(frozen=True)
class Windows:
    """An axis of a convolution or a pooling: windows of `taps` pixels, `dilation` apart, every `stride` pixels."""

    taps: int
    stride: int = 1
    dilation: int = 1
    left: int = 0
    right: int = 0
    ceil_mode: bool = False  # of poolings: a window that begins inside may end outside

    @property
    def scale(self) -> Fraction:
        return Fraction(1, self.stride)

    @property
    def reach(self) -> int:
        """From the first tap of a window to its last."""
        return self.dilation * (self.taps - 1)

    def size(self, in_size: int) -> int:
        spare = in_size + self.left + self.right - self.reach - 1
        if not self.ceil_mode:
            return spare // self.stride + 1
        count = -(-spare // self.stride) + 1
        return count - 1 if (count - 1) * self.stride >= in_size + self.left else count

    def origin(self, in_size: int) -> Fraction:
        return Fraction(self.reach, 2) - self.left


@dataclass(frozen=True)
class SameWindows:
    """An axis of a convolution that pads as TensorFlow's "SAME" does: by what ceil(in / stride) windows need."""

    taps: int
    stride: int = 1
    dilation: int = 1

    @property
    def scale(self) -> Fraction:
        return Fraction(1, self.stride)

    def size(self, in_size: int) -> int:
        return -(-in_size // self.stride)

    def origin(self, in_size: int) -> Fraction:
        reach = self.dilation * (self.taps - 1)
        missing = max((self.size(in_size) - 1) * self.stride + reach + 1 - in_size, 0)
        return Fraction(reach, 2) - missing // 2


@dataclass(frozen=True)
class Spread:
    """An axis of a transposed convolution: every input pixel is spread over `taps` output pixels."""

    taps: int
    stride: int = 1
    dilation: int = 1
    padding: int = 0
    output_padding: int = 0

    @property
    def scale(self) -> Fraction:
        return Fraction(self.stride)

    @property
    def reach(self) -> int:
        """From the first tap to the last, in output pixels."""
        return self.dilation * (self.taps - 1)

    def size(self, in_size: int) -> int:
        return (in_size - 1) * self.stride - 2 * self.padding + self.reach + self.output_padding + 1

    def origin(self, in_size: int) -> Fraction:
        return (self.padding - Fraction(self.reach, 2)) / self.stride


@lru_cache(maxsize=4096)
def native_grid(axes: tuple[Geometry, ...], in_size: tuple[int, ...]) -> Resize:
    """The grid on which the continuous layer is the discrete one."""
    size = tuple(axis.size(n) for axis, n in zip(axes, in_size, strict=True))
    if min(size) < 1:
        raise ValueError(f"x has {_by(in_size)} pixels, too few for the layer: its output would have {_by(size)}")
    return moved_grid(axes, in_size, size)


def moved_grid(axes: Sequence[Geometry], in_size: Sequence[int], size: tuple[int, ...]) -> Resize:
    """The discrete layer's grid, with so many output pixels from its first one on."""
    center = tuple(
        axis.origin(n) + (out - 1) / (2 * axis.scale) - Fraction(n - 1, 2)
        for axis, n, out in zip(axes, in_size, size, strict=True)
    )
    return Resize(tuple(axis.scale for axis in axes), size, center)


def resized_grid(own: Callable[[Sequence[int]], Resize], in_size: Sequence[int], to: Override) -> Resize:
    """The grid at another scale or size: the discrete layer's output, resized. Its middle stays where it was.

    `scale` alone makes ceil(scale / native scale * native size) pixels; `size` alone takes the scale at which they
    cover just what the native ones do.
    """
    axes = len(in_size)
    if to.scale is not None and to.size is not None and to.center is not None:
        return Resize(exact_scales(to.scale, axes), exact_sizes(to.size, axes), to.center)
    native = own(in_size)
    center = native.center if to.center is None else to.center
    if to.size is None:
        scale = native.scale if to.scale is None else exact_scales(to.scale, axes)
        ratios = [s / own for s, own in zip(scale, native.scale, strict=True)]
        return Resize(scale, tuple(scaled_size(n, r) for n, r in zip(native.size, ratios, strict=True)), center)
    size = exact_sizes(to.size, axes)
    if to.scale is not None:
        return Resize(exact_scales(to.scale, axes), size, center)
    fitted = tuple(own * out / n for own, out, n in zip(native.scale, size, native.size, strict=True))
    return Resize(fitted, size, center)


def _by(sizes: Sequence[int]) -> str:
    return " x ".join(str(size) for size in sizes)
