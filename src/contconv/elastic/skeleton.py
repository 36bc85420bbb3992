"""A model without numbers: a private copy on the meta device that shows shapes and costs nothing to run."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from contconv.overrides import Resizing

Replace = Callable[[Tensor], Tensor]


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


def mapped(value: Any, change: Replace) -> Any:
    """The arguments of a call with every tensor in them changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(item, change) for item in value))
    return type(value)(mapped(item, change) for item in value) if isinstance(value, (tuple, list)) else value


def tensors(value: Any) -> Iterator[Tensor]:
    """All tensors in the arguments or results of a call."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors(item)


def example(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments without numbers, and with one image of their batch."""
    batch = {t.shape[0] for t in tensors((args, kwargs)) if t.ndim >= 3}

    def change(tensor: Tensor) -> Tensor:
        alone = tensor[:1] if len(batch) == 1 and tensor.ndim and tensor.shape[0] in batch else tensor
        return torch.empty_like(alone, device="meta", requires_grad=False)

    return mapped(args, change), mapped(kwargs, change)
