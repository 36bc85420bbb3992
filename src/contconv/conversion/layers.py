"""Continuous layers that are a given discrete one at its own scale, at every pixel of every input."""

from collections.abc import Callable, Sequence
from operator import index

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contconv.conversion.geometry import Geometry, Spread, Windows, moved_grid, native_grid, resized_grid
from contconv.kernels import TapKernel
from contconv.modules import ContinuousConv, ContinuousConv1d, ContinuousConv2d, ContinuousConv3d
from contconv.overrides import Override, Resize, Resizing, overridden
from contconv.size import PerAxis, Size, exact_scales

CONVS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
CONVOLVE: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
Ints = tuple[int, ...]
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


class Converted(Resizing):
    """A layer whose own grid is a discrete layer's, and which keeps its middle at every other scale."""

    geometry: tuple[Geometry, ...]

    def native(self, in_size: Sequence[int]) -> Resize:
        return native_grid(self.geometry, tuple(index(n) for n in in_size))

    def resized(self, in_size: Sequence[int], to: Override) -> Resize:
        return resized_grid(self.native, in_size, to)

    def is_native(self, in_size: Sequence[int], grid: Resize) -> bool:
        """Whether this is the discrete layer's own grid; it has none for an input that is too small for it."""
        sizes = tuple(axis.size(index(n)) for axis, n in zip(self.geometry, in_size, strict=True))
        return grid.size == sizes and grid == self.native(in_size)


class ConvertedConv(Converted, ContinuousConv):
    """A trained convolution, made continuous: `layer(x)` is the convolution, `layer(x, scale=...)` its output resized.

    Its parameters are the convolution's: `kernel.weight`, which a transposed one shows in its old shape as `weight`. At
    another scale the middle of the output stays where the convolution has it, so its features do not move.

    kernel: the taps.
    geometry: one per axis, says where the convolution's windows lie.
    """

    kernel: TapKernel

    def __init__(
        self,
        kernel: TapKernel,
        geometry: Sequence[Geometry],
        *,
        bias: Tensor | None = None,
        padding_mode: str = "zeros",
    ) -> None:
        super().__init__(
            kernel.in_channels, kernel.out_channels, kernel.kernel_size, tuple(axis.scale for axis in geometry),
            kernel=kernel, groups=kernel.groups, bias=False, padding_mode=padding_mode,
        )  # fmt: skip
        self.geometry = tuple(geometry)
        self._windows = _windows(geometry) if padding_mode == "zeros" else None
        if bias is not None:
            self.bias = bias if isinstance(bias, nn.Parameter) else nn.Parameter(bias)

    @property
    def weight(self) -> Tensor:
        """The taps in the shape that the discrete layer has them in."""
        return self.kernel.weight

    def forward(self, x: Tensor, *, scale: PerAxis | None = None, size: Size | None = None) -> Tensor:
        """x: [N, Cin, *in], or [Cin, *in] as the discrete layer takes it."""
        if isinstance(x, Tensor) and x.ndim == self.axes + 1:
            return self.forward(x[None], scale=scale, size=size)[0]
        plain = self.strategy is None and self.memory_limit is None and not self.antialias
        if scale is None and size is None and self._windows is not None and plain:
            self._check_shape(x)
            same_type = x.dtype == self.kernel.weight.dtype  # of others, the general way knows what to say
            if same_type and (not overridden() or self.answer("other", x.shape[2:]) is None):
                return self._convolved(x, *self._windows)
        return super().forward(x, scale=scale, size=size)

    def _convolved(self, x: Tensor, pads: list[int], stride: Ints, padding: Ints, dilation: Ints) -> Tensor:
        """The discrete layer itself, without a detour."""
        if not torch.compiler.is_compiling():
            self.native(x.shape[2:])  # which refuses what is too small
        x = F.pad(x, pads) if pads else x
        return CONVOLVE[self.axes](x, self.kernel.weight, self.bias, stride, padding, dilation, self.groups)

    def to_conv(self, scale: PerAxis | None = None, *, in_size: Size | None = None, lossy: bool = False) -> nn.Module:
        """As of `ContinuousConv`; at its own scale it is the layer that it was made from, for every input size."""
        original = self._original() if scale is None or exact_scales(scale, self.axes) == self.scale else None
        return super().to_conv(scale, in_size=in_size, lossy=lossy) if original is None else original

    def _original(self) -> nn.Module | None:
        """The convolution with these taps and windows; None if PyTorch has none."""
        axes = [axis for axis in self.geometry if isinstance(axis, Windows)]
        padding = [(axis.left, axis.right) for axis in axes]
        uneven = any(left != right for left, right in padding)
        if len(axes) != self.axes or (uneven and not all(_pads_same(axis) for axis in axes)):
            return None
        return self._filled(
            CONVS[self.axes], [axis.stride for axis in axes], "same" if uneven else tuple(left for left, _ in padding),
            dilation=[axis.dilation for axis in axes], padding_mode=self.padding_mode,
        )  # fmt: skip

    def _filled(self, make: Callable[..., nn.Module], *given: object, **options: object) -> nn.Module:
        """A discrete layer with a copy of these weights."""
        layer = make(
            self.in_channels, self.out_channels, self.kernel.taps, *given, groups=self.groups,
            bias=self.bias is not None, device=self.weight.device, dtype=self.weight.dtype, **options,
        )  # fmt: skip
        with torch.no_grad():
            layer.get_parameter("weight").copy_(self.weight)
            if self.bias is not None:
                layer.get_parameter("bias").copy_(self.bias)
        return layer.train(self.training)

    def __repr__(self) -> str:
        given = [str(self.in_channels), str(self.out_channels), f"geometry={self.geometry}", f"kernel={self.kernel}"]
        if self.bias is None:
            given.append("bias=False")
        if self.padding_mode != "zeros":
            given.append(f"padding_mode={self.padding_mode!r}")
        return f"{type(self).__name__}({', '.join(given)})"


