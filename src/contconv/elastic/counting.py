"""Multiply-adds of the operations that matter: convolutions and matrix products."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

# What changes no shape, and takes long to say so on the meta device.
SHAPELESS = {
    F.batch_norm, F.instance_norm, F.group_norm, F.layer_norm, F.local_response_norm, F.relu, F.relu6, F.hardtanh,
    F.leaky_relu, F.elu, F.selu, F.celu, F.gelu, F.silu, F.mish, F.softplus, F.hardswish, F.hardsigmoid, F.sigmoid,
    F.tanh, F.dropout, F.dropout1d, F.dropout2d, F.dropout3d,
}  # fmt: skip


def _conv(out: Tensor, x: Tensor, weight: Tensor) -> int:
    return out.numel() * weight[0].numel()


def _transposed(out: Tensor, x: Tensor, weight: Tensor) -> int:
    return x.numel() * weight[0].numel()


def _product(out: Tensor, a: Tensor, b: Tensor) -> int:
    return out.numel() * a.shape[-1]


def _sum_and_product(out: Tensor, bias: Tensor, a: Tensor, b: Tensor) -> int:
    return out.numel() * a.shape[-1]


def _attention(out: Tensor, query: Tensor, key: Tensor, value: Tensor) -> int:
    return query.numel() * key.shape[-2] + out.numel() * key.shape[-2]


COUNTS: dict[Any, tuple[int, Callable[..., int]]] = {  # of how many tensors each is made, and the multiply-adds
    **dict.fromkeys((F.conv1d, F.conv2d, F.conv3d), (2, _conv)),
    **dict.fromkeys((F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d), (2, _transposed)),
    **dict.fromkeys((F.linear, torch.matmul, torch.mm, torch.bmm, torch.mv), (2, _product)),
    **dict.fromkeys((Tensor.matmul, Tensor.__matmul__, Tensor.mm, Tensor.bmm), (2, _product)),
    **dict.fromkeys((torch.addmm, torch.baddbmm), (3, _sum_and_product)),
    F.scaled_dot_product_attention: (3, _attention),
}


class Counter(TorchFunctionMode):
    """Counts while a skeleton runs, and leaves out normalisations and activations."""

    def __init__(self) -> None:
        super().__init__()
        self.macs = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in SHAPELESS and args:
            return args[0]
        out = func(*args, **(kwargs or {}))
        if func in COUNTS:
            needed, count = COUNTS[func]
            operands = [value for value in (*args, *(kwargs or {}).values()) if isinstance(value, Tensor)]
            self.macs += count(out, *operands[:needed])
        return out
