"""Few phases as the channels of one strided convolution, whose outputs are interleaved.

At scale k/l the filters of k neighbouring outputs lie within one window, and the window moves by l. So one convolution
with stride l and k times the output channels computes them all, mostly with zeros where a filter does not reach:
`waste` says how many multiply-adds for each useful one. Where that is little, the convolution's speed pays for it.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from contconv.grid import Axis
from contconv.strategies.conv import CONVS
from contconv.strategies.padding import extended
from contconv.strategies.problem import Problem


def waste(problem: Problem) -> float:
    """Multiply-adds of the interleaved convolution over those of the filters.

    At scale 2/3 a window of 5 holds both filters of 3 taps: 5/3 per axis.
    """
    return math.prod(_window(axis) * axis.phases * _steps(axis) / (axis.taps * axis.out_size) for axis in problem.axes)


def interleaved_conv(x: Tensor, weights: Tensor, problem: Problem) -> Tensor:
    """x: [N, Cin, *in], weights: [*phases, *taps, Cout, Cin/groups] -> [N, Cout, *out] (channels last in memory)."""
    axes, groups = len(problem.axes), problem.groups
    spans = []
    for number, axis in enumerate(problem.axes):
        stop = axis.first[0] + _stride(axis) * (_steps(axis) - 1) + _window(axis)
        spans.append((2 + number, axis.first[0], stop))
        weights = _widened(weights, number, axes + number, axis)
    x = extended(x, spans, problem.padding_mode)
    filters = weights.unflatten(-2, (groups, -1))  # [*phases, *window, g, Co, Ci]
    filters = filters.permute(2 * axes, *range(axes), 2 * axes + 1, 2 * axes + 2, *range(axes, 2 * axes))
    stride = [_stride(axis) for axis in problem.axes]
    y = CONVS[axes](x, filters.flatten(0, axes + 1).contiguous(), None, stride, groups=groups)
    # Channels last from here on: so the gradient will be, which the convolution is to go back with.
    y = y.movedim(1, -1).unflatten(-1, (groups, *(axis.phases for axis in problem.axes), -1))
    interleaved = [dim for a in range(axes) for dim in (1 + a, 2 + axes + a)]
    y = y.permute(0, *interleaved, 1 + axes, 2 + 2 * axes)  # [N, *(steps, phases), g, Co]
    y = y.reshape(problem.batch, *(_steps(axis) * axis.phases for axis in problem.axes), problem.out_channels)
    return y[(slice(None), *(slice(axis.out_size) for axis in problem.axes))].movedim(-1, 1)


def _widened(weights: Tensor, phase_dim: int, tap_dim: int, axis: Axis) -> Tensor:
    """The taps of every phase at their place in the common window, with zeros around them."""
    spare = _window(axis) - axis.taps
    moved = weights.movedim(tap_dim, -1).unbind(phase_dim)
    shifts = [axis.first[phase] - axis.first[0] for phase in range(axis.phases)]
    wide = [F.pad(taps, (shift, spare - shift)) for taps, shift in zip(moved, shifts, strict=True)]
    return torch.stack(wide, phase_dim).movedim(-1, tap_dim)


def _stride(axis: Axis) -> int:
    """Input pixels from one output to the next of the same phase."""
    return axis.first[axis.phases] - axis.first[0] if axis.out_size > axis.phases else _window(axis)


def _steps(axis: Axis) -> int:
    """How many times the window is put down."""
    return -(-axis.out_size // axis.phases)


def _window(axis: Axis) -> int:
    """Input pixels under one output of each phase."""
    return axis.first[axis.phases - 1] - axis.first[0] + axis.taps
