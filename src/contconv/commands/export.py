"""`contconv export`: trained weights -> an ONNX file."""

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
import tyro

from contconv.commands.parsing import scales
from contconv.exporting import save_onnx
from contconv.models.architecture import INPUT_SIZE, MAP_SIZE
from contconv.models.ccnet import STEPS, TARGET, CCNet, equal_steps
from contconv.models.networks import load_weights


@dataclass(frozen=True)
class Export:
    """Write a trained network as an ONNX file of standard operations, for batches of any size.

    For example: contconv export model.safetensors --scale 2/3 out.onnx
    """

    weights: tyro.conf.Positional[Path]
    """A network's weights, as `contconv cifar train` and `publish` write them."""
    out: tyro.conf.Positional[Path]
    """Where to write."""
    scale: str | None = None
    """What the layers of a CCNet shrink by in all, in equal steps; 1/4 is what it was trained with. The input has
    8 / scale pixels a side, rounded down."""


def obey(command: Export) -> int:
    """Read, export, write."""
    if command.out.suffix != ".onnx":
        raise ValueError(f"out must be a name that ends in .onnx, got {str(command.out)!r}")
    model, network = load_weights(command.weights)
    size: int = INPUT_SIZE
    options: dict[str, Any] = {}
    if isinstance(model, CCNet):
        (whole,) = {TARGET} if command.scale is None else set(scales(command.scale, 1))
        size = input_size(whole)
        options = {"scales": equal_steps(STEPS, whole)}
    elif command.scale is not None:
        raise ValueError(f"--scale is for ccnet, {network.model} has one size: leave it out")
    save_onnx(command.out, model, torch.zeros(2, 3, size, size), **options)
    print(f"{command.out}: {network.model}, x [N, 3, {size}, {size}] -> y [N, 10]")
    return 0


def input_size(whole: Fraction) -> int:
    """The largest input that this scale takes to the map which the fully connected layers need."""
    size = int(MAP_SIZE / whole)
    if -(-size * whole.numerator // whole.denominator) != MAP_SIZE:
        raise ValueError(f"--scale {whole} takes no input size to the {MAP_SIZE}x{MAP_SIZE} that the network needs")
    return size
