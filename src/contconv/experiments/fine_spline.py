"""All cubic splines with several pieces per pixel, for kernels that one control point per tap cannot follow."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from contconv.kernels import LearnedKernel
from contconv.kernels.spline import beta3
from contconv.size import exact_size


class FineSpline(LearnedKernel):
    """Every twice differentiable function on the support that is cubic on each of `density` pieces per pixel and axis.

    Such a spline has density * K + 3 control points along an axis of K pixels: three more than it has pieces. Its knots
    lie on the pixels and, evenly, between them. `SplineKernel` has one control point per tap, and knots between the
    pixels: it cannot follow Keys' cubic, whose knots are on the pixels (see `nearest_spline_error`).

    >>> FineSpline((4, 4), density=2).mixing.shape
    torch.Size([121, 1, 1])
    """

    def __init__(self, kernel_size: Sequence[int], *, density: int = 2) -> None:
        super().__init__(1, 1, kernel_size, 1, "default")
        assert isinstance(self.kernel_size, tuple)
        self.density = exact_size(density, "density")
        points = torch.Size([size * self.density + 3 for size in self.kernel_size]).numel()
        self.mixing = nn.Parameter(torch.zeros(points, 1, 1, dtype=torch.float64))

    def basis(self, d: Tensor) -> Tensor:
        """[..., D] -> [..., R]."""
        assert isinstance(self.kernel_size, tuple)
        basis = d.new_ones(*d.shape[:-1], 1)
        for axis, size in enumerate(self.kernel_size):
            count = size * self.density + 3
            points = (torch.arange(count, dtype=d.dtype, device=d.device) - (count - 1) / 2) / self.density
            along = beta3((d[..., axis, None] - points) * self.density)
            basis = (basis[..., :, None] * along[..., None, :]).flatten(-2)
        return basis

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, density={self.density}"


def nearest_spline_error(true: Tensor, kernel: LearnedKernel, line: Tensor) -> float:
    """The relative L2 error of the mixing that comes nearest to a kernel on line x line: no fit can do better."""
    d = torch.cartesian_prod(line, line)
    basis = kernel.basis(d)
    mixing = torch.linalg.lstsq(basis, true.reshape(-1, 1), driver="gelsd").solution
    return ((basis @ mixing).flatten() - true.flatten()).norm().item() / true.norm().item()
