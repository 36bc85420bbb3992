"""One phase per axis, which is every scale 1/k: a plain strided convolution with the kernel sampled at that phase."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from contconv.grid import Axis
from contconv.kernels import Kernel, TapKernel, traits
from contconv.kernels.sampling import sampled_weights
from contconv.size import plain
from contconv.strategies.padding import extended
from contconv.strategies.problem import Cost, Problem

CONVS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


class Conv:
    name = "conv"

    def why_not(self, problem: Problem) -> list[str]:
        return [
            f"axis {number} has {axis.phases} phases at scale {plain(axis.scale)}; only 1/k has one"
            for number, axis in enumerate(problem.axes)
            if axis.phases != 1
        ]

    def cost(self, problem: Problem) -> Cost:
        if problem.on_taps:
            return Cost(problem.batch * problem.outputs * problem.basis_functions * problem.weights, 0)
        weights = problem.taps * problem.weights
        return Cost(
            macs=(problem.batch * problem.outputs + problem.basis_functions) * weights + problem.sampling_macs,
            bytes=problem.dtype.itemsize * weights,
        )

    def engine(self, problem: Problem) -> str:
        return self.name

    def counts(self, problem: Problem) -> dict[str, float]:
        return {}

    def run(self, x: Tensor, kernel: Kernel, bias: Tensor | None, problem: Problem) -> Tensor:
        filters, dilation = one_filter(kernel, problem)
        stride, padding, cuts = _placement(problem.axes, problem.padding_mode)
        dtype = _applied_in(kernel, x.dtype)
        seen = extended(x.to(dtype), cuts, problem.padding_mode)
        if problem.taps == 1:
            seen, stride = _picked(seen, stride), (1,) * len(stride)
        seen = _with_plain_strides(seen)
        bias = None if bias is None else bias.to(dtype)
        filters = filters.to(dtype).contiguous()
        return CONVS[len(stride)](seen, filters, bias, stride, padding, dilation, problem.groups).to(x.dtype)


def _picked(x: Tensor, stride: Sequence[int]) -> Tensor:
    """The pixels that single taps see. Of few channels, channels last, oneDNN's gradient of such filters with strides
    writes beyond its memory (`nn.Conv2d(3, 8, 1, stride=2)` crashes as well)."""
    for number, step in enumerate(stride, start=2):
        if step > 1:
            x = x[(slice(None),) * number + (slice(None, None, step),)]
    return x


def _with_plain_strides(x: Tensor) -> Tensor:
    """The same. Of one channel, one pixel wide and channels last, oneDNN convolves what is not there."""
    if x.device.type == "cpu" and x.shape[1] == 1 and x.shape[-1] == 1:
        return x.clone(memory_format=torch.contiguous_format)
    return x


def _applied_in(kernel: Kernel, dtype: torch.dtype) -> torch.dtype:
    """A learned filter in half precision is rounded, as a convolution's is; a fixed one is exact in any precision."""
    return torch.promote_types(dtype, torch.float32) if traits(kernel).channelwise else dtype


def one_filter(kernel: Kernel, problem: Problem) -> tuple[Tensor, tuple[int, ...]]:
    """The filter [Cout, Cin/groups, *taps] of a problem of one phase, and its dilation."""
    axes = len(problem.axes)
    if problem.on_taps:
        assert isinstance(kernel, TapKernel)
        return kernel.weight, kernel.dilation
    weights = sampled_weights(kernel, problem.axes, problem.device)  # [*1, *taps, Cout, Cin/groups]
    return weights.reshape(weights.shape[axes:]).movedim((-2, -1), (0, 1)), (1,) * axes


def _step(axis: Axis) -> int:
    """Input pixels from one output pixel to the next."""
    return axis.first[1] - axis.first[0] if axis.out_size > 1 else axis.taps


@lru_cache(maxsize=4096)
def _placement(
    axes: tuple[Axis, ...], padding_mode: str
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, int, int], ...]]:
    """The stride, the zero padding left for the convolution itself, and what of the input the filters see along those
    dimensions where it is not that: (dimension, start, stop)."""
    stride = [_step(axis) for axis in axes]
    padding = [0] * len(stride)
    cuts = []
    for number, (axis, step) in enumerate(zip(axes, stride, strict=True)):
        left = -axis.first[0]
        spare = (axis.in_size + 2 * left - axis.taps) // step + 1 - axis.out_size
        if padding_mode == "zeros" and left >= 0 and spare == 0 and (left == 0 or axis.taps > 1):
            padding[number] = left  # symmetric: the convolution does it without a copy
        else:
            cuts.append((2 + number, axis.first[0], axis.first[-1] + axis.taps))
    return tuple(stride), tuple(padding), tuple(cuts)
