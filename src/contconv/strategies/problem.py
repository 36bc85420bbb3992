"""Everything about a call that can be known before a tensor is touched."""

import math
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from contconv.grid import Axis
from contconv.kernels import Kernel


@dataclass(frozen=True)
class Problem:
    """One continuous convolution: [N, Cin, *in] -> [N, Cout, *out] with the kernel's R basis functions."""

    batch: int
    in_channels: int
    out_channels: int
    groups: int
    axes: tuple[Axis, ...]
    padding_mode: str
    basis_functions: int
    per_tap: bool
    normalize: bool
    separable: bool
    dtype: torch.dtype
    device: torch.device
    training: bool = False  # whether a gradient of x or the kernel will be asked for, as far as can be known
    memory_limit: int | None = None  # bytes beyond input, output and parameters
    dilation: tuple[int, ...] | None = None  # of the convolution that the kernel is on the grid of its taps
    differentiated: bool = False  # whether by others than plain autograd: torch.func, forward mode
    net: bool = False  # whether the basis is that of `InternalNet`
    basis_macs: int = 0  # multiply-adds of the basis at one displacement, where `explain` has counted them

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Problems are keys of caches on the way of a call."""
        return hash(tuple(getattr(self, field.name) for field in fields(self)))

    def __getstate__(self) -> dict[str, object]:
        """Without what is cached: hashes of strings are others in every process."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def in_size(self) -> tuple[int, ...]:
        return tuple(axis.in_size for axis in self.axes)

    @cached_property
    def out_size(self) -> tuple[int, ...]:
        return tuple(axis.out_size for axis in self.axes)

    @cached_property
    def inputs(self) -> int:
        """Input pixels of one image."""
        return math.prod(self.in_size)

    @cached_property
    def outputs(self) -> int:
        """Output pixels of one image."""
        return math.prod(self.out_size)

    @cached_property
    def phases(self) -> int:
        """Different filters."""
        return math.prod(axis.phases for axis in self.axes)

    @cached_property
    def taps(self) -> int:
        """Neighbours of an output pixel."""
        return math.prod(axis.taps for axis in self.axes)

    @cached_property
    def on_taps(self) -> bool:
        """Whether every output pixel sees the taps themselves, of a kernel that has some, and nothing between them."""
        middles = ((Fraction(axis.taps - 1, 2),) for axis in self.axes)
        return self.dilation is not None and all(a.residual == m for a, m in zip(self.axes, middles, strict=True))

    @cached_property
    def pixels(self) -> int:
        """Numbers in the input and the output."""
        return self.batch * (self.in_channels * self.inputs + self.out_channels * self.outputs)

    @cached_property
    def width(self) -> int:
        """Bytes of a number that is computed with."""
        return max(self.dtype.itemsize, 4)

    @cached_property
    def macs(self) -> int:
        """Multiply-adds of filters applied to pixels."""
        return self.batch * self.outputs * self.taps * self.weights

    @cached_property
    def sampling_macs(self) -> int:
        """Multiply-adds of the basis at every displacement of the plan."""
        return self.basis_macs * self.phases * (1 if self.per_tap else self.taps)

    @cached_property
    def weights(self) -> int:
        """Numbers in one filter tap: Cout * Cin / groups."""
        return self.out_channels * self.in_channels // self.groups


def biased(y: Tensor, bias: Tensor | None) -> Tensor:
    """[N, Cout, *out] plus one number per output channel."""
    return y if bias is None else y + bias.reshape(-1, *(1 for _ in y.shape[2:]))


@dataclass(frozen=True)
class Cost:
    """Multiply-adds of a forward pass, and bytes beyond input, output, parameters and their gradients, with the way
    back where there will be one."""

    macs: int
    bytes: int


class Strategy(Protocol):
    """One way of computing y. A strategy without rates of its own (see `model.py`) is never picked by itself."""

    @property
    def name(self) -> str: ...

    def why_not(self, problem: Problem) -> list[str]:
        """The reasons against running this problem; none: it can."""

    def cost(self, problem: Problem) -> Cost:
        """What it takes, for people and for `memory_limit`."""

    def engine(self, problem: Problem) -> str:
        """Under which name the model has its rates."""

    def counts(self, problem: Problem) -> dict[str, float]:
        """What the model multiplies with the rates."""

    def run(self, x: Tensor, kernel: Kernel, bias: Tensor | None, problem: Problem) -> Tensor:
        """x: [N, Cin, *in] -> [N, Cout, *out]."""
