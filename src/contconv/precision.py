"""What autocast may and may not touch."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def autocasts(device: torch.device) -> bool:
    """Whether `torch.autocast` is on for this device."""
    return torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """A context without autocast: it would round displacements to 8 bits."""
    return torch.autocast(device.type, enabled=False) if autocasts(device) else nullcontext()


def computing_dtype(x: Tensor) -> torch.dtype:
    """x's own dtype, or under autocast the one that a convolution would use."""
    if autocasts(x.device) and x.dtype != torch.float64:
        return torch.get_autocast_dtype(x.device.type)
    return x.dtype
