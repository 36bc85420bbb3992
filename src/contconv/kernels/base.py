"""What every kernel is: W(d) = sum over r of basis_r(d) * mixing_r."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import cast

import torch
from torch import Tensor, nn

from contconv.size import Size, exact_sizes


class Kernel(nn.Module):
    """A continuous kernel: a basis of R functions of the displacement, and a mixing of them for each pair of channels.

    A subclass gives `basis(d: [..., D]) -> [..., R]` and `mixing: [R, Cout, Cin/groups]`; any other module that has the
    two (and `kernel_size`) works as well. `d` arrives in at least float32.

    Traits, as class or instance attributes:

    - `per_tap`: the basis is a function of the grid's displacement from the centre of its window, in (-1/2, 1/2], and
      each tap has its own mixing: [T, R, Cout, Cin/groups]
    - `channelwise`: the kernel acts on each channel alone, whatever their number; mixing is [1, 1, 1]
    - `normalize`: the taps of every output pixel are divided by their sum
    - `separable`: R = 1, and basis(d) is the product of `profile(d_a)` over the axes
    - `remembers`: samples may be kept as long as parameters, buffers and `extra_repr()` stay what they are
    """

    per_tap = False
    channelwise = False
    normalize = False
    separable = False
    remembers = False

    kernel_size: tuple[int, ...] | int  # an int serves any number of axes
    mixing: Tensor

    def basis(self, d: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} must define basis(d: [..., D]) -> [..., R]")

    def forward(self, d: Tensor) -> Tensor:
        """The kernel itself, anywhere. d: [..., D] -> [..., Cout, Cin/groups].

        A layer looks at it in the half-open support -K/2 < d <= K/2 only.
        """
        return torch.einsum("...r,roi->...oi", self.basis(d), self.mixing.to(d.dtype))


def as_kernel(module: object) -> Kernel:
    """A module that has a basis and a mixing *is* a kernel, whatever its class."""
    # The class first: a mixing that is a property need not be computed to be there.
    has_mixing = hasattr(type(module), "mixing") or hasattr(module, "mixing")
    if not isinstance(module, nn.Module) or not hasattr(module, "basis") or not has_mixing:
        raise TypeError(f"kernel must be a module with a basis and a mixing, got {type(module).__name__}")
    return cast(Kernel, module)


@dataclass(frozen=True)
class Traits:
    """The traits of `Kernel`, of any module that has a basis and a mixing."""

    per_tap: bool
    channelwise: bool
    normalize: bool
    separable: bool
    remembers: bool


TRAITS = tuple(field.name for field in fields(Traits))
POSSIBLE = {said: Traits(*said) for said in product((False, True), repeat=len(TRAITS))}


def traits(kernel: Kernel) -> Traits:
    """What kind of kernel this is; a user's own module need not say."""
    return POSSIBLE[tuple(bool(getattr(kernel, name, False)) for name in TRAITS)]


class LearnedKernel(Kernel):
    """A kernel whose mixing is a parameter of its own, with the channels and the support it was made for."""

    remembers = True

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Sequence[int], groups: int, init: str) -> None:
        super().__init__()
        if not isinstance(kernel_size, Sequence):
            raise TypeError(f"kernel_size must be a tuple, one int per spatial axis, got {kernel_size!r}")
        check_channels(in_channels, out_channels, groups)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = exact_sizes(kernel_size, len(kernel_size), "kernel_size")
        self.groups = groups
        self.init = init

    def reset_parameters(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define reset_parameters()")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.init != "default":
            text += f", init={self.init!r}"
        return text


def check_channels(in_channels: int, out_channels: int, groups: int) -> None:
    """Refuse channels that the groups do not divide."""
    for name, value in (("in_channels", in_channels), ("out_channels", out_channels), ("groups", groups)):
        exact_sizes(value, 1, name)
    for name, value in (("in_channels", in_channels), ("out_channels", out_channels)):
        if value % groups:
            raise ValueError(f"{name}={value} must be divisible by groups={groups}")


def support(kernel: Kernel, axes: int, kernel_size: Size | None = None) -> tuple[int, ...]:
    """The kernel size along each axis, from the kernel or, where a user's own module has none, as given."""
    own = getattr(kernel, "kernel_size", kernel_size)
    if own is None:
        raise TypeError(f"kernel {type(kernel).__name__} has no attribute kernel_size: add it, or give kernel_size=")
    if isinstance(own, Sequence) and len(own) != axes:
        raise ValueError(f"kernel has {len(own)} axes (kernel_size={tuple(own)}), but x has {axes} spatial axes")
    return exact_sizes(own, axes, "kernel_size")
