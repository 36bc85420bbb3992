"""Image resizing by others: what the layers are to imitate. Nothing here uses the layers' own computation."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

Profile = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]


@dataclass(frozen=True)
class Pair:
    """An image, the same image resized by someone else, and where in the first the pixels of the second lie."""

    x: Tensor  # [N, 1, H, W]
    y: Tensor  # [N, 1, H', W']
    scale: tuple[Fraction, Fraction]
    center: tuple[Fraction, Fraction]

    @property
    def size(self) -> tuple[int, int]:
        return self.y.shape[2], self.y.shape[3]


@dataclass(frozen=True)
class Target:
    """A resizing method: its name, the kernel behind it and that kernel's support."""

    name: str
    kernel_size: int
    profile: Profile  # (dy, dx) -> weights that sum to one over the taps of a pixel, nearly

    def applied(self, x: Tensor, scale: tuple[float, float]) -> Pair:
        """The image resized by this method, without antialiasing, borders replicated."""
        if not all(math.isfinite(s) and 0 < s <= 16 for s in scale):
            raise ValueError(f"--scale must be between 0 and 16, got {scale}")
        exact = (Fraction(scale[0]), Fraction(scale[1]))
        sizes = (math.floor(x.shape[2] * exact[0]), math.floor(x.shape[3] * exact[1]))
        if min(sizes) < 1:
            raise ValueError(f"scale {scale} leaves nothing of an image of {x.shape[2]}x{x.shape[3]} pixels")
        y = bicubic(x, scale) if self.name == "bicubic" else resampled(x, scale, sizes, self)
        # Both methods align the corners of the first pixels; the layer aligns centres. The difference, exactly:
        center = tuple(out / (2 * s) - Fraction(n, 2) for out, s, n in zip(sizes, exact, x.shape[2:], strict=True))
        return Pair(x, y, exact, (center[0], center[1]))

    def sampled(self, resolution: int) -> tuple[Tensor, Tensor]:
        """A line of displacements over the support, and the true kernel on line x line.

        The method divides the taps of a pixel by their sum, and so does the true kernel: at every displacement by the
        sum over all displacements that go with it.
        """
        half = self.kernel_size / 2
        line = np.linspace(-half, half, resolution)
        first = np.mod(line + half, 1.0) - half
        total = np.zeros((resolution, resolution))
        for i in range(self.kernel_size):
            for j in range(self.kernel_size):
                total += self.profile((first + i)[:, None], (first + j)[None, :])
        true = self.profile(line[:, None], line[None, :]) / total
        return torch.from_numpy(line), torch.from_numpy(true)


def bicubic(x: Tensor, scale: tuple[float, float]) -> Tensor:
    """PyTorch's own bicubic interpolation."""
    return F.interpolate(x, scale_factor=scale, mode="bicubic", align_corners=False, recompute_scale_factor=False)


def resampled(x: Tensor, scale: tuple[float, float], sizes: tuple[int, int], target: Target) -> Tensor:
    """Resampling in plain NumPy: for each tap, the neighbour times the kernel; then divided by the taps' sum."""
    image = x.numpy()
    half = target.kernel_size / 2
    places = [(np.arange(n) + 0.5) / s - 0.5 for n, s in zip(sizes, scale, strict=True)]
    firsts = [np.ceil(place - half).astype(int) for place in places]
    total = np.zeros((*image.shape[:2], *sizes))
    weight = np.zeros(sizes)
    for i in range(target.kernel_size):
        rows = firsts[0] + i
        band = image[:, :, rows.clip(0, image.shape[2] - 1)]
        for j in range(target.kernel_size):
            columns = firsts[1] + j
            tap = target.profile((places[0] - rows)[:, None], (places[1] - columns)[None, :])
            total += tap * band[:, :, :, columns.clip(0, image.shape[3] - 1)]
            weight += tap
    return torch.from_numpy(total / weight)


def keys(d: NDArray[np.float64], a: float = -0.75) -> NDArray[np.float64]:
    """Keys' cubic convolution kernel."""
    t = np.abs(d)
    inner = (a + 2) * t**3 - (a + 3) * t**2 + 1
    outer = a * (t**3 - 5 * t**2 + 8 * t - 4)
    return np.where(t <= 1, inner, np.where(t < 2, outer, 0.0))


def windowed_sinc(d: NDArray[np.float64], n: int = 3) -> NDArray[np.float64]:
    """Lanczos' kernel."""
    return np.where(np.abs(d) < n, np.sinc(d) * np.sinc(d / n), 0.0)


def gaussian(sigma: tuple[float, float], rotation: float, kernel_size: int) -> Target:
    """A Gaussian with a sigma per axis, turned by so many degrees."""
    if min(sigma) < 0.2:
        raise ValueError(f"--sigma must be at least 0.2 pixels along both axes, got {sigma}")
    angle = math.radians(rotation)

    def profile(dy: NDArray[np.float64], dx: NDArray[np.float64]) -> NDArray[np.float64]:
        along = math.cos(angle) * dx + math.sin(angle) * dy
        across = math.cos(angle) * dy - math.sin(angle) * dx
        exponent = (along / sigma[0]) ** 2 + (across / sigma[1]) ** 2
        return np.exp(-exponent / 2) / (2 * math.pi * sigma[0] * sigma[1])

    return Target("gaussian", kernel_size, profile)


def drawn_scale(seed: int, image: Tensor, largest_gap: float = 0.05) -> tuple[float, float]:
    """A random pair of scales in [0.3, 1.3] whose grids have displacements of all kinds.

    The paper's condition for learning the whole kernel is "sufficient diversity in sub-pixel grid shifts". A float near
    a simple fraction (0.334) lacks it on an image of a few hundred pixels, so such a draw is drawn again: the shifts of
    either axis must leave no gap of more than `largest_gap` pixels.
    """
    generator = torch.Generator().manual_seed(seed)
    scale = []
    for n in image.shape[2:]:
        for _ in range(1000):
            s = 0.3 + torch.rand((), dtype=torch.float64, generator=generator).item()
            if phase_gap(n, s) <= largest_gap:
                break
        scale.append(s)
    return scale[0], scale[1]


def phase_gap(n: int, scale: float) -> float:
    """The largest interval of sub-pixel shifts that a grid over n pixels leaves out."""
    shifts = np.sort(((np.arange(math.floor(n * scale)) + 0.5) / scale - 0.5) % 1.0)
    if not len(shifts):
        return 1.0
    return float(np.max(np.diff(shifts, append=shifts[0] + 1)))


BICUBIC = Target("bicubic", 4, lambda dy, dx: keys(dy) * keys(dx))
LANCZOS = Target("lanczos", 6, lambda dy, dx: windowed_sinc(dy) * windowed_sinc(dx))
