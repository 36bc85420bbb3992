"""Everything about a call that can be known before a tensor is touched."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from contconv.grid import Axis


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

    @property
    def in_size(self) -> tuple[int, ...]:
        return tuple(axis.in_size for axis in self.axes)

    @property
    def out_size(self) -> tuple[int, ...]:
        return tuple(axis.out_size for axis in self.axes)

    @property
    def inputs(self) -> int:
        """Input pixels of one image."""
        return math.prod(self.in_size)

    @property
    def outputs(self) -> int:
        """Output pixels of one image."""
        return math.prod(self.out_size)

    @property
    def phases(self) -> int:
        """Different filters."""
        return math.prod(axis.phases for axis in self.axes)

    @property
    def taps(self) -> int:
        """Neighbours of an output pixel."""
        return math.prod(axis.taps for axis in self.axes)

    @property
    def weights(self) -> int:
        """Numbers in one filter tap: Cout * Cin / groups."""
        return self.out_channels * self.in_channels // self.groups


def biased(y: Tensor, bias: Tensor | None) -> Tensor:
    """[N, Cout, *out] plus one number per output channel."""
    return y if bias is None else y + bias.reshape(-1, *(1 for _ in y.shape[2:]))


@dataclass(frozen=True)
class Cost:
    """What a forward pass takes: multiply-adds, and bytes beyond input, output and parameters."""

    macs: int
    bytes: int
