"""Continuous layers that are a given discrete one at its own scale, at every pixel of every input."""

from collections.abc import Sequence

from torch import Tensor, nn

from contconv.conversion.geometry import Geometry, Spread, moved_grid, native_grid, resized_grid
from contconv.kernels import TapKernel
from contconv.modules import ContinuousConv, ContinuousConv1d, ContinuousConv2d, ContinuousConv3d
from contconv.overrides import Override, Resize, Resizing
from contconv.size import PerAxis, Size


class Converted(Resizing):
    """A layer whose own grid is a discrete layer's, and which keeps its middle at every other scale."""

    geometry: tuple[Geometry, ...]

    def native(self, in_size: Sequence[int]) -> Resize:
        return native_grid(self.geometry, tuple(in_size))

    def resized(self, in_size: Sequence[int], to: Override) -> Resize:
        return resized_grid(self.native(in_size), to)


class ConvertedConv(Converted, ContinuousConv):
    """A trained convolution, made continuous: `layer(x)` is the convolution, `layer(x, scale=...)` its output resized.

    Its parameters are the convolution's: `kernel.mixing` has the taps, `weight` shows them in their old shape. At
    another scale the middle of the output stays where the convolution has it, so its features do not move.

    kernel: the taps.
    geometry: one per axis, says where the convolution's windows lie.
    """

    kernel: TapKernel

    def __init__(
        self, kernel: TapKernel, geometry: Sequence[Geometry], *, bias: Tensor | None = None, padding_mode: str = "zeros"
    ) -> None:
        super().__init__(
            kernel.in_channels, kernel.out_channels, kernel.kernel_size, tuple(axis.scale for axis in geometry),
            kernel=kernel, groups=kernel.groups, bias=False, padding_mode=padding_mode,
        )  # fmt: skip
        self.geometry = tuple(geometry)
        if bias is not None:
            self.bias = bias if isinstance(bias, nn.Parameter) else nn.Parameter(bias)

    @property
    def weight(self) -> Tensor:
        """The taps in the shape that the discrete layer has them in."""
        return self.kernel.weight

    def forward(self, x: Tensor, *, scale: PerAxis | None = None, size: Size | None = None) -> Tensor:
        """x: [N, Cin, *in], or [Cin, *in] as the discrete layer takes it."""
        if isinstance(x, Tensor) and x.ndim == self.axes + 1:
            return super().forward(x[None], scale=scale, size=size)[0]
        return super().forward(x, scale=scale, size=size)

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
            grid = self.resize(x.shape[2:])
            if grid == self.native(x.shape[2:]):
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


CONVERTED: dict[tuple[int, bool], type[ConvertedConv]] = {
    (1, False): ConvertedConv1d,
    (2, False): ConvertedConv2d,
    (3, False): ConvertedConv3d,
    (1, True): ConvertedConvTranspose1d,
    (2, True): ConvertedConvTranspose2d,
    (3, True): ConvertedConvTranspose3d,
}
