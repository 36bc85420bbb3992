"""Networks that begin with trained weights: of their own kind, or a CCNet with those of a ConvNet, which it then is."""

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import torch
from torch import Tensor, nn

from contconv.kernels import SplineKernel, TapKernel
from contconv.models.architecture import layers
from contconv.models.ccnet import CCNet
from contconv.models.convnet import ConvNet
from contconv.models.networks import Network, load_weights

STARTED = ("taps", "spline", "spline-folded")  # kernels that taps determine
STRIDES = tuple(Fraction(1, layer.stride) for layer in layers(3, 32)[1:])  # the scales at which CCNet is a ConvNet


@dataclass(frozen=True)
class Start:
    """The file of trained weights."""

    path: str
    sha256: str


def start(path: Path, network: Network) -> Start:
    """What a network of this kind shall begin with, if it can."""
    _, there = load_weights(path)
    if there != network:
        check_convnet(there, network, path)
    return Start(str(path), hashlib.sha256(path.read_bytes()).hexdigest())


def check_convnet(there: Network, network: Network, path: Path) -> None:
    """Refuse other weights than those of a ConvNet for a CCNet that can begin as one."""
    if network.model != "ccnet" or {network.kernel, network.last_kernel or network.kernel} - {*STARTED}:
        raise ValueError(
            f"init must hold the weights of {network} (only ccnet with one of the kernels {', '.join(STARTED)} can "
            f"begin as a convnet), got {there} in {path}"
        )
    wanted = Network("convnet", None, network.padding_mode, network.width, network.hidden)
    if there != wanted:
        raise ValueError(f"init must hold the weights of {network} or of {wanted}, got {there} in {path}")


def begin(model: nn.Module, found: Start) -> None:
    """Fill a fresh network with the weights of the file."""
    path = Path(found.path)
    if hashlib.sha256(path.read_bytes()).hexdigest() != found.sha256:
        raise ValueError(f"init: {path} is another file than the run was begun with")
    there, _ = load_weights(path)
    if isinstance(model, CCNet) and isinstance(there, ConvNet):
        take_over(model, there)
    else:
        model.load_state_dict(there.state_dict())


def take_over(model: CCNet, convnet: ConvNet) -> None:
    """Let CCNet's kernels go through ConvNet's taps, and copy all else; `model(x, STRIDES)` is then `convnet(x)`.

    >>> ccnet, convnet = CCNet("spline", width=4, hidden=8), ConvNet(width=4, hidden=8)
    >>> take_over(ccnet, convnet)
    >>> x = torch.randn(2, 3, 32, 32)
    >>> torch.allclose(ccnet(x, STRIDES), convnet(x), atol=1e-5)
    True
    """
    with torch.no_grad():
        for layer, conv in zip(model.convs, convnet.convs, strict=True):
            assert isinstance(conv, nn.Conv2d)
            go_through(layer.kernel, conv.weight)
            layer.get_parameter("bias").copy_(conv.get_parameter("bias"))
        model.head.load_state_dict(convnet.head.state_dict())


def go_through(kernel: nn.Module | Tensor, taps: Tensor) -> None:
    """Make the kernel the one through these taps [Cout, Cin, *K], if its kind has one."""
    if isinstance(kernel, TapKernel):
        kernel.weight.copy_(taps)
    elif isinstance(kernel, SplineKernel):
        kernel.interpolate(taps)
    else:
        raise TypeError(f"model must have kernels of the kinds {', '.join(STARTED)}, got {type(kernel).__name__}")
