"""The input, extended or cropped to just the pixels that the filters see."""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional as F

from contconv.grid import folded

Span = tuple[int, int, int]  # along a dimension, the positions start ... stop - 1: (dim, start, stop)


def extended(x: Tensor, spans: Iterable[Span], padding_mode: str) -> Tensor:
    """The pixels at these positions, which may lie outside x on either side.

    Zeros around x are put there in one go, for every pass over a large x costs as much as a good part of a convolution.
    """
    margins = [0, 0] * x.ndim  # before and after, the last dimension first
    for dim, start, stop in spans:
        size = x.shape[dim]
        if padding_mode != "zeros" and (start < 0 or stop > size):
            index = folded(torch.arange(start, stop, device=x.device), size, padding_mode)
            x = x.index_select(dim, index.clamp(0, size - 1))
            continue
        low, high = max(start, 0), min(stop, size)
        if low >= high:  # nothing of x is seen: an empty slice keeps its place in the graph
            low, high = 0, 0
            start, stop = 0, stop - start
        if low > 0 or high < size:
            x = x.narrow(dim, low, high - low)
        last = 2 * (x.ndim - 1 - dim)
        margins[last : last + 2] = low - start, stop - high
    return F.pad(x, margins) if any(margins) else x
