"""Poolings and upsamplings that are the discrete ones at their own scale, and follow their siblings to any other."""

import copy
import math
from collections.abc import Sequence
from fractions import Fraction

from torch import Tensor, nn
from torch.nn import functional as F

from contconv.conversion.geometry import Geometry, Windows, resized_grid
from contconv.conversion.layers import Converted
from contconv.functional import continuous_conv
from contconv.kernels import Linear
from contconv.overrides import Override, Resize, Resizing
from contconv.size import exact, per_axis

Pool = nn.MaxPool1d | nn.MaxPool2d | nn.MaxPool3d | nn.AvgPool1d | nn.AvgPool2d | nn.AvgPool3d


class ConvertedPool(Converted):
    """A pooling whose output can have any size: pooled at every pixel, then sampled linearly where the grid says.

    At its own scale it is the pooling itself. It has no parameters; give it a scale with `contconv.scales`.
    """

    def __init__(self, pool: Pool, geometry: Sequence[Windows]) -> None:
        super().__init__()
        self.pool = pool
        self.geometry: tuple[Geometry, ...] = tuple(geometry)

    def forward(self, x: Tensor) -> Tensor:
        axes = len(self.geometry)
        in_size = x.shape[-axes:]
        grid = self.resize(in_size)
        if self.is_native(in_size, grid):
            return self.pool(x)
        if x.ndim == axes + 1:
            return self._sampled(x[None], grid)[0]
        return self._sampled(x, grid)

    def _sampled(self, x: Tensor, grid: Resize) -> Tensor:
        if set(grid.size) == {1}:  # one window, of all that there is
            whole = tuple(range(2, x.ndim))
            return x.amax(whole, keepdim=True) if "Max" in type(self.pool).__name__ else x.mean(whole, keepdim=True)
        dense_pool = copy.copy(self.pool)
        dense_pool.stride, dense_pool.ceil_mode = 1, False
        dense = dense_pool(x)  # pixel i of it is the window that begins at i - left
        center = tuple(
            c - axis.origin(n) + (n - there) / 2
            for c, axis, n, there in zip(grid.center, self.geometry, x.shape[2:], dense.shape[2:], strict=True)
        )
        return continuous_conv(
            dense, Linear(), scale=grid.scale, size=grid.size, center=center, padding_mode="replicate"
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
        in_size = x.shape[2:]
        grid = self.resize(in_size)
        if grid == self.native(in_size):
            return self.upsample(x)
        return F.interpolate(x, size=grid.size, mode=self.upsample.mode, align_corners=self.upsample.align_corners)
