"""Where shift-equivariance is lost: at the borders, by interpolation, or to what the kernels let through.

Each way is the paper's measurement with one thing changed:

- *borders far away*: both images have `context` pixels more on each side, and the maps lose as much before they are
  compared, so that no padding is near;
- *interpolation alone*: those maps are compared with themselves, moved by their Fourier transforms instead of by the
  network, so what is missing from 1 is the cubic interpolation's (and some 0.0002, since maps are not periodic);
- *smooth kernels*: every filter is blurred as a cubic B-spline blurs its coefficients, by (1/6, 2/3, 1/6) along each
  axis; the network was not trained so, and its accuracy falls, but its maps say what smoothness is worth;
- *smooth last kernels*: the last layer's alone.

Noise is drawn on a canvas of another size than for `contconv cifar evaluate`, so it is other noise.
"""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contconv.cifar.accuracy import responses
from contconv.cifar.augment import normalized
from contconv.cifar.equivariance import (
    CUT,
    SHRINK,
    canvas_of_images,
    canvas_of_noise,
    drawn_shifts,
    similarities,
    windows,
)
from contconv.experiments.progress import Bar
from contconv.kernels import Kernel
from contconv.kernels.base import as_kernel, traits
from contconv.modules import ContinuousConv2d

SIDES = (1 / 6, 2 / 3, 1 / 6)  # of the cubic B-spline at whole numbers


@dataclass(frozen=True)
class Settings:
    """What is measured, and on how much."""

    images: int = 200
    """So many test images, and so many images of noise."""
    shifts: tuple[int, ...] = (2, 4, 6)
    """The largest shifts, in pixels."""
    context: int = 20
    """With borders far away: so many pixels more on each side."""
    seed: int = 0
    """Of shifts and noise."""

    def __post_init__(self) -> None:
        for name, least in {"images": 1, "context": 0, "seed": 0}.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.context % SHRINK:
            raise ValueError(
                f"context must be a multiple of {SHRINK}, by which the maps are smaller, got {self.context}"
            )
        if not self.shifts or min(self.shifts) < 1:
            raise ValueError(f"shifts must be one or more numbers of at least 1, got {self.shifts}")


Found = dict[str, dict[str, dict[int, float]]]  # by input, way and largest shift


def causes(model: nn.Module, pixels: Tensor, settings: Settings) -> Found:
    """Mean similarities of the last convolutional layer's output."""
    reach = max(settings.shifts) + settings.context
    if reach >= min(pixels.shape[-2:]):
        raise ValueError(
            f"shifts and context must be less than the images' {min(pixels.shape[-2:])} pixels together, got "
            f"{max(settings.shifts)} + {settings.context}: beyond the border the images are reflected"
        )
    smooth, smooth_last = smoothed(model), smoothed(model, last=1)
    found: Found = {}
    with Bar(10, "equivariance") as bar:
        for name, canvas in canvases(pixels, reach, settings.seed):
            near = F.pad(canvas, (-settings.context,) * 4)
            found[name] = {
                "as the paper measures": over_shifts(moved_image(model), model, near, 0, settings, bar),
                "borders far away": over_shifts(moved_image(model), model, canvas, settings.context, settings, bar),
                "interpolation alone": over_shifts(moved_map, model, canvas, settings.context, settings, bar),
                "smooth kernels": over_shifts(moved_image(smooth), smooth, near, 0, settings, bar),
                "smooth last kernels": over_shifts(moved_image(smooth_last), smooth_last, near, 0, settings, bar),
            }
    return found


def canvases(pixels: Tensor, reach: int, seed: int) -> Iterator[tuple[str, Tensor]]:
    """Images continued by reflection, and noise, with `reach` pixels more on each side."""
    yield "images", normalized(canvas_of_images(pixels, reach, "reflect"))
    count, channels, size, _ = pixels.shape
    yield "noise", canvas_of_noise(count, channels, size, reach, seed)


