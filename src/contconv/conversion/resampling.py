"""Poolings and upsamplings that are the discrete ones at their own scale, and follow their siblings to any other."""

import copy
import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from torch import Tensor, nn
from torch.nn import functional as F

from contconv.conversion.geometry import Windows, resized_grid
from contconv.conversion.layers import Converted
from contconv.functional import continuous_conv
from contconv.kernels import Linear
from contconv.overrides import Override, Resize, Resizing, overridden
from contconv.size import exact, per_axis

LINEAR = Linear()
Pool = nn.MaxPool1d | nn.MaxPool2d | nn.MaxPool3d | nn.AvgPool1d | nn.AvgPool2d | nn.AvgPool3d


class ConvertedPool(Converted):
    """A pooling whose output can have any size: pooled at every pixel, then sampled linearly where the grid says.

    At its own scale it is the pooling itself. It has no parameters; give it a scale with `contconv.scales`.
    """

    def __init__(self, pool: Pool, geometry: Sequence[Windows]) -> None:
        super().__init__()
        self.pool = pool
        self.geometry: tuple[Windows, ...] = tuple(geometry)
        dense = copy.copy(pool)
        dense.stride, dense.ceil_mode = 1, False
        self._dense = (dense,)  # in a tuple: a tool, and no part of the model

    def forward(self, x: Tensor) -> Tensor:
        axes = len(self.geometry)
        grid = self.answer("other", x.shape[-axes:]) if overridden() else None
        if grid is None:
            return self.pool(x)
        if x.ndim == axes + 1:
            return self._sampled(x[None], grid)[0]
        return self._sampled(x, grid)

    def _sampled(self, x: Tensor, grid: Resize) -> Tensor:
        if set(grid.size) == {1}:  # one window, of all that there is
            whole = tuple(range(2, x.ndim))
            return x.amax(whole, keepdim=True) if "Max" in type(self.pool).__name__ else x.mean(whole, keepdim=True)
        center = self.answer("dense_center", x.shape[2:])
        return continuous_conv(
            self._dense[0](x), LINEAR, scale=grid.scale, size=grid.size, center=center, padding_mode="replicate"
        )

    def dense_center(self, in_size: Sequence[int]) -> tuple[Fraction, ...]:
        """The center of the grid on the map of all windows, whose pixel i is the window that begins at i - left."""
        return _dense_center(self.geometry, tuple(in_size), self.unasked(in_size).center)


@lru_cache(maxsize=1024)
def _dense_center(
    axes: tuple[Windows, ...], in_size: tuple[int, ...], center: tuple[Fraction, ...]
) -> tuple[Fraction, ...]:
    return tuple(
        c - axis.origin(n) + Fraction(axis.reach - axis.left - axis.right, 2)
        for c, axis, n in zip(center, axes, in_size, strict=True)
    )


class ConvertedUpsample(Resizing):
    """`nn.Upsample` to any size that its siblings have; at its own scale it is that module itself."""

    def __init__(self, upsample: nn.Upsample) -> None:
        super().__init__()
        self.upsample = upsample

    def native(self, in_size: Sequence[int]) -> Resize:
        factors = per_axis(self.upsample.scale_factor, len(in_size), "scale_factor")
        scale = tuple(exact(factor, "scale_factor") for factor in factors)  # type: ignore[arg-type]
        size = tuple(math.floor(n * float(s)) for n, s in zip(in_size, scale, strict=True))
        return Resize(scale, size, (Fraction(0),) * len(in_size))

    def resized(self, in_size: Sequence[int], to: Override) -> Resize:
        return resized_grid(self.native, in_size, to)

    def forward(self, x: Tensor) -> Tensor:
        grid = self.answer("other", x.shape[2:]) if overridden() else None
        if grid is None:
            return self.upsample(x)
        return F.interpolate(x, size=grid.size, mode=self.upsample.mode, align_corners=self.upsample.align_corners)
