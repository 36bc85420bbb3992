"""`contconv convert`: the weights of a trained network, as those of a continuous one."""

import importlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import tyro
from torch import nn

from contconv import files
from contconv.commands.parsing import sizes
from contconv.conversion import conversion_report, convert, load_weights, save_converted


@dataclass(frozen=True)
class Convert:
    """Replace the convolutions of a trained network by continuous ones with the same outputs.

    For example: contconv convert torchvision.models:resnet18 resnet18.safetensors continuous.safetensors

    The factory makes the network; the files hold weights. The report of what was replaced, what not, and why is printed
    and written beside the output. Read the result with contconv.load_converted(factory(), "continuous.safetensors").
    """

    factory: tyro.conf.Positional[str]
    """Where the function is that makes the network, as module:function; it is called without arguments."""
    weights: tyro.conf.Positional[Path]
    """The trained weights, a safetensors file."""
    out: tyro.conf.Positional[Path]
    """Where to write the converted weights; the report has the same name and the suffix .json."""
    layers: tuple[str, ...] = ("strided",)
    """Which layers: strided, all, names or patterns such as "layer2.*"."""
    kernel: Literal["spline", "table"] = "spline"
    """What fills in between the taps at other scales: a cubic spline, or the nearest tap."""
    check: str | None = None
    """Compare the outputs on noise of this shape, channels first, for example 3x32x32."""


def obey(command: Convert) -> int:
    """Make, fill, convert, write."""
    if not command.weights.is_file():
        raise ValueError(f"no such file: {command.weights}")
    model = made(command.factory)
    load_weights(model, command.weights)
    model.eval()
    converted = convert(model, list(command.layers), kernel=command.kernel)
    report = conversion_report(converted)
    print(report)
    if command.check is not None:
        print(f"largest difference on noise of {command.check}: {difference(model, converted, command.check):.3g}")
    save_converted(converted, command.out)
    path = command.out.with_suffix(".json")
    files.write_text(path, json.dumps({"factory": command.factory, **report.as_dict()}, indent=2) + "\n")
    print(f"weights: {command.out}\nreport: {path}")
    return 0


def made(factory: str) -> nn.Module:
    """What the function module:function makes; the module may lie in the current folder."""
    module, _, name = factory.partition(":")
    if not module or not name:
        raise ValueError(f"the factory must be module:function, got {factory!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"the factory {factory!r} cannot be found: {error}") from error
    model = function()
    if not isinstance(model, nn.Module):
        raise TypeError(f"the factory {factory!r} made a {type(model).__name__}, not an nn.Module")
    return model


def difference(one: nn.Module, other: nn.Module, shape: str) -> float:
    """The largest difference of two networks' outputs on noise."""
    x = torch.randn(1, *sizes(shape, None, "--check"), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        a, b = one(x), other(x)
    if not isinstance(a, torch.Tensor):
        raise TypeError(f"--check is for networks that return one tensor; this one returns a {type(a).__name__}")
    return float((a - b).abs().max())
