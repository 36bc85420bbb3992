"""Where the windows of a convolution lie, in all the ways in which it may be padded."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import nn
from torch.nn.modules import padding as layers
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from contconv.conversion.geometry import Geometry, SameWindows, Spread, Windows

PADS: dict[type[nn.Module], str] = {
    layers._ConstantPadNd: "zeros",
    layers._ReflectionPadNd: "reflect",
    layers._ReplicationPadNd: "replicate",
    layers._CircularPadNd: "circular",
}


class Placing(NamedTuple):
    """Of a convolution: its windows along each axis, and what lies beyond the border."""

    geometry: list[Geometry]
    padding_mode: str
    words: str  # which end a sentence: "a convolution that ..."


def by_options(conv: _ConvNd) -> Placing:
    """As the convolution's options say."""
    if isinstance(conv, _ConvTransposeNd):
        return Placing(spread_geometry(conv), conv.padding_mode, "spreads its pixels as its options say")
    return Placing(windows(conv, paddings(conv)), conv.padding_mode, "pads as its options say")


def by_layer(conv: _ConvNd, name: str, layer: nn.Module) -> Placing:
    """As a padding layer inside the convolution does, and then its options."""
    flat = [int(pixels) for pixels in layer.padding]  # type: ignore[union-attr]
    before = [(flat[at], flat[at + 1]) for at in range(len(flat) - 2, -2, -2)]  # it begins with the last axis
    both = [(a + left, b + right) for (a, b), (left, right) in zip(before, paddings(conv), strict=True)]
    mode = next(mode for kind, mode in PADS.items() if isinstance(layer, kind))
    return Placing(windows(conv, both), mode, f"pads as its {name} does")


def padding_layers(conv: _ConvNd) -> dict[str, nn.Module]:
    """The layers inside a convolution that pad all its axes, with zeros or by repeating what is there."""
    return {
        name: layer
        for name, layer in conv.named_children()
        if isinstance(layer, tuple(PADS))
        and len(layer.padding) == 2 * len(conv.kernel_size)  # type: ignore[arg-type]
        and _is_zero(getattr(layer, "value", 0))
    }


def _is_zero(value: object) -> bool:
    return isinstance(value, int | float) and value == 0


def as_tensorflow(conv: _ConvNd) -> Placing:
    """As TensorFlow pads."""
    lines = zip(conv.kernel_size, conv.stride, conv.dilation, strict=True)
    return Placing([SameWindows(*line) for line in lines], "zeros", 'pads as TensorFlow\'s "SAME" does')


def by_zeros(conv: _ConvNd, pads: Sequence[tuple[int, int]]) -> Placing:
    """With so many zeros before and after each axis."""
    return Placing(windows(conv, pads), "zeros", f"pads {' and '.join(f'{a} + {b}' for a, b in pads)} zeros")


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
