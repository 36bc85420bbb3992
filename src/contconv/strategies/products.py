"""Batches of matrix products in plain PyTorch, each by whatever is fastest for it on the device."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F


class Desk:
    """Memory that one step of a loop after the other writes its results to: new memory costs a page fault every 4 KiB,
    which takes about as long as a matrix product needs to fill it."""

    def __init__(self, like: Tensor) -> None:
        self.like = like
        self.sheets: dict[str, Tensor] = {}

    def sheet(self, name: str, *shape: int) -> Tensor:
        """Uninitialised, until the next one of that name."""
        count = math.prod(shape)
        if name not in self.sheets or self.sheets[name].numel() < count:
            self.sheets[name] = self.like.new_empty(count)
        return self.sheets[name][:count].view(shape)


def applied(seen: Tensor, own: Tensor, desk: Desk) -> Tensor:
    """What windows [M, B, K] become by filters [B, K, Co]: [M, B, Co]."""
    if not _convolves(seen, 128):
        return _product(seen.transpose(0, 1), own, desk).transpose(0, 1)
    return _columns(F.conv_transpose2d(_image(seen), own.reshape(-1, own.shape[2], 1, 1), groups=len(own)), seen)


def sent_back(y: Tensor, own: Tensor, desk: Desk) -> Tensor:
    """What gradients [M, B, Co] become by filters [B, K, Co]: [M, B, K], contiguous."""
    if not _convolves(y, 16):
        return _product(y.transpose(0, 1), own.mT, desk).transpose(0, 1).contiguous()
    seen = F.conv2d(_image(y), own.reshape(-1, own.shape[2], 1, 1), groups=len(own))
    return _columns(seen, y).contiguous()  # it answers in the layout of y, which may be that of an expanded number


def correlated(seen: Tensor, y: Tensor, before: Tensor | None, desk: Desk) -> Tensor:
    """The gradient of filters, of windows [M, B, K] and gradients [M, B, Co]: [B, K, Co], added to the one before."""
    a, b = seen.permute(1, 2, 0), y.transpose(0, 1)
    if before is not None:
        return before.baddbmm_(a, b)
    if len(a) == 1 and _convolves(seen, 512):
        return _correlated_by_convolution(seen, y)
    return _product(a, b, desk, "gradient")


def _correlated_by_convolution(seen: Tensor, y: Tensor) -> Tensor:
    like = seen.new_empty(seen.shape[2], y.shape[2], 1, 1)
    _, gradient, _ = torch.ops.aten.convolution_backward(
        _image(seen), _image(y), like, None, (1, 1), (0, 0), (1, 1), False, (0, 0), 1, (False, True, False)
    )
    return gradient.reshape(1, seen.shape[2], y.shape[2])


def _product(a: Tensor, b: Tensor, desk: Desk, name: str = "product") -> Tensor:
    """Of batches [B, M, K] and [B, K, C]."""
    to = desk.sheet(name, a.shape[0], a.shape[1], b.shape[2])
    if len(a) == 1 or len(a) >= 2 * torch.get_num_threads():
        return torch.bmm(a, b, out=to)
    for one, other, result in zip(a, b, to, strict=True):  # too few to be shared out among threads
        torch.mm(one, other, out=result)
    return to


def _convolves(columns: Tensor, rows: int) -> bool:
    """Whether grouped convolutions of single pixels are the faster matrix products: oneDNN's, with enough rows."""
    plain = columns.device.type == "cpu" and columns.dtype == torch.float32
    has = torch.backends.mkldnn.is_available() and bool(torch.backends.mkldnn.enabled)
    return plain and has and len(columns) >= rows


def _image(columns: Tensor) -> Tensor:
    """[M, B, K] as one image of M pixels with a group of K channels for each matrix."""
    return columns.reshape(1, len(columns), 1, -1).permute(0, 3, 1, 2)


def _columns(image: Tensor, like: Tensor) -> Tensor:
    """And back."""
    return image.permute(0, 2, 3, 1).reshape(*like.shape[:2], -1)
