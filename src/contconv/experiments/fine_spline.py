"""A cubic B-spline with several control points per pixel, for kernels that one per tap cannot follow."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from contconv.kernels import LearnedKernel
from contconv.kernels.spline import beta3
from contconv.size import exact_size


class FineSpline(LearnedKernel):
    """`SplineKernel` with `density` control points per pixel along each axis: density^D parameters per tap.

    With an even density the knots include those of Keys' cubic, which lie on the pixels.

    >>> FineSpline((4, 4), density=2).mixing.shape
    torch.Size([64, 1, 1])
    """

    def __init__(self, kernel_size: Sequence[int], *, density: int = 2) -> None:
        super().__init__(1, 1, kernel_size, 1, "default")
        assert isinstance(self.kernel_size, tuple)
        self.density = exact_size(density, "density")
        points = torch.Size([size * self.density for size in self.kernel_size]).numel()
        self.mixing = nn.Parameter(torch.zeros(points, 1, 1, dtype=torch.float64))

    def basis(self, d: Tensor) -> Tensor:
        """[..., D] -> [..., R]."""
        assert isinstance(self.kernel_size, tuple)
        basis = d.new_ones(*d.shape[:-1], 1)
        for axis, size in enumerate(self.kernel_size):
            count = size * self.density
            points = (torch.arange(count, dtype=d.dtype, device=d.device) - (count - 1) / 2) / self.density
            along = beta3((d[..., axis, None] - points) * self.density)
            basis = (basis[..., :, None] * along[..., None, :]).flatten(-2)
        return basis

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, density={self.density}"


def nearest_spline_error(true: Tensor, kernel: FineSpline, line: Tensor) -> float:
    """The relative L2 error of the best such spline for a kernel sampled on line x line: no fit can do better."""
    d = torch.cartesian_prod(line, line)
    basis = kernel.basis(d)
    mixing = torch.linalg.lstsq(basis, true.reshape(-1, 1), driver="gelsd").solution
    return ((basis @ mixing).flatten() - true.flatten()).norm().item() / true.norm().item()
