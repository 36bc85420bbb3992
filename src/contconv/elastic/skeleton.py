"""A model without numbers: a private copy on the meta device that shows shapes and costs nothing to run."""

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from contconv.overrides import Resizing


def skeleton(model: nn.Module) -> nn.Module:
    """The model in evaluation mode, with the same names and no memory of its own for its tensors."""
    tensors = {id(t): t for module in model.modules() for t in _tensors_of(module)}
    memo: dict[int, Any] = {key: _meta(t) for key, t in tensors.items()}
    return copy.deepcopy(model, memo).eval()


def _tensors_of(module: nn.Module) -> Iterator[Tensor]:
    for held in (module._parameters, module._buffers, vars(module)):
        yield from (t for t in held.values() if isinstance(t, Tensor))


def _meta(tensor: Tensor) -> Tensor:
    empty = torch.empty_like(tensor, device="meta", requires_grad=False)
    return nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty


def units(model: nn.Module) -> dict[str, Resizing]:
    """The layers that can be resized, by their first names."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Resizing)}


def first_names(model: nn.Module) -> dict[str, str]:
    """All names of these layers -> the first name of each; a layer that is in several places has several."""
    first = {id(unit): name for name, unit in units(model).items()}
    everywhere = model.named_modules(remove_duplicate=False)
    return {name: first[id(module)] for name, module in everywhere if id(module) in first}
