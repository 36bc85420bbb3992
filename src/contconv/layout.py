"""Memory formats, as torch sees them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def surely(condition: bool | torch.SymBool) -> bool:
    """Whether a condition holds, whatever the symbols in it are."""
    if isinstance(condition, bool):
        return condition
    return torch.fx.experimental.symbolic_shapes.statically_known_true(condition)


def is_channels_last(x: Tensor, holds: Callable[[Any], bool] = surely) -> bool:
    """Whether a convolution of torch would answer x in channels_last: its strides grow from the channels to the last
    axis and on to the batch. That tells of one channel or one pixel, too, contiguous either way, and of a slice.

    >>> gray = torch.zeros(2, 1, 4, 4)
    >>> is_channels_last(gray), is_channels_last(gray.to(memory_format=torch.channels_last))
    (False, True)
    """
    if x.ndim not in CHANNELS_LAST or holds(x.stride(1) == 0):
        return False
    least = 0
    for axis in (1, *range(x.ndim - 1, 1, -1), 0):
        if holds(x.shape[axis] == 0) or holds(x.stride(axis) < least):
            return False
        if axis == 0 and holds(least == x.stride(1)):  # all that is not the batch has size 1, or channels come first
            return False
        least = x.stride(axis) * x.shape[axis]
    return True


def format_of(x: Tensor) -> torch.memory_format:
    """The one that a result for x should have."""
    return CHANNELS_LAST[x.ndim] if is_channels_last(x) else torch.contiguous_format
