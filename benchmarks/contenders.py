"""What is compared: the layer, in every way it can compute, beside what users do today."""

from collections.abc import Callable

import torch
from cases import Case
from resize_right import interp_methods, resize
from torch import Tensor, nn
from torch.nn import functional as F

import contconv
from contconv.functional import planned
from contconv.strategies import chosen
from contconv.strategies.factored import Factored
from contconv.strategies.model import predicted_seconds
from contconv.strategies.phases import Phases

Contender = tuple[Callable[[Tensor], Tensor], list[Tensor]]  # the call, and its parameters


def input_of(case: Case, dtype: torch.dtype = torch.float32) -> Tensor:
    torch.manual_seed(0)
    x = torch.randn(case.batch, case.channels[0], *case.in_size).to(dtype)
    return (x if case.contiguous else x.to(memory_format=torch.channels_last)).requires_grad_(case.training)


def stack(case: Case, make: Callable[[], nn.Module]) -> nn.Sequential:
    layers = nn.Sequential(*(make() for _ in range(case.layers))).train(case.training)
    return layers if case.contiguous else layers.to(memory_format=torch.channels_last)


def convolution(case: Case) -> Contender:
    """`nn.Conv2d` with stride 1 and the padding that keeps the size (even kernels: one pixel less)."""
    torch.manual_seed(0)
    net = stack(case, lambda: nn.Conv2d(*case.channels, case.kernel_size, padding=case.kernel_size // 2))
    return net, list(net.parameters())


def interpolation_and_convolution(case: Case) -> Contender:
    """Resize to the output size first, then convolve."""
    net, parameters = convolution(case)
    size = contconv.output_sizes(case.in_size, [case.scale])[0]

    def call(x: Tensor) -> Tensor:
        return net(F.interpolate(x, size=size, mode="bilinear", align_corners=False))

    return call, parameters


def resize_right_and_convolution(case: Case) -> Contender:
    """The same with ResizeRight's linear interpolation by strided convolutions, where the scale is a fraction."""
    net, parameters = convolution(case)
    scales = [float(scale) for scale in case.scale]

    def call(x: Tensor) -> Tensor:
        resized = resize(x, scales, interp_method=interp_methods.linear, antialiasing=False, by_convs=True)
        return net(resized if case.contiguous else resized.contiguous(memory_format=torch.channels_last))

    return call, parameters


def continuous(case: Case, strategy: str | None = None, dtype: torch.dtype = torch.float32) -> Contender:
    torch.manual_seed(0)
    net = stack(
        case,
        lambda: contconv.ContinuousConv2d(
            *case.channels, case.kernel_size, case.scale, kernel=case.kernel, strategy=strategy
        ),
    ).to(dtype)
    return net, list(net.parameters())


def plain_phases(case: Case) -> Contender:
    """The paper's discrete convolutions, in PyTorch alone."""
    net, parameters = continuous(case)

    def call(x: Tensor) -> Tensor:
        for layer in net:
            x = without_native(layer, x)
        return x

    return call, parameters


def without_native(layer: contconv.ContinuousConv2d, x: Tensor) -> Tensor:
    """layer(x) as it runs where the native kernel is not built."""
    problem = planned(
        x.shape, layer.kernel, scale=layer.scale, size=None, padding_mode="zeros", antialias=False, center=0,
        training=torch.is_grad_enabled(),
    )  # fmt: skip
    strategy = chosen(problem)
    if strategy.name in ("phases", "factored"):
        plain = [s for s in (Phases(native=False), Factored(native=False)) if not s.why_not(problem)]
        strategy = min(plain, key=lambda s: predicted_seconds(s, problem) or float("inf"))
    return strategy.run(x, layer.kernel, layer.bias, problem)
