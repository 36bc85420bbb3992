"""`contconv explain`: what a layer would do with an input, and what it costs."""

from dataclasses import dataclass
from typing import Literal

from contconv.commands.parsing import scales, sizes
from contconv.explanation import explain
from contconv.modules import ContinuousConv1d, ContinuousConv2d, ContinuousConv3d

LAYERS = {1: ContinuousConv1d, 2: ContinuousConv2d, 3: ContinuousConv3d}


@dataclass(frozen=True)
class Explain:
    """Say how a layer would compute: the strategy, why not the others, phases, multiply-adds and memory.

    For example: contconv explain --channels 32 32 --kernel 3 --input 64x64 --scale 2/3
    """

    channels: tuple[int, int]
    """Input and output channels."""
    input: str
    """The input's size, for example 64x64; one to three axes."""
    kernel: int = 3
    """The kernel size."""
    scale: str | None = None
    """The scale, for example 2/3 or 0.61x1.37."""
    size: str | None = None
    """The output's size instead of the scale, or with it."""
    batch: int = 1
    """How many images."""
    family: Literal["internal", "internal-per-tap", "spline"] = "internal"
    """The kind of kernel."""
    groups: int = 1
    """Groups of channels."""


def obey(command: Explain) -> int:
    """Print the explanation."""
    shape = sizes(command.input, None, "--input")
    if len(shape) not in LAYERS:
        raise ValueError(f"--input must have one to three axes, got {command.input!r}")
    if command.batch < 1:
        raise ValueError(f"--batch must be at least 1, got {command.batch}")
    if command.scale is None and command.size is None:
        raise ValueError("give --scale, --size, or both")
    axes = len(shape)
    layer = LAYERS[axes](*command.channels, command.kernel, kernel=command.family, groups=command.groups)
    scale = None if command.scale is None else scales(command.scale, axes)
    size = None if command.size is None else sizes(command.size, axes, "--size")
    print(explain(layer, (command.batch, command.channels[0], *shape), scale=scale, size=size))
    return 0
