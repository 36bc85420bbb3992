"""Back from a continuous layer to a discrete one, where a grid has one phase and so one filter."""

import warnings
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Protocol

import torch
from torch import Tensor, nn

from contconv.functional import planned
from contconv.grid import Axis
from contconv.kernels import Kernel, traits
from contconv.kernels.sampling import sampled_weights
from contconv.overrides import Resize
from contconv.size import plain
from contconv.strategies.conv import one_filter
from contconv.strategies.problem import Problem

CONVS: dict[int, Callable[..., nn.Module]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
ZERO_PADS: dict[int, Callable[..., nn.Module]] = {1: nn.ConstantPad1d, 2: nn.ConstantPad2d, 3: nn.ConstantPad3d}
PADS: dict[str, dict[int, Callable[..., nn.Module]]] = {
    "reflect": {1: nn.ReflectionPad1d, 2: nn.ReflectionPad2d, 3: nn.ReflectionPad3d},
    "replicate": {1: nn.ReplicationPad1d, 2: nn.ReplicationPad2d, 3: nn.ReplicationPad3d},
    "circular": {1: nn.CircularPad1d, 2: nn.CircularPad2d, 3: nn.CircularPad3d},
}


class Layer(Protocol):
    """What is needed of a continuous layer."""

    kernel: Kernel
    bias: nn.Parameter | None
    in_channels: int
    kernel_size: tuple[int, ...]
    padding_mode: str
    antialias: bool


class SeveralFilters(ValueError):
    """A grid of several phases was asked for as one convolution."""


def discrete_layer(layer: Layer, in_size: Sequence[int], grid: Resize) -> nn.Module:
    """The convolution that computes this grid: an `nn.ConvNd`, behind a padding where its own cannot say which."""
    problem = _problem(layer, in_size, grid)
    if problem.phases != 1:
        raise SeveralFilters(
            f"scale={_by([plain(s) for s in grid.scale])} has {_by([axis.phases for axis in problem.axes])} phases, "
            f"each with a filter of its own, and a convolution has one: only 1/k has one phase; lossy=True gives the "
            f"nearest"
        )
    weight, dilation = _filter(layer, problem)
    strides = [axis.scale.denominator for axis in problem.axes]
    pads = [(-axis.first[0], axis.first[-1] + axis.taps - axis.in_size) for axis in problem.axes]
    symmetric = all(_is_symmetric(axis, stride) for axis, stride in zip(problem.axes, strides, strict=True))
    conv = CONVS[len(strides)](
        layer.in_channels, weight.shape[0], tuple(weight.shape[2:]), tuple(strides),
        tuple(left for left, _ in pads) if symmetric else 0, dilation, layer.in_channels // weight.shape[1],
        layer.bias is not None, layer.padding_mode if symmetric else "zeros", weight.device, weight.dtype,
    )  # fmt: skip
    with torch.no_grad():
        conv.get_parameter("weight").copy_(weight)
        if layer.bias is not None:
            conv.get_parameter("bias").copy_(layer.bias)
    return conv if symmetric else nn.Sequential(*_paddings(pads, layer.padding_mode), conv)


def nearest_discrete_layer(layer: Layer, in_size: Sequence[int], wanted: Resize, near: Resize) -> nn.Module:
    """The convolution of the grid `near`, of a scale 1/k, with a warning that says what is lost of the grid wanted."""
    every, one = (
        sampled_weights(layer.kernel, _problem(layer, in_size, grid).axes, layer.kernel.mixing.device).detach()
        for grid in (wanted, near)
    )
    lost = ((every - one).square().mean() / every.square().mean().clamp_min(1e-30)).sqrt().item()
    warnings.warn(
        f"to_conv: a convolution has the scale {_by([plain(s) for s in near.scale])} instead of "
        f"{_by([plain(s) for s in wanted.scale])} and one filter instead of {every.shape[: len(in_size)].numel()}; "
        f"they differ from it by {100 * lost:.0f} % of their size (root mean square)",
        stacklevel=3,
    )
    return discrete_layer(layer, in_size, near)


def nearest_strides(scale: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """The scales 1/k next to these."""
    return tuple(Fraction(1, max(1, round(1 / s))) for s in scale)


def usual_size(scale: Sequence[Fraction], own_scale: Sequence[Fraction], kernel_size: Sequence[int]) -> tuple[int, ...]:
    """A size that the strides at both scales divide, and that is large enough for every border."""
    return tuple(
        s.denominator * own.denominator * (k + 4) for s, own, k in zip(scale, own_scale, kernel_size, strict=True)
    )


def _problem(layer: Layer, in_size: Sequence[int], grid: Resize) -> Problem:
    mixing = layer.kernel.mixing
    return planned(
        torch.Size((1, layer.in_channels, *in_size)), layer.kernel, scale=grid.scale, size=grid.size,
        center=grid.center, padding_mode=layer.padding_mode, antialias=layer.antialias, kernel_size=layer.kernel_size,
        dtype=mixing.dtype, device=mixing.device,
    )  # fmt: skip


def _filter(layer: Layer, problem: Problem) -> tuple[Tensor, tuple[int, ...]]:
    """[Cout, Cin/groups, *taps] and its dilation."""
    with torch.no_grad():
        weight, dilation = one_filter(layer.kernel, problem)
    weight = weight.to(problem.dtype)
    if traits(layer.kernel).channelwise:
        weight = weight.expand(layer.in_channels, 1, *weight.shape[2:])
    return weight, dilation


def _is_symmetric(axis: Axis, stride: int) -> bool:
    """Whether a convolution that pads by as much on the right as on the left has as many outputs."""
    left = -axis.first[0]
    return left >= 0 and (axis.in_size + 2 * left - axis.taps) // stride + 1 == axis.out_size


def _paddings(pads: list[tuple[int, int]], padding_mode: str) -> list[nn.Module]:
    """What crops where a border is not seen, and what pads where more is."""
    crop = [min(n, 0) for pair in reversed(pads) for n in pair]
    pad = [max(n, 0) for pair in reversed(pads) for n in pair]
    if padding_mode == "zeros":
        return [ZERO_PADS[len(pads)]([a + b for a, b in zip(crop, pad, strict=True)], 0.0)]
    cropping = [ZERO_PADS[len(pads)](crop, 0.0)] if any(crop) else []
    return [*cropping, PADS[padding_mode][len(pads)](pad)]


def _by(values: Sequence[object]) -> str:
    return " x ".join(str(value) for value in values)