class ConvertedConvTranspose(ConvertedConv):
    __doc__ = ConvertedConv.__doc__

    geometry: tuple[Spread, ...]

    @property
    def weight(self) -> Tensor:
        return transposed(self.kernel.weight, self.groups)

    def _original(self) -> nn.Module:
        axes = self.geometry
        return self._filled(
            TRANSPOSED[self.axes], [axis.stride for axis in axes], [axis.padding for axis in axes],
            [axis.output_padding for axis in axes], dilation=[axis.dilation for axis in axes],
        )  # fmt: skip

    def forward(
        self,
        x: Tensor,
        output_size: Sequence[int] | None = None,
        *,
        scale: PerAxis | None = None,
        size: Size | None = None,
    ) -> Tensor:
        """x: [N, Cin, *in]; `output_size` as in `nn.ConvTranspose`: which of the sizes that the stride allows."""
        if output_size is None:
            return super().forward(x, scale=scale, size=size)
        if x.ndim == self.axes + 1:
            return self.forward(x[None], output_size, scale=scale, size=size)[0]
        self._check_shape(x)
        wanted = tuple(int(n) for n in output_size)[-self.axes :]
        if scale is None and size is None:
            grid = self.answer("other", x.shape[2:])
            if grid is None:
                self._check_output_size(x.shape[2:], wanted)
                return self._on_grid(x, moved_grid(self.geometry, x.shape[2:], wanted))
            return self._on_grid(x, Resize(grid.scale, wanted, grid.center))
        return super().forward(x, scale=scale, size=wanted if size is None else size)

    def _check_output_size(self, in_size: Sequence[int], wanted: tuple[int, ...]) -> None:
        for number, (axis, n, out) in enumerate(zip(self.geometry, in_size, wanted, strict=True)):
            least = axis.size(n) - axis.output_padding
            if not least <= out < least + axis.stride:
                raise ValueError(
                    f"output_size must be between {least} and {least + axis.stride - 1} along spatial axis {number}, "
                    f"got {out}"
                )


def _windows(geometry: Sequence[Geometry]) -> tuple[list[int], Ints, Ints, Ints] | None:
    """What `F.pad` and `F.convNd` want to know, if windows are all that there is."""
    axes = [axis for axis in geometry if isinstance(axis, Windows)]
    if len(axes) < len(geometry):
        return None
    uneven = any(axis.left != axis.right for axis in axes)
    return (
        [pixels for axis in reversed(axes) for pixels in (axis.left, axis.right)] if uneven else [],
        tuple(axis.stride for axis in axes),
        tuple(0 if uneven else axis.left for axis in axes),
        tuple(axis.dilation for axis in axes),
    )


def _pads_same(axis: Windows) -> bool:
    return axis.stride == 1 and axis.left == axis.reach // 2 and axis.right == axis.reach - axis.left


def transposed(weight: Tensor, groups: int) -> Tensor:
    """[A, B/groups, *k] -> [B, A/groups, *k], turned around: between a convolution's weight and a transposed one's."""
    grouped = weight.unflatten(0, (groups, weight.shape[0] // groups)).transpose(1, 2).flatten(0, 1)
    return grouped.flip(*range(2, weight.ndim))


class ConvertedConv1d(ConvertedConv, ContinuousConv1d):
    __doc__ = ConvertedConv.__doc__


class ConvertedConv2d(ConvertedConv, ContinuousConv2d):
    __doc__ = ConvertedConv.__doc__


class ConvertedConv3d(ConvertedConv, ContinuousConv3d):
    __doc__ = ConvertedConv.__doc__


class ConvertedConvTranspose1d(ConvertedConvTranspose, ContinuousConv1d):
    __doc__ = ConvertedConv.__doc__


class ConvertedConvTranspose2d(ConvertedConvTranspose, ContinuousConv2d):
    __doc__ = ConvertedConv.__doc__


class ConvertedConvTranspose3d(ConvertedConvTranspose, ContinuousConv3d):
    __doc__ = ConvertedConv.__doc__
