"""The arguments of a call: the tensors in them, and what is left of them without their numbers."""

from collections.abc import Callable, Iterator
from operator import index
from typing import Any

import torch
from torch import Tensor

OUTLINE = "contconv: a tensor without its numbers"


def mapped(value: Any, change: Callable[[Tensor], Any]) -> Any:
    """The arguments of a call with every tensor in them changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(item, change) for item in value))
    return type(value)([mapped(item, change) for item in value]) if isinstance(value, (tuple, list)) else value


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


def outlined(value: Any) -> Any:
    """Arguments with a description for every tensor: one image of its batch, its sizes in ints even where a tracer has
    symbols for them."""
    batch = [t.shape[0] for t in tensors(value) if t.ndim >= 3]

    def change(tensor: Tensor) -> tuple[Any, ...]:
        alone = len(batch) > 0 and tensor.ndim > 0 and all(n == tensor.shape[0] for n in batch)
        rest = [index(n) for n in (tensor.shape[1:] if alone else tensor.shape)]
        return (OUTLINE, tensor.dtype, *([1] if alone else []), *rest)

    return mapped(value, change)


def drawn(value: Any) -> Any:
    """Outlined arguments with tensors on the meta device."""
    if isinstance(value, tuple) and value and isinstance(value[0], str) and value[0] == OUTLINE:
        return torch.empty(value[2:], dtype=value[1], device="meta")
    if isinstance(value, dict):
        return {key: drawn(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(drawn(item) for item in value))
    return type(value)([drawn(item) for item in value]) if isinstance(value, (tuple, list)) else value
