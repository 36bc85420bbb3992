"""The networks by name, and their weights in a file that says which network they belong to."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from contconv import files
from contconv.kernels import KERNELS, SplineKernel, TapKernel
from contconv.models.architecture import PaddingMode
from contconv.models.blurpool import BlurPoolNet
from contconv.models.ccnet import CCNet, check_last_layers
from contconv.models.convnet import ConvNet
from contconv.modules import ContinuousConv2d

ModelName = Literal["ccnet", "convnet", "blurpool"]
Initial = Literal["default", "kaiming"]
PAPER_KERNEL = "internal-per-tap"

# What `--kernel` takes: the library's own names, a spline that can follow more, one that answers a constant alike at
# every phase, and one whose parameters are its values at the pixels, as a convolution's are.
KERNEL_CHOICES: dict[str, str | Callable[..., Any]] = {
    **{name: name for name in KERNELS},
    "spline-dense": partial(SplineKernel, density=2),
    "spline-folded": partial(SplineKernel, fold=True),
    "taps": TapKernel,
}
MODELS: dict[str, Callable[..., nn.Module]] = {"ccnet": CCNet, "convnet": ConvNet, "blurpool": BlurPoolNet}


@dataclass(frozen=True)
class Network:
    """Which network: as much as it takes to make it again."""

    model: ModelName = "ccnet"
    kernel: str | None = None
    """Of CCNet's layers; None is the paper's."""
    padding_mode: PaddingMode = "zeros"
    width: int = 32
    hidden: int = 512
    last_kernel: str | None = None
    """Of CCNet's last layers; None is that of the others."""
    last_layers: int = 1

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise ValueError(f"model must be one of {', '.join(MODELS)}, got {self.model!r}")
        for name in ("kernel", "last_kernel"):
            kernel = getattr(self, name)
            if self.model != "ccnet" and kernel is not None:
                raise ValueError(f"{name} is for ccnet only, {self.model} has none: leave it out")
            if kernel is not None and kernel not in KERNEL_CHOICES:
                raise ValueError(f"{name} must be one of {', '.join(KERNEL_CHOICES)}, got {kernel!r}")
        check_last_layers(self.last_layers)
        if self.last_layers > 1 and self.last_kernel is None:
            raise ValueError(f"last_layers={self.last_layers} needs a last_kernel")


def completed(network: dict[str, Any]) -> dict[str, Any]:
    """A network's description as this version writes it: what an older one did not know has its default."""
    return asdict(Network(**network))


def build(network: Network, initial: Initial = "default") -> nn.Module:
    """The network with fresh weights, from the global randomness."""
    kernels: dict[str, Any] = {}
    if network.model == "ccnet":
        names = {"kernel": network.kernel or PAPER_KERNEL, "last_kernel": network.last_kernel}
        kernels = {role: KERNEL_CHOICES[name] for role, name in names.items() if name is not None}
        kernels["last_layers"] = network.last_layers
    make = MODELS[network.model]
    model = make(**kernels, padding_mode=network.padding_mode, width=network.width, hidden=network.hidden)
    if initial == "kaiming":
        start_as_kaiming(model)
    return channels_last(model)


def start_as_kaiming(model: nn.Module) -> None:
    """Weights with Kaiming's variance for ReLU, those of continuous layers where they are sampled; no biases."""
    continuous = [module for module in model.modules() if isinstance(module, ContinuousConv2d)]
    inside = {part for module in continuous for part in module.kernel.modules()}
    for module in model.modules():
        if isinstance(module, ContinuousConv2d):
            module.kernel.init = "kaiming"  # type: ignore[assignment]
            module.kernel.reset_parameters()  # type: ignore[operator]
        elif isinstance(module, nn.Conv2d | nn.Linear) and module not in inside:
            nn.init.kaiming_normal_(module.weight)
        else:
            continue
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def channels_last(model: nn.Module) -> nn.Module:
    """Ordinary convolutions with their weights as channels_last inputs want them; continuous layers need nothing."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def save_weights(path: Path | str, model: nn.Module, network: Network) -> None:
    """Weights and the network's description in one safetensors file, whole or not at all."""
    write_tensors(Path(path), {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}, network)


def write_tensors(path: Path, state: dict[str, Tensor], network: Network, **more: str) -> None:
    """A state with the network's description, and what else the file's metadata shall say."""
    put = _safetensors().torch.save_file
    content = {name: tensor.contiguous() for name, tensor in state.items()}
    files.write(path, lambda partial: put(content, partial, {"network": json.dumps(asdict(network)), **more}))


def load_weights(path: Path | str) -> tuple[nn.Module, Network]:
    """The network that `save_weights` saved, in evaluation mode and float32."""
    tensors, metadata = read_tensors(Path(path))
    if "network" not in metadata:
        raise ValueError(f"{path} does not say which network it is: it was not written by contconv")
    network = Network(**json.loads(metadata["network"]))
    with torch.random.fork_rng(devices=[]):
        model = build(network)
    model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    return model.eval(), network


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """What a safetensors file holds: tensors and metadata."""
    safetensors = _safetensors()
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is no whole safetensors file: {error}") from error


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise ImportError("weights need safetensors, which is not installed: pip install 'contconv[train]'") from error
    return safetensors
