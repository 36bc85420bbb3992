"""Fixed kernels, as image resizers have them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from contconv.kernels.base import Kernel
from contconv.size import exact, exact_sizes

# Below this no pixel centre may lie under the kernel: its taps would vanish, and so would their sum.
SMALLEST_SIGMA = 1 / 32


class FixedKernel(Kernel):
    """A kernel without parameters that acts on each channel alone.

    It is zero at |d| >= K/2 on any axis, and its taps are normalised per output pixel unless `normalize=False`.
    """

    channelwise = True
    remembers = True
    kernel_size: tuple[int, ...] | int

    def __init__(self, *, normalize: bool = True) -> None:
        super().__init__()
        self.normalize = normalize
        self.register_buffer("mixing", torch.ones(1, 1, 1), persistent=False)

    def reset_parameters(self) -> None:
        """Nothing to draw, but after `to_empty` its constants are to be written again."""
        self.mixing.fill_(1)

    def shape(self, d: Tensor) -> Tensor:
        """[..., D] -> [...]: the kernel without regard to its support."""
        raise NotImplementedError(f"{type(self).__name__} must define shape(d: [..., D]) -> [...]")

    def basis(self, d: Tensor) -> Tensor:
        """[..., D] -> [..., 1]."""
        return torch.where(in_open_support(d, self.kernel_size), self.shape(d), 0)[..., None]

    def extra_repr(self) -> str:
        arguments = [f"{name}={value}" for name, value in self.arguments().items()]
        return ", ".join(arguments + ([] if self.normalize else ["normalize=False"]))

    def arguments(self) -> dict[str, object]:
        """What the constructor was given, for `repr`."""
        return {}


class SeparableKernel(FixedKernel):
    """A fixed kernel that is the product of one profile along each axis."""

    separable = True

    def profile(self, d: Tensor) -> Tensor:
        """[...] -> [...]: the kernel along one axis."""
        raise NotImplementedError(f"{type(self).__name__} must define profile(d: [...]) -> [...]")

    def shape(self, d: Tensor) -> Tensor:
        return self.profile(d).prod(-1)


class Linear(SeparableKernel):
    """The hat function on 2 pixels: bilinear interpolation, trilinear in 3D.

    >>> Linear()(torch.tensor([0.25])).item()
    0.75
    """

    kernel_size = 2

    def profile(self, d: Tensor) -> Tensor:
        return 1 - d.abs()


class Cubic(SeparableKernel):
    """Keys' cubic convolution on 4 pixels; a = -0.75 as in PyTorch's bicubic, a = -0.5 as in Pillow and MATLAB.

    >>> Cubic()(torch.tensor([0.5])).item()
    0.59375
    """

    kernel_size = 4

    def __init__(self, a: float = -0.75, *, normalize: bool = True) -> None:
        super().__init__(normalize=normalize)
        self.a = float(exact(a, "a"))

    def profile(self, d: Tensor) -> Tensor:
        t, a = d.abs(), self.a
        inner = ((a + 2) * t - (a + 3)) * t.square() + 1
        outer = a * (((t - 5) * t + 8) * t - 4)
        return torch.where(t <= 1, inner, outer)

    def arguments(self) -> dict[str, object]:
        return {"a": self.a}


class Lanczos(SeparableKernel):
    """sinc(d) * sinc(d / n) on 2n pixels.

    >>> Lanczos(3).kernel_size
    6
    """

    def __init__(self, n: int = 3, *, normalize: bool = True) -> None:
        super().__init__(normalize=normalize)
        (self.n,) = exact_sizes(n, 1, "n")
        self.kernel_size = 2 * self.n

    def profile(self, d: Tensor) -> Tensor:
        return torch.sinc(d) * torch.sinc(d / self.n)

    def arguments(self) -> dict[str, object]:
        return {"n": self.n}


class Gaussian(FixedKernel):
    """exp(-d' C^-1 d / 2) for any covariance C, rotated ones too, cut to `kernel_size` pixels.

    `covariance`: a variance for all axes, one variance per axis, or a D x D matrix, in input pixels squared.

    >>> Gaussian([[2.0, 1.0], [1.0, 2.0]], kernel_size=6)(torch.zeros(2)).item()
    1.0
    """

    precision: Tensor

    def __init__(
        self,
        covariance: float | Sequence[float] | Sequence[Sequence[float]] | Tensor,
        kernel_size: int | Sequence[int],
        *,
        normalize: bool = True,
    ) -> None:
        super().__init__(normalize=normalize)
        try:
            self.covariance = torch.as_tensor(covariance, dtype=torch.float64, device="cpu").tolist()
        except (TypeError, ValueError) as error:
            raise TypeError(f"covariance must be a number, one per axis or a matrix, got {covariance!r}") from error
        axes = len(self.covariance) if isinstance(self.covariance, list) else None
        if isinstance(kernel_size, Sequence):
            axes = axes or len(kernel_size)
        sizes = exact_sizes(kernel_size, axes or 1, "kernel_size")
        self.kernel_size = sizes if axes else sizes[0]
        self.register_buffer("precision", torch.linalg.inv(covariance_matrix(self.covariance)), persistent=False)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.precision.copy_(torch.linalg.inv(covariance_matrix(self.covariance)))

    def shape(self, d: Tensor) -> Tensor:
        precision = self.precision.to(d)
        if precision.shape[0] == 1:
            return torch.exp(-d.square().sum(-1) * precision[0, 0] / 2)
        return torch.exp(-torch.einsum("...a,ab,...b->...", d, precision, d) / 2)

    def arguments(self) -> dict[str, object]:
        return {"covariance": self.covariance, "kernel_size": self.kernel_size}


def covariance_matrix(covariance: float | list[float] | list[list[float]]) -> Tensor:
    """[D, D] float64, symmetric and positive definite ([1, 1] for one variance that serves any number of axes)."""
    given = torch.as_tensor(covariance, dtype=torch.float64, device="cpu")
    matrix = given.reshape(1, 1) if given.ndim == 0 else torch.diag(given) if given.ndim == 1 else given
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(
            f"covariance must be a number, one per axis or a square matrix, got shape {tuple(given.shape)}"
        )
    if not matrix.isfinite().all() or not torch.allclose(matrix, matrix.mT):
        raise ValueError(f"covariance must be finite and symmetric, got {given.tolist()}")
    smallest = torch.linalg.eigvalsh(matrix).min().item()
    if smallest < SMALLEST_SIGMA**2:
        raise ValueError(
            f"covariance must be positive definite with a sigma of at least {SMALLEST_SIGMA} pixel along every "
            f"direction, got the smallest variance {smallest:g}"
        )
    return matrix


def in_open_support(d: Tensor, kernel_size: int | Sequence[int]) -> Tensor:
    """[..., D] -> [...] whether |d| < K/2 on every axis, so that ties stay symmetric.

    An axis of one pixel has nothing to be symmetric with: there the tie counts.
    """
    sizes = kernel_size if isinstance(kernel_size, Sequence) else (kernel_size,) * d.shape[-1]
    near = [d[..., axis].abs() < (0.75 if size == 1 else size / 2) for axis, size in enumerate(sizes)]
    return torch.stack(near, dim=-1).all(-1)