Move = Callable[[Tensor, Tensor, int, Tensor], Tensor]  # canvas, its still map, margin, shifts -> the moved map


def moved_image(model: nn.Module) -> Move:
    """The network's own map of the moved image."""
    return lambda canvas, still, margin, shifts: responses(model, windows(canvas, margin, shifts))


def moved_map(canvas: Tensor, still: Tensor, margin: int, shifts: Tensor) -> Tensor:
    """The still image's map, moved exactly: each frequency is turned by what a shift by shift / 4 turns it."""
    height, width = still.shape[-2:]
    distance = shifts.to(still.dtype) / SHRINK
    rows = torch.fft.fftfreq(height)[None, :, None] * distance[:, :1, None]
    columns = torch.fft.fftfreq(width)[None, None, :] * distance[:, 1:, None]
    turned = torch.fft.fft2(still) * torch.exp(-2j * torch.pi * (rows + columns))[:, None]
    return torch.fft.ifft2(turned).real


def over_shifts(
    move: Move, model: nn.Module, canvas: Tensor, context: int, settings: Settings, bar: Bar
) -> dict[int, float]:
    """Mean similarities for one canvas, by largest shift."""
    margin = max(settings.shifts)
    still = responses(model, windows(canvas, margin))
    found = {}
    for largest in settings.shifts:
        shifts = drawn_shifts(len(canvas), largest, settings.seed)
        moved = move(canvas, still, margin, shifts)
        with torch.inference_mode():
            similar = similarities(still, moved, shifts, cut=CUT + context // SHRINK)
        found[largest] = similar.double().mean().item()
    bar.step()
    return found


def smoothed(model: nn.Module, last: int | None = None) -> nn.Module:
    """A copy whose filters are blurred along both axes; where the blur would look beyond a filter, it looks nowhere.

    last: of so many of the last convolutional layers; None is all.
    """
    copied = copy.deepcopy(model)
    layers = [module for module in copied.modules() if isinstance(module, nn.Conv2d | ContinuousConv2d)]
    for module in layers if last is None else layers[-last:]:
        if isinstance(module, nn.Conv2d):
            module.weight.data = blurred(module.weight.data.permute(2, 3, 0, 1)).permute(2, 3, 0, 1)
        elif traits(module.kernel).per_tap:
            mixing = module.kernel.mixing.data  # [taps, R, Cout, Cin]
            mixing.copy_(blurred(mixing.unflatten(0, module.kernel_size)).flatten(0, 1))
        else:
            module.kernel = as_kernel(Smooth(module.kernel))
    return copied


class Smooth(nn.Module):
    """A kernel, blurred: the weighted mean of its values at whole steps from the displacement."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel
        self.kernel_size = kernel.kernel_size

    @property
    def mixing(self) -> Tensor:
        return self.kernel.mixing

    def basis(self, d: Tensor) -> Tensor:
        ends = torch.tensor(self.kernel_size, dtype=d.dtype, device=d.device) / 2
        total = torch.zeros(())
        for steps in product((-1, 0, 1), repeat=d.shape[-1]):
            there = d + torch.tensor(steps, dtype=d.dtype, device=d.device)
            inside = (there > -ends) & (there <= ends)
            total = total + math.prod(SIDES[1 + step] for step in steps) * self.kernel.basis(
                torch.where(inside, there, d)
            )
        return total


def blurred(taps: Tensor) -> Tensor:
    """[height, width, ...] -> the same, blurred along the first two axes."""
    height, width = (blur(size).to(taps) for size in taps.shape[:2])
    return torch.einsum("yi,xj,ij...->yx...", height, width, taps)


def blur(taps: int) -> Tensor:
    """[taps, taps]: the matrix that blurs so many numbers, its columns' sums 1."""
    matrix = torch.zeros(taps, taps)
    for tap in range(taps):
        for step, weight in zip((-1, 0, 1), SIDES, strict=True):
            matrix[min(max(tap + step, 0), taps - 1), tap] += weight
    return matrix
