"""Trained weights that come with the project: safetensors files that hold a network's state and what is known of it."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from contconv.models.networks import Network, load_weights, read_tensors, write_tensors

FOLDER = Path(__file__).parent / "weights"
MOST_BYTES = 16 * 2**20


def pretrained(name: str, *, folder: Path = FOLDER) -> nn.Module:
    """A network with its published weights, in evaluation mode and in float32."""
    return load_weights(published_path(name, folder))[0]


def published(folder: Path = FOLDER) -> list[str]:
    """The names that `pretrained` knows."""
    return sorted(path.stem for path in folder.glob("*.safetensors"))


def published_path(name: str, folder: Path = FOLDER) -> Path:
    """Where the weights of that name are."""
    names = published(folder)
    if not names:
        raise ValueError(
            f"name={name!r} cannot be found: no weights come with this copy; `contconv cifar train` and `contconv "
            f"cifar publish` make some"
        )
    if name not in names:
        raise ValueError(f"name must be one of {', '.join(names)}, got {name!r}")
    return folder / f"{name}.safetensors"


def facts(path: Path) -> dict[str, Any]:
    """What is known of published weights: how they were trained, and what was measured."""
    metadata = read_tensors(path)[1]
    return json.loads(metadata.get("facts", "{}"))


def rounded(model: nn.Module, dtype: torch.dtype) -> dict[str, Tensor]:
    """The model's state in another precision, if that can hold it."""
    state = {name: tensor.detach().cpu().to(dtype).contiguous() for name, tensor in model.state_dict().items()}
    broken = [name for name, tensor in state.items() if not tensor.isfinite().all()]
    if broken:
        raise ValueError(f"model has numbers that {dtype} cannot hold, in {', '.join(broken)}")
    return state


def publish(path: Path, state: dict[str, Tensor], network: Network, known: dict[str, Any]) -> None:
    """Write a state with the network it belongs to and the facts about it, if it is not too large to hand out."""
    size = sum(tensor.nbytes for tensor in state.values())
    if size > MOST_BYTES:
        raise ValueError(f"weights take {size / 2**20:.1f} MB, published ones may take {MOST_BYTES // 2**20} MB")
    write_tensors(path, state, network, facts=json.dumps(known))
