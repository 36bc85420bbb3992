"""Where a run can go on from: one file, replaced by one rename, and nothing in it that could execute.

Tensors (weights, optimizers' moments, running sums) are safetensors; the rest is JSON in the same file's metadata.
There is no state of random generators or of a schedule: both follow from the seed and the step (see `draws`, `recipe`).
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from contconv import files
from contconv.cifar.recipe import completed_config
from contconv.models.networks import read_tensors

NAME = "checkpoint.safetensors"
FORMAT = 1


@dataclass
class State:
    """What changes while a run goes on."""

    model: nn.Module
    optimizers: list[torch.optim.Optimizer]  # each over parameters of its own
    sums: Tensor  # running sums of what is logged
    step: int = 0  # how many are done
    seconds: float = 0.0  # of the epoch that is under way


def save(folder: Path, state: State, config: dict[str, Any]) -> None:
    """Make `state` the one that a later run finds; until then it finds the one before."""
    from safetensors.torch import save_file

    tensors = {f"model.{name}": tensor for name, tensor in state.model.state_dict().items()}
    tensors |= {f"optimizer.{key}": tensor for key, tensor in _moments(state).items()}
    tensors["sums"] = state.sums
    content = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    metadata = {"state": json.dumps({"format": FORMAT, "step": state.step, "seconds": state.seconds, "config": config})}

    def put(path: Path) -> None:
        save_file(content, path, metadata)
        with path.open("rb") as file:
            os.fsync(file.fileno())

    files.write(folder / NAME, put)


def load(folder: Path, state: State, config: dict[str, Any]) -> bool:
    """Bring `state` to where the folder's checkpoint is, if there is one; whether there was."""
    path = folder / NAME
    if not path.exists():
        return False
    try:
        tensors, metadata = read_tensors(path)
        saved = json.loads(metadata["state"])
        if saved["format"] != FORMAT:
            raise ValueError(f"it has format {saved['format']}, not {FORMAT}")
        if completed_config(saved["config"]) != config:
            raise ValueError("it belongs to another config")
        _restore(state, tensors)
        state.step, state.seconds = int(saved["step"]), float(saved["seconds"])
    except (KeyError, ValueError, RuntimeError) as error:
        raise ValueError(f"cannot go on from {path}: {error}; use another --out, or delete it to begin anew") from error
    return True


def sweep(folder: Path) -> None:
    """Remove what a run killed in the middle of saving left beside its checkpoint."""
    for path in folder.glob(f".{Path(NAME).stem}.*{Path(NAME).suffix}"):
        path.unlink(missing_ok=True)


def _owned(state: State) -> Iterator[tuple[str, nn.Parameter, torch.optim.Optimizer]]:
    """Every parameter, by name, with the optimizer that moves it."""
    owners = {
        parameter: optimizer
        for optimizer in state.optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    for name, parameter in state.model.named_parameters():
        yield name, parameter, owners[parameter]


def _moments(state: State) -> dict[str, Tensor]:
    """The optimizers' tensors by parameter name and kind."""
    return {
        f"{name}.{kind}": value
        for name, parameter, optimizer in _owned(state)
        for kind, value in optimizer.state[parameter].items()
    }


def _restore(state: State, tensors: dict[str, Tensor]) -> None:
    """Copy tensors into place; moments get their parameter's layout, as the optimizer would have made them."""
    weights = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    state.model.load_state_dict(weights)
    for name, parameter, optimizer in _owned(state):
        prefix = f"optimizer.{name}."
        found = {key.removeprefix(prefix): t for key, t in tensors.items() if key.startswith(prefix)}
        optimizer.state[parameter] = {
            kind: torch.empty_like(parameter, requires_grad=False).copy_(tensor)
            if tensor.shape == parameter.shape
            else tensor.to(parameter.device)
            for kind, tensor in found.items()
        }
    state.sums.copy_(tensors["sums"])
