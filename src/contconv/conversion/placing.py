"""Where the windows of a convolution lie, in all the ways in which it may be padded."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from contconv.conversion.geometry import Geometry, SameWindows, Spread, Windows

PADS = {
    "ConstantPad": "zeros", "ZeroPad": "zeros", "ReflectionPad": "reflect", "ReplicationPad": "replicate",
    "CircularPad": "circular",
}  # fmt: skip


class Placing(NamedTuple):
    """Of a convolution: its windows along each axis, and what lies beyond the border."""

    geometry: list[Geometry]
    padding_mode: str
    words: str  # which end a sentence: "a convolution that ..."


def placings(conv: _ConvNd) -> list[Placing]:
    """The ways in which a convolution may be meant; the first is what its options say."""
    if isinstance(conv, _ConvTransposeNd):
        return [Placing(spread_geometry(conv), conv.padding_mode, "spreads its pixels as its options say")]
    known = [Placing(windows(conv, paddings(conv)), conv.padding_mode, "pads as its options say")]
    lines = zip(conv.kernel_size, conv.stride, conv.dilation, strict=True)
    known.append(Placing([SameWindows(*line) for line in lines], "zeros", 'pads as TensorFlow\'s "SAME" does'))
    for name, layer in conv.named_children():
        mode = _padding_mode(layer)
        if mode is not None:
            both = [
                (before + left, right + after)
                for (before, after), (left, right) in zip(_pads(layer), paddings(conv), strict=True)
            ]
            known.append(Placing(windows(conv, both), mode, f"pads as its {name} does"))
    return known


def windows(conv: _ConvNd, pads: Sequence[tuple[int, int]]) -> list[Geometry]:
    """The windows, with so many pixels before and after each axis."""
    return [
        Windows(taps, stride, dilation, left, right)
        for taps, stride, dilation, (left, right) in zip(
            conv.kernel_size, conv.stride, conv.dilation, pads, strict=True
        )
    ]


def paddings(conv: _ConvNd) -> list[tuple[int, int]]:
    """Pixels before and after each axis, as a convolution's options say."""
    if conv.padding == "valid":
        return [(0, 0)] * len(conv.kernel_size)
    if conv.padding == "same":
        totals = [d * (k - 1) for d, k in zip(conv.dilation, conv.kernel_size, strict=True)]
        return [(total // 2, total - total // 2) for total in totals]
    return [(int(p), int(p)) for p in conv.padding]


def spread_geometry(conv: _ConvNd) -> list[Geometry]:
    """Where the pixels of a transposed convolution go."""
    pads = [left for left, _ in paddings(conv)]
    return [
        Spread(*axis)
        for axis in zip(conv.kernel_size, conv.stride, conv.dilation, pads, conv.output_padding, strict=True)
    ]


def _padding_mode(layer: nn.Module) -> str | None:
    """What a padding layer puts beyond the border, as a convolution calls it; None if no convolution does so."""
    if getattr(layer, "value", 0) != 0:
        return None
    return next((mode for name, mode in PADS.items() if type(layer).__name__[:-2] == name), None)


def _pads(layer: nn.Module) -> list[tuple[int, int]]:
    """Pixels before and after each axis, of a padding layer, which begins with the last axis."""
    flat = [int(pixels) for pixels in layer.padding]  # type: ignore[union-attr]
    return [(flat[at], flat[at + 1]) for at in range(len(flat) - 2, -2, -2)]


def trial_sizes(conv: _ConvNd) -> list[tuple[int, ...]]:
    """Input sizes in which a stride leaves every remainder, on each axis another at a time."""
    axes = len(conv.kernel_size)
    stride, reach = max(conv.stride), max(d * (k - 1) for d, k in zip(conv.dilation, conv.kernel_size, strict=True))
    smallest = reach + 2
    return [
        tuple(smallest + (step + 2 * axis) % (2 * stride + 1) for axis in range(axes)) for step in range(2 * stride + 1)
    ]
