"""The pipeline, top to bottom: sizes, grid, kernel, strategy."""

from fractions import Fraction
from functools import lru_cache

import torch
from torch import Tensor, nn

from contconv.grid import PADDING_MODES, axis_plan, check_reach
from contconv.kernels import Kernel, Traits, as_kernel, dilation_of, is_net, support, traits
from contconv.layout import format_of
from contconv.precision import autocasts, computing_dtype, full_precision
from contconv.size import PerAxis, Size, exact, exact_size, per_axis, scales_and_sizes
from contconv.strategies import Problem, biased, chosen
from contconv.tracing import exportable, exported_flexibly, has_symbols, in_graph, served_by
from contconv.transforms import differentiated, exporting, refuse_jit_trace, transformed


def continuous_conv(
    x: Tensor,
    kernel: nn.Module,
    bias: Tensor | None = None,
    *,
    scale: PerAxis | None = None,
    size: Size | None = None,
    padding_mode: str = "zeros",
    antialias: bool = False,
    center: PerAxis = 0,
    strategy: str | None = None,
    memory_limit: int | None = None,
    kernel_size: Size | None = None,
) -> Tensor:
    """Convolve x with a continuous kernel and sample the result on the projected grid.

    x: [N, Cin, *in] -> [N, Cout, *out] with 1, 2 or 3 spatial axes; `scale` and `size` are one value or one per axis.

    `antialias` stretches the kernel on axes that shrink; `center` moves it by so many input pixels; `strategy` asks for
    one way of computing by name; `memory_limit` bounds the bytes beyond input, output and parameters, at some time;
    `kernel_size` is for a module that has a basis and a mixing but no size of its own.

    >>> continuous_conv(torch.ones(1, 3, 8, 8), contconv.Cubic(), scale=(0.61, 1.37)).shape
    torch.Size([1, 3, 5, 11])
    """
    if torch.compiler.is_compiling() and not exporting():
        return in_graph(
            x, kernel, bias, scale=scale, size=size, padding_mode=padding_mode, antialias=antialias, center=center,
            strategy=strategy, memory_limit=memory_limit, kernel_size=kernel_size,
        )  # fmt: skip
    return computed(
        x, as_kernel(kernel), bias, scale=scale, size=size, padding_mode=padding_mode, antialias=antialias,
        center=center, strategy=strategy, memory_limit=memory_limit, kernel_size=kernel_size,
    )  # fmt: skip


def computed(
    x: Tensor, kernel: Kernel, bias: Tensor | None, *, scale: PerAxis | None, size: Size | None, padding_mode: str,
    antialias: bool, center: PerAxis, strategy: str | None, memory_limit: int | None, kernel_size: Size | None,
) -> Tensor:  # fmt: skip
    """`continuous_conv`, with nobody else to do it."""
    refuse_jit_trace()
    kind = traits(kernel)
    check_tensors(x, kernel, kind, bias)
    dtype = computing_dtype(x)
    if exporting() and has_symbols(x):
        axes = x.ndim - 2
        return exported_flexibly(
            x.to(dtype), kernel, None if bias is None else bias.to(dtype), scale=scale, size=size,
            padding_mode=padding_mode, antialias=antialias, kernel_size=support(kernel, axes, kernel_size),
            center=[exact(c, "center") for c in per_axis(center, axes, "center")],  # type: ignore[arg-type]
        )  # fmt: skip
    problem = planned(
        x.shape, kernel, scale=scale, size=size, padding_mode=padding_mode, antialias=antialias, center=center,
        kernel_size=kernel_size, memory_limit=memory_limit, dtype=dtype, device=x.device,
        training=trains(x, kernel),
    )  # fmt: skip
    run = (exportable(problem) if exporting() else chosen(problem, strategy)).run
    bias = None if bias is None else bias.to(dtype)
    with full_precision(x.device):
        if not kind.channelwise:
            y = run(x.to(dtype), kernel, bias, problem)
        else:  # every channel is an image of its own
            alone = x.to(dtype).reshape(problem.batch, 1, *problem.in_size)
            y = biased(run(alone, kernel, None, problem).reshape(*x.shape[:2], *problem.out_size), bias)
    return like_format_of(x, y)


def trains(x: Tensor, kernel: Kernel) -> bool:
    """Whether a gradient of x or the kernel will be asked for, as far as can be known."""
    return torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in kernel.parameters()))


