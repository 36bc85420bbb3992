"""Batches of matrix products in plain PyTorch, each by whatever is fastest for it on the device."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

# From which on convolutions are the faster products (`benchmarks/plain_products.py`).
LEAST_ROWS = 48
LEAST_NUMBERS = 3072  # rows times columns
LEAST_COLUMNS = 20  # as channels of what is convolved


class Desk:
    """Memory that one step of a loop after the other writes its results to: new memory costs a page fault every 4 KiB,
    which takes about as long as a matrix product needs to fill it."""

    def __init__(self, like: Tensor) -> None:
        self.like = like
        self.sheets: dict[str, Tensor] = {}
        self.shaped: dict[tuple[str, tuple[int, ...]], Tensor] = {}

    def sheet(self, name: str, *shape: int) -> Tensor:
        """Uninitialised, until the next one of that name."""
        if (name, shape) not in self.shaped:
            count = math.prod(shape)
            if name not in self.sheets or self.sheets[name].numel() < count:
                self.sheets[name] = self.like.new_empty(count)
                self.shaped = {key: sheet for key, sheet in self.shaped.items() if key[0] != name}
            self.shaped[name, shape] = self.sheets[name][:count].view(shape)
        return self.shaped[name, shape]


def convolves(own: Tensor, rows: int) -> bool:
    """Whether grouped convolutions of single pixels are the faster products with filters [B, K, Co]: oneDNN's, with
    many rows. They read and write matrices [B, rows, ...] that lie in memory as [rows, B, ...]."""
    return rows >= LEAST_ROWS and rows * own.shape[2] >= LEAST_NUMBERS and _has_onednn(own)


def applied(seen: Tensor, own: Tensor, desk: Desk) -> Tensor:
    """What windows [B, M, K] become by filters [B, K, Co]: [B, M, Co]."""
    if not convolves(own, seen.shape[1]):
        return _product(seen, own, desk, "product")
    y = F.conv_transpose2d(_image(seen), own.reshape(-1, own.shape[2], 1, 1), groups=len(own))
    return _matrices(y, seen)


def sent_back(y: Tensor, own: Tensor, desk: Desk) -> Tensor:
    """What gradients [B, M, Co] become by filters [B, K, Co]: [B, M, K], in either order."""
    if not convolves(own, y.shape[1]) or y.shape[2] < LEAST_COLUMNS:
        return _product(y, own.mT, desk, "product")
    return _matrices(F.conv2d(_image(y), own.reshape(-1, own.shape[2], 1, 1), groups=len(own)), y)


def correlated(seen: Tensor, y: Tensor, before: Tensor | None, desk: Desk) -> Tensor:
    """The gradient of filters, of windows [B, M, K] and gradients [B, M, Co]: [B, K, Co], added to the one before."""
    if before is not None:
        return before.baddbmm_(seen.mT, y)
    if len(seen) == 1 and seen.shape[1] >= 512 and _has_onednn(seen):
        return _correlated_by_convolution(seen, y)
    return _product(seen.mT, y, desk, "gradient")


def _correlated_by_convolution(seen: Tensor, y: Tensor) -> Tensor:
    """Of one filter."""
    like = seen.new_empty(seen.shape[2], y.shape[2], 1, 1)
    _, gradient, _ = torch.ops.aten.convolution_backward(
        _image(seen), _image(y), like, None, (1, 1), (0, 0), (1, 1), False, (0, 0), 1, (False, True, False)
    )
    return gradient.reshape(1, seen.shape[2], y.shape[2])


def _product(a: Tensor, b: Tensor, desk: Desk, name: str) -> Tensor:
    """Of batches [B, M, K] and [B, K, C]."""
    to = _claimed(desk.sheet(name, a.shape[0], a.shape[1], b.shape[2]))
    if len(a) == 1 or len(a) >= 2 * torch.get_num_threads():
        return torch.bmm(a, b, out=to)
    for one, other, result in zip(a, b, to, strict=True):  # too few to be shared out among threads
        torch.mm(one, other, out=result)
    return to


def _has_onednn(like: Tensor) -> bool:
    plain = like.device.type == "cpu" and like.dtype == torch.float32
    return plain and torch.backends.mkldnn.is_available() and bool(torch.backends.mkldnn.enabled)


def _claimed(sheet: Tensor) -> Tensor:
    """Zeros are written in one stream. A product writes a line here and a line there, and if other cores have read what
    lay there before, it waits for each of them: where they share no cache, half as long as it computes."""
    return sheet.zero_() if sheet.device.type == "cpu" and torch.get_num_threads() > 1 else sheet


def _image(columns: Tensor) -> Tensor:
    """[B, M, K] as one image of M pixels with a group of K channels for each matrix: a view where rows come first."""
    return columns.transpose(0, 1).reshape(1, columns.shape[1], 1, -1).permute(0, 3, 1, 2)


def _matrices(image: Tensor, like: Tensor) -> Tensor:
    """And back."""
    return image.permute(0, 2, 3, 1).reshape(like.shape[1], like.shape[0], -1).transpose(0, 1)
