"""The layers: ContinuousConv1d, ContinuousConv2d, ContinuousConv3d."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from contconv.discrete import discrete_layer, nearest_discrete_layer, nearest_strides, usual_size
from contconv.functional import continuous_conv
from contconv.grid import PADDING_MODES
from contconv.kernels import DEFAULT_KERNEL, KERNELS, Kernel, as_kernel, check_channels, support, traits
from contconv.overrides import Override, Resize, Resizing, asked
from contconv.size import (
    Number,
    PerAxis,
    Size,
    exact,
    exact_scales,
    exact_size,
    exact_sizes,
    per_axis,
    plain,
    scales_and_sizes,
)
from contconv.strategies import check_name
from contconv.transforms import unobserved

INSTEAD = {
    "stride": "give scale=1/2 for a stride of 2, to the layer or to a call",
    "padding": "none is needed, the grid has its own; padding_mode says what lies beyond the border",
    "dilation": "give scale=, or a larger kernel_size",
    "output_padding": "give size= to a call for an exact output size",
}


class ContinuousConv(Resizing):
    """A convolution whose filter is a continuous function, and which therefore resizes by any factor.

    in_channels, out_channels, kernel_size, groups, bias and padding_mode are as in `nn.ConvNd`; there is no stride and
    no padding, the grid knows both.

    Args:
        scale: what `layer(x)` resizes by; each call may say otherwise with `scale=`, `size=`, or both.
        kernel: None (the default, "internal"), a name in `contconv.kernels.KERNELS`, a `Kernel`, or any module with
            `basis` and `mixing`.
        antialias: stretch the kernel on axes that shrink, as image resizers do.
        center: move the kernel by so many input pixels.
        strategy: compute in this way only; None picks the best.
        memory_limit: the bytes that a call may take beyond input, output and parameters, at some time.
    """

    axes: int

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        scale: PerAxis = 1,
        *,
        kernel: str | nn.Module | None = None,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        antialias: bool = False,
        center: PerAxis = 0,
        strategy: str | None = None,
        memory_limit: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **others: object,
    ) -> None:
        super().__init__()
        for name in others:
            advice = INSTEAD.get(name, "its options are those of help(contconv.ContinuousConv2d)")
            raise TypeError(f"{type(self).__name__} has no {name}: {advice}")
        check_channels(in_channels, out_channels, groups)
        check_name(strategy)
        for name, value in (("bias", bias), ("antialias", antialias)):
            if not isinstance(value, bool):
                raise TypeError(f"{name} must be True or False, got {type(value).__name__}")
        if dtype is not None and not dtype.is_floating_point:
            raise ValueError(f"dtype must be a floating-point type, got {dtype}")
        if padding_mode not in PADDING_MODES:
            raise ValueError(f"padding_mode must be one of {', '.join(PADDING_MODES)}, got {padding_mode!r}")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = exact_sizes(kernel_size, self.axes, "kernel_size")
        self.scale = exact_scales(scale, self.axes)
        self.groups = groups
        self.padding_mode = padding_mode
        self.antialias = antialias
        self.center = tuple(exact(c, "center") for c in per_axis(center, self.axes, "center"))  # type: ignore[arg-type]
        self.strategy = strategy
        self.memory_limit = memory_limit if memory_limit is None else exact_size(memory_limit, "memory_limit")
        self.kernel = self._made(kernel, device, dtype)
        if antialias and traits(self.kernel).per_tap:
            raise ValueError("antialias=True needs a kernel of the displacement; this kernel has one mixing per tap")
        self.bias = nn.Parameter(torch.empty(out_channels, device=device, dtype=dtype)) if bias else None
        self._reset_bias()

    def _made(
        self, kernel: str | nn.Module | None, device: torch.device | str | None, dtype: torch.dtype | None
    ) -> Kernel:
        """The kernel itself: made after its name, or the one given, if it fits."""
        if kernel is None or isinstance(kernel, str):
            name = DEFAULT_KERNEL if kernel is None else kernel
            if name not in KERNELS:
                raise ValueError(f"kernel must be one of {', '.join(KERNELS)}, or a module, got {name!r}")
            return KERNELS[name](
                self.in_channels,
                self.out_channels,
                self.kernel_size,
                groups=self.groups,
                device=device,
                dtype=dtype,
            )
        kernel = as_kernel(kernel)
        if device is not None or dtype is not None:
            kernel = kernel.to(device=device, dtype=dtype)
        self._check_fit(kernel)
        return kernel

    def _check_fit(self, kernel: Kernel) -> None:
        own = support(kernel, self.axes, self.kernel_size)
        if own != self.kernel_size:
            raise ValueError(f"kernel_size={self.kernel_size} does not match the kernel's own, {own}")
        if traits(kernel).channelwise:
            if not self.in_channels == self.out_channels == self.groups:
                raise ValueError(
                    f"kernel acts on each channel alone: out_channels and groups must equal in_channels="
                    f"{self.in_channels}, got out_channels={self.out_channels}, groups={self.groups}"
                )
            return
        *_, out_channels, per_group = kernel.mixing.shape
        if (out_channels, per_group) != (self.out_channels, self.in_channels // self.groups):
            raise ValueError(
                f"kernel mixes {per_group} channels a group into {out_channels}; this layer needs "
                f"{self.in_channels // self.groups} into {self.out_channels}"
            )

    def reset_parameters(self) -> None:
        """Draw the kernel (if it can) and the bias anew."""
        reset = getattr(self.kernel, "reset_parameters", None)
        if reset is not None:
            reset()
        self._reset_bias()

    def _reset_bias(self) -> None:
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_channels // self.groups * math.prod(self.kernel_size))
            nn.init.uniform_(self.bias, -bound, bound)

    def native(self, in_size: Sequence[int]) -> Resize:
        return Resize(*scales_and_sizes(in_size, self.scale, None), self.center)

    def resized(self, in_size: Sequence[int], to: Override) -> Resize:
        center = self.center if to.center is None else to.center
        return Resize(*scales_and_sizes(in_size, to.scale, to.size), center)

    def forward(self, x: Tensor, *, scale: PerAxis | None = None, size: Size | None = None) -> Tensor:
        """x: [N, Cin, *in] -> [N, Cout, *out], by this call's `scale` and/or `size`, or the layer's own scale."""
        self._check_shape(x)
        own = scale is None and size is None
        if torch.compiler.is_compiling() and type(self).resized is ContinuousConv.resized and not (own and asked()):
            # A tracer cannot follow exact grids: the operation that it sees makes this one from the same numbers.
            return self._sampled(x, self.scale if own else scale, size, self.center)
        return self._on_grid(x, self.resize(x.shape[2:], scale=scale, size=size))

    def _check_shape(self, x: Tensor) -> None:
        if not isinstance(x, Tensor):
            raise TypeError(f"x must be a tensor, got {type(x).__name__}")
        if x.ndim == self.axes + 2 and x.shape[1] != self.in_channels:
            raise ValueError(f"x must have in_channels={self.in_channels} channels, got shape {tuple(x.shape)}")
        if x.ndim != self.axes + 2:
            raise ValueError(f"x must be [N, C, *in] with {self.axes} spatial axes, got shape {tuple(x.shape)}")
        if 0 in x.shape[1:]:
            raise ValueError(f"x must have at least one channel and one pixel, got shape {tuple(x.shape)}")

    def _on_grid(self, x: Tensor, grid: Resize) -> Tensor:
        return self._sampled(x, grid.scale, grid.size, grid.center)

    def _sampled(self, x: Tensor, scale: PerAxis | None, size: Size | None, center: PerAxis) -> Tensor:
        return continuous_conv(
            x, self.kernel, self.bias, scale=scale, size=size, center=center,
            padding_mode=self.padding_mode, antialias=self.antialias, strategy=self.strategy,
            memory_limit=self.memory_limit, kernel_size=self.kernel_size,
        )  # fmt: skip

    def to_conv(self, scale: PerAxis | None = None, *, in_size: Size | None = None, lossy: bool = False) -> nn.Module:
        """The discrete layer that this one is at a scale 1/k (by default its own), with a copy of its weights.

        Which pixels a stride of k hits depends on the input size: it is exact for all sizes that have the same
        remainder by k as `in_size`, which by default is none. At other scales there is no such layer, which an error
        says, or with `lossy=True` a warning that says what is lost of the layer that comes nearest.
        """
        scales = self.scale if scale is None else exact_scales(scale, self.axes)
        near = nearest_strides(scales) if lossy else scales
        sizes = usual_size(near, self.scale, self.kernel_size) if in_size is None else exact_sizes(in_size, self.axes)
        grid = self.resized(sizes, Override(near))
        if near == scales:
            return discrete_layer(self, sizes, grid)
        return nearest_discrete_layer(self, sizes, self.resized(sizes, Override(scales)), grid)

    def __repr__(self) -> str:
        given = [str(self.in_channels), str(self.out_channels), f"kernel_size={_once(self.kernel_size)}"]
        given += [f"scale={_once(self.scale)}", f"kernel={self._kernel_repr()}"]
        if self.groups != 1:
            given.append(f"groups={self.groups}")
        if self.bias is None:
            given.append("bias=False")
        if self.padding_mode != "zeros":
            given.append(f"padding_mode={self.padding_mode!r}")
        if self.antialias:
            given.append("antialias=True")
        if any(self.center):
            given.append(f"center={_once(self.center)}")
        if self.strategy is not None:
            given.append(f"strategy={self.strategy!r}")
        if self.memory_limit is not None:
            given.append(f"memory_limit={self.memory_limit}")
        return f"{type(self).__name__}({', '.join(given)})"

    def _kernel_repr(self) -> str:
        """The kernel's name where a name makes an equal one, else the kernel's own repr."""
        channels = self.in_channels, self.out_channels
        with unobserved():  # vmap(layer) asks for the layer's name, and allows no random numbers
            fresh = {
                name: repr(make(*channels, self.kernel_size, groups=self.groups, device="meta"))
                for name, make in KERNELS.items()
            }
        own = repr(self.kernel)
        return next((repr(name) for name, text in fresh.items() if text == own), own)


def _once(values: tuple[Number, ...]) -> str:
    """One value if all are the same, else the tuple."""
    texts = [plain(value) for value in values]
    return texts[0] if len(set(texts)) == 1 else f"({', '.join(texts)})"


class ContinuousConv1d(ContinuousConv):
    __doc__ = ContinuousConv.__doc__
    axes = 1


class ContinuousConv2d(ContinuousConv):
    __doc__ = ContinuousConv.__doc__
    axes = 2


class ContinuousConv3d(ContinuousConv):
    __doc__ = ContinuousConv.__doc__
    axes = 3
