"""The input, extended or cropped along one axis to just the pixels that the filters see."""

import torch
from torch import Tensor
from torch.nn import functional as F

from contconv.grid import folded


def extended(x: Tensor, dim: int, start: int, stop: int, padding_mode: str) -> Tensor:
    """The pixels at positions start ... stop - 1 along `dim`, which may lie outside x on either side."""
    size = x.shape[dim]
    if start >= 0 and stop <= size:
        return x.narrow(dim, start, stop - start)
    if padding_mode != "zeros":
        index = folded(torch.arange(start, stop, device=x.device), size, padding_mode)
        return x.index_select(dim, index.clamp(0, size - 1))
    low, high = max(start, 0), min(stop, size)
    if low >= high:  # nothing of x is seen: an empty slice keeps its place in the graph
        low, high = 0, 0
        start, stop = 0, stop - start
    return F.pad(x.narrow(dim, low, high - low), [0, 0] * (x.ndim - 1 - dim) + [low - start, stop - high])
