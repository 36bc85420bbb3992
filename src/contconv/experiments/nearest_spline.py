"""How near a spline can come to a kernel at all: the bound that a fit is judged by."""

import torch
from torch import Tensor

from contconv.kernels import LearnedKernel


def nearest_spline_error(true: Tensor, kernel: LearnedKernel, line: Tensor) -> float:
    """The relative L2 error of the mixing that comes nearest to a kernel on line x line: no fit can do better."""
    d = torch.cartesian_prod(line, line)
    basis = kernel.basis(d)
    mixing = torch.linalg.lstsq(basis, true.reshape(-1, 1), driver="gelsd").solution
    return ((basis @ mixing).flatten() - true.flatten()).norm().item() / true.norm().item()
