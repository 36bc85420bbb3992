"""A cubic B-spline with learned control points; one per tap, and so as many parameters as a convolution, or more."""

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor, nn

from contconv.kernels.initial import initial_variance
from contconv.kernels.product import ProductKernel, folded
from contconv.size import exact_size
from contconv.transforms import unobserved


class SplineKernel(ProductKernel):
    """W(d) = sum over control points c of c * prod over axes of beta3(d - x_c), beta3 the centred cubic B-spline.

    The control points of an axis sit at the displacements (K-1)/2, ..., -(K-1)/2 of the K neighbours of a grid point in
    the middle of its window, so `from_taps` can interpolate the taps of a trained convolution exactly. The kernel is
    smooth (C2) inside its support and fades towards the border of it.

    `fold=True` gives what a basis function has outside the window of K taps to the outermost tap. A constant input then
    has the same response at every phase, as under a convolution; without it the response varies with the phase, which
    training can put to use and a converted filter (`from_taps` folds) cannot.

    `density=n` takes n pieces per pixel, with n * K + 3 control points along an axis of K pixels: all C2 functions that
    are cubic on each piece. One control point per tap has its knots between the pixels, and cannot follow a kernel with
    knots on them, as Keys' cubic; `density=2` can.

    >>> taps = torch.randn(4, 8, 3, 3)
    >>> kernel = SplineKernel.from_taps(taps)
    >>> torch.allclose(kernel(torch.tensor([1.0, -1.0])), taps[..., 0, 2], atol=1e-6)
    True
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sequence[int],
        *,
        groups: int = 1,
        fold: bool = False,
        density: int | None = None,
        init: str = "default",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, groups, init)
        assert isinstance(self.kernel_size, tuple)
        self.fold = fold
        self.density = None if density is None else exact_size(density, "density")
        if fold and density is not None:
            raise ValueError("fold=True is for one control point per tap: leave density out")
        points = math.prod(len(control_points(size, self.density)) for size in self.kernel_size)
        shape = (points, out_channels, in_channels // groups)
        self.mixing = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    @classmethod
    def from_taps(cls, taps: Tensor, *, groups: int = 1, fold: bool = True) -> "SplineKernel":
        """The spline through the taps [Cout, Cin/groups, *K] of a discrete filter."""
        out_channels, per_group, *kernel_size = taps.shape
        kernel = cls(
            per_group * groups,
            out_channels,
            kernel_size,
            groups=groups,
            fold=fold,
            device=taps.device,
            dtype=taps.dtype,
        )
        kernel.interpolate(taps)
        return kernel

    def interpolate(self, taps: Tensor) -> None:
        """Make this the spline through the taps [Cout, Cin/groups, *K] of a discrete filter."""
        assert isinstance(self.kernel_size, tuple)
        wanted = (*self.mixing.shape[1:], *self.kernel_size)
        if self.density is not None:
            raise ValueError(f"density={self.density}: taps determine a spline of one control point per tap only")
        if taps.shape != wanted:
            raise ValueError(f"taps must be {list(wanted)} (out channels, in channels, sizes), got {list(taps.shape)}")
        control = taps.detach().double()
        for axis, size in enumerate(self.kernel_size):
            collocation = self.along(control_points(size), axis).to(taps.device)  # [tap, control point]
            inverse = torch.linalg.inv(collocation)
            control = torch.tensordot(control, inverse, dims=([2 + axis], [1])).movedim(-1, 2 + axis)
        with torch.no_grad():
            self.mixing.copy_(control.flatten(2).movedim(-1, 0))

    def reset_parameters(self) -> None:
        """Independent control points; the mean over the support of the weights' variance is the convolution's."""
        assert isinstance(self.kernel_size, tuple)
        variance = initial_variance(self.init, self.in_channels, self.out_channels, self.kernel_size, self.groups)
        for axis, size in enumerate(self.kernel_size):
            d = (torch.arange(64 * size, dtype=torch.float64, device="cpu") + 0.5) / 64 - size / 2
            variance /= self.along(d, axis).square().sum(-1).mean().item()
        with torch.no_grad():
            self.mixing.normal_(std=variance**0.5)

    def along(self, d: Tensor, axis: int) -> Tensor:
        """[...] -> [..., control points]: the basis of one axis."""
        assert isinstance(self.kernel_size, tuple)
        size = self.kernel_size[axis]
        points = control_points_on(size, self.density, d.dtype, d.device)
        rest = (d[..., None] - points) * (self.density or 1)
        # A basis function reaches two pixels, so at most two neighbours beyond the window.
        return folded(beta3, rest, d, size, 1) if self.fold else beta3(rest)

    def extra_repr(self) -> str:
        text = super().extra_repr() + (", fold=True" if self.fold else "")
        return text if self.density is None else f"{text}, density={self.density}"


def control_points(size: int, density: int | None = None) -> Tensor:
    """The displacements of the control points of one axis: those of the K neighbours, ascending in m, or denser."""
    count = size if density is None else size * density + 3
    return ((count - 1) / 2 - torch.arange(count, dtype=torch.float64, device="cpu")) / (density or 1)


@lru_cache(maxsize=256)
def control_points_on(size: int, density: int | None, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The same on a device. Never write to it."""
    with unobserved():
        return control_points(size, density).to(device, dtype)


def beta3(d: Tensor) -> Tensor:
    """The centred cubic B-spline: 2/3 at 0, 1/6 at 1, 0 from 2 on."""
    a = d.abs()
    inner = 2 / 3 - a.square() * (1 - a / 2)
    outer = (2 - a).clamp_min(0).pow(3) / 6
    return torch.where(a < 1, inner, outer)