def planned(
    shape: torch.Size,
    kernel: Kernel,
    *,
    scale: PerAxis | None,
    size: Size | None,
    padding_mode: str,
    antialias: bool,
    center: PerAxis,
    kernel_size: Size | None = None,
    memory_limit: int | None = None,
    training: bool = False,
    dtype: torch.dtype = torch.float32,
    device: torch.device = torch.device("cpu"),  # noqa: B008 - a device is immutable
) -> Problem:
    """The problem that a call on x of this shape poses; everything about it is checked here."""
    if padding_mode not in PADDING_MODES:
        raise ValueError(f"padding_mode must be one of {', '.join(PADDING_MODES)}, got {padding_mode!r}")
    if memory_limit is not None:
        exact_size(memory_limit, "memory_limit")
    in_size = shape[2:]
    scales, sizes = scales_and_sizes(in_size, scale, size)
    centers = tuple([exact(c, "center") for c in per_axis(center, len(in_size), "center")])  # type: ignore[arg-type]
    # Exporters have sizes that are symbols, which cannot be looked up.
    pose = _posed if {*map(type, shape)} == {int} else _posed.__wrapped__
    return pose(
        shape, scales, sizes, centers, support(kernel, len(in_size), kernel_size), traits(kernel), kernel.mixing.shape,
        dilation_of(kernel), padding_mode, bool(antialias), memory_limit, training, dtype, device, differentiated(),
        is_net(kernel),
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _posed(
    shape: torch.Size, scales: tuple[Fraction, ...], sizes: tuple[int, ...], centers: tuple[Fraction, ...],
    kernel_size: tuple[int, ...], kind: Traits, mixing: torch.Size, dilation: tuple[int, ...] | None,
    padding_mode: str, antialias: bool, memory_limit: int | None, training: bool, dtype: torch.dtype,
    device: torch.device, differentiated: bool, net: bool,
) -> Problem:  # fmt: skip
    """`planned`, once for every problem: a network poses the same ones again and again."""
    if antialias and kind.per_tap:
        raise ValueError("antialias=True needs a kernel of the displacement; this kernel has one mixing per tap")
    batch, channels, *in_size = shape
    axes = tuple(
        axis_plan(n, out, s, k, c, antialias)
        for n, s, out, k, c in zip(in_size, scales, sizes, kernel_size, centers, strict=True)
    )
    check_reach(axes, padding_mode)
    *_, functions, out_channels, per_group = mixing
    if kind.channelwise:
        batch, channels = batch * channels, 1
    return Problem(
        batch, channels, out_channels, groups_of(channels, out_channels, per_group), axes, padding_mode, functions,
        kind.per_tap, kind.normalize, kind.separable, dtype, device, training, memory_limit, dilation, differentiated,
        net,
    )  # fmt: skip


def groups_of(channels: int, out_channels: int, per_group: int) -> int:
    """How many groups a kernel of per_group input channels makes of x's channels."""
    if channels % per_group or out_channels % (channels // per_group):
        raise ValueError(
            f"x has {channels} channels, which does not fit the kernel's mixing: it takes groups of {per_group} input "
            f"channels to {out_channels} output channels"
        )
    return channels // per_group


def check_tensors(x: Tensor, kernel: Kernel, kind: Traits, bias: Tensor | None) -> None:
    """Refuse what no plan could serve."""
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a tensor, got {type(x).__name__}")
    if not x.is_floating_point():
        raise TypeError(f"x must be a floating-point tensor, got {x.dtype}: use x.float()")
    if x.ndim not in (3, 4, 5):
        raise ValueError(f"x must be [N, C, *in] with 1, 2 or 3 spatial axes, got shape {tuple(x.shape)}")
    if 0 in x.shape[1:]:
        raise ValueError(f"x must have at least one channel and one pixel, got shape {tuple(x.shape)}")
    if bias is not None and not isinstance(bias, Tensor):
        raise TypeError(f"bias must be a tensor or None, got {type(bias).__name__}")
    mixing = None if kind.channelwise else kernel.mixing
    owned = [] if mixing is None else [("kernel", mixing)]
    for name, tensor in owned if bias is None else [*owned, ("bias", bias)]:
        if tensor.device != x.device:
            raise ValueError(f"{name} is on {tensor.device}, x is on {x.device}: move one of them")
        if tensor.dtype != x.dtype and not autocasts(x.device):
            raise TypeError(f"{name} is {tensor.dtype}, x is {x.dtype}: they must be the same, or use torch.autocast")
    out_channels = x.shape[1] if mixing is None else mixing.shape[-2]
    if bias is not None and bias.shape != (out_channels,):
        raise ValueError(f"bias must have shape ({out_channels},), one per output channel, got {tuple(bias.shape)}")


def like_format_of(x: Tensor, y: Tensor) -> Tensor:
    """channels_last in, channels_last out; otherwise contiguous. Under a transform y stays as it is."""
    if transformed():
        return y
    return y.contiguous(memory_format=format_of(x))


served_by(computed)
