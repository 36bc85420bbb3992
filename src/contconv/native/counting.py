"""For `torch.utils.flop_counter`: multiply-adds that no operation of torch tells of."""

from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula


def counted() -> bool:
    """Whether somebody may be looking on."""
    return not torch.compiler.is_compiling() and torch._C._len_torch_dispatch_stack() > 0


def count(macs: int) -> None:
    """Tell a flop counter, if one looks on, of multiply-adds that it would leave out."""
    if counted():
        torch.ops.contconv.multiply_adds(macs)


def _flops(macs: int, **_: Any) -> int:
    return 2 * macs


torch.library.define("contconv::multiply_adds", "(int macs) -> ()")
torch.library.impl("contconv::multiply_adds", "CompositeExplicitAutograd", lambda macs: None)
register_flop_formula(torch.ops.contconv.multiply_adds)(_flops)
