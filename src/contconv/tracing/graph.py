"""A call of `continuous_conv` while torch.compile looks on: its arguments as `contconv::conv` takes them.

All of this is followed by dynamo, so it is made of what dynamo can follow. What is known while the graph is made (a
scale that is written in the program or that a layer has) becomes part of the graph; a number that may be another next
time stays a symbol: an int or a Fraction as ints, a float as a tensor, because a graph has no floats of its own.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn

from contconv.layout import is_channels_last
from contconv.precision import autocasts, computing_dtype
from contconv.size import Number, PerAxis, Size, exact, exact_scale, scaled_size
from contconv.tracing.owners import number_of
from contconv.transforms import exporting, while_tracing

SMALL = 2**31  # products of smaller ints with sizes cannot overflow


def _known(value: float) -> bool:
    """Whether a number is the same whenever the graph runs."""
    return torch.fx.experimental.symbolic_shapes.has_static_value(value)


def _surely(condition: bool) -> bool:
    """Whether a condition holds whatever the symbols are. (As `layout.surely`, which dynamo would not follow.)"""
    return torch.fx.experimental.symbolic_shapes.statically_known_true(condition)


@while_tracing
def _owner(kernel: nn.Module, axes: int) -> tuple[int, int]:
    return number_of(kernel, axes)


def _center(value: Number) -> str:
    if isinstance(value, Fraction):
        return f"{value._numerator}/{value._denominator}"  # type: ignore[attr-defined]
    return _spelled(value, "center")


@while_tracing
def _spelled(value: Number, name: str) -> str:
    return str(exact(value, name))


@while_tracing
def _ratio(value: float) -> tuple[int, int]:
    scale = exact_scale(value)
    return scale.numerator, scale.denominator


@while_tracing
def _known_size(in_size: int, numerator: int, denominator: int) -> int:
    return scaled_size(in_size, Fraction(numerator, denominator))


def ratio(scale: Number) -> tuple[int, int]:
    """Numerator and denominator of an exact scale, in a way that dynamo can follow.

    >>> ratio(0.61), ratio(Fraction(2, 3))
    ((61, 100), (2, 3))
    """
    if exporting() or not torch.compiler.is_compiling():
        scale = exact_scale(scale)
    if isinstance(scale, Fraction):
        return scale._numerator, scale._denominator  # type: ignore[attr-defined]
    return (scale, 1) if isinstance(scale, int) else _ratio(scale)


def long_scaled_size(in_size: int, numerator: int, denominator: int) -> int:
    """ceil(in_size * numerator / denominator) for a denominator of two factors SMALL, as floats have that are no simple
    fraction, without a product of more than 64 bits.

    >>> long_scaled_size(50, *0.7071.as_integer_ratio())
    36
    """
    high, low = numerator // SMALL, numerator % SMALL
    carried = -((-in_size * low) // SMALL)
    return -(-(in_size * high + carried) // (denominator // SMALL))


class _Scales:
    """The scales of a call, axis by axis."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.ratios: list[int] = []
        self.floats: list[float] = []
        self.sizes: list[int] = []

    def add(self, in_size: int, scale: Number | None, size: int | None) -> None:
        if scale is None:
            assert size is not None
            self._add_ratio(in_size, size, in_size, size)
        elif isinstance(scale, Fraction | int) or _known(scale):
            self._add_ratio(in_size, *ratio(scale), size)
        else:
            self.words.append("f")
            self.floats.append(scale)
            self.sizes.append(-1 if size is None else size)

    def _add_ratio(self, in_size: int, numerator: int, denominator: int, size: int | None) -> None:
        if _known(numerator) and _known(denominator):
            self.words.append(f"{numerator}/{denominator}")
        else:
            self.words.append("r")
            self.ratios += [numerator, denominator]
        if size is not None:
            self.sizes.append(size)
        elif _known(in_size) and _known(numerator) and _known(denominator):
            self.sizes.append(_known_size(in_size, numerator, denominator))
        elif numerator < SMALL and denominator < SMALL:
            self.sizes.append(-((-in_size * numerator) // denominator))
        elif denominator % SMALL == 0 and denominator <= SMALL * SMALL:
            self.sizes.append(long_scaled_size(in_size, numerator, denominator))
        else:
            raise ValueError("scale is a fraction of too many digits for inputs of changing size: give size= as well")


def in_graph(
    x: Tensor,
    kernel: nn.Module,
    bias: Tensor | None,
    *,
    scale: PerAxis | None,
    size: Size | None,
    padding_mode: str,
    antialias: bool,
    center: PerAxis,
    strategy: str | None,
    memory_limit: int | None,
    kernel_size: Size | None,
) -> Tensor:
    """`continuous_conv` as one operation of a graph."""
    axes = x.ndim - 2
    number, out_channels = _owner(kernel, axes)
    if scale is None and size is None:
        raise ValueError("scale and size are both None: give scale=, size=, or both")
    found = _Scales()
    for in_size, s, n in zip(x.shape[2:], _each(scale, axes), _each(size, axes), strict=True):
        found.add(in_size, s, n)
    # A product, not `torch.tensor(values)`: that is what keeps a float from being a constant of the graph.
    floats = (
        torch.stack([torch.ones((), dtype=torch.float64) * value for value in found.floats]) if found.floats else None
    )
    channels_last = is_channels_last(x, _surely)
    autocast = computing_dtype(x) if autocasts(x.device) else None
    middle = " ".join([_center(c) for c in _each(center, axes)])
    return torch.ops.contconv.conv(
        x, bias, [*kernel.parameters(), *kernel.buffers()], " ".join(found.words), found.ratios or None, floats,
        found.sizes, number, out_channels, autocast, channels_last, padding_mode, bool(antialias), middle, strategy,
        memory_limit, None if kernel_size is None else [*_each(kernel_size, axes)],
    )  # fmt: skip


def _each(value: Any, axes: int) -> Sequence[Any]:
    return value if isinstance(value, (tuple, list)) else (value,) * axes
