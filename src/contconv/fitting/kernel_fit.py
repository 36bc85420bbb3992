"""A kernel fitted to pairs of images: what the kernel must be, for x to become y at a given scale.

Two solvers, both in float64. A basis without parameters (a spline) leaves a linear problem in the mixing: one solve
over all pixels. Any other kernel is fitted by Levenberg-Marquardt steps on all its parameters, with the mixing solved
anew after each. Gradient descent crawls here, because natural images are smooth: the condition number of the problem
is that of the image's spectrum, which a second-order step does not mind. The steps need the images only through their
second moments (`moments.py`), gathered once, so that a step takes some hundredths of a second for any photo.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn
from torch.func import functional_call

from contconv.fitting.descent import Descent, Step, solved
from contconv.fitting.moments import Moments, moments, patches_and_displacements
from contconv.functional import planned
from contconv.grid import Axis
from contconv.kernels import Kernel, as_kernel, traits
from contconv.size import PerAxis, Size, exact_size

MOST_PARAMETERS = 4000  # a step solves a dense system of that size
MOST_NUMBERS_AT_ONCE = 2**20  # of a basis in memory: more would leave the processor's cache


@dataclass(frozen=True)
class Fit:
    """What became of a fit: the layer's mean squared error, the best start and its course.

    `history` is the error by the moments, which the steps go by; `mse` is that of the layer itself.
    """

    mse: float
    history: tuple[float, ...]
    start: int = 0


def fit(
    kernel: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    scale: PerAxis | None = None,
    size: Size | None = None,
    center: PerAxis = 0,
    padding_mode: str = "zeros",
    steps: int = 150,
    starts: int = 4,
    nodes_per_pixel: int = 8,
    watch: Callable[[Step], None] | None = None,
) -> Fit:
    """Change the kernel's parameters so that `continuous_conv(x, kernel, ...)` is as near to y as it can be.

    x: [N, Cin, *in], y: [N, Cout, *out]; the other arguments up to `padding_mode` are those of `continuous_conv`. A
    kernel that is linear in its parameters is solved for. Any other takes `steps` Levenberg-Marquardt steps; `starts`
    random initialisations take a quarter of them each, and the best goes on. `watch` is called after every step.

    >>> x = torch.rand(1, 1, 24, 24)
    >>> y = contconv.continuous_conv(x, contconv.SplineKernel.from_taps(torch.rand(1, 1, 3, 3), fold=False), scale=0.7)
    >>> fit(contconv.SplineKernel(1, 1, (3, 3)), x, y, scale=0.7).mse < 1e-10
    True
    """
    kernel = as_kernel(kernel)
    exact_size(steps, "steps")
    exact_size(starts, "starts")
    check(kernel, x, y)
    x, y = x.detach().double().cpu(), y.detach().double().cpu()
    with torch.no_grad():
        axes = planned(
            x.shape, kernel, scale=scale, size=size, padding_mode=padding_mode, antialias=False, center=center
        ).axes
        check_size(y, axes)
        if [name for name, _ in kernel.named_parameters()] == ["mixing"]:
            kernel.mixing.copy_(solved_mixing(kernel, x, y, axes, padding_mode))
            return Fit(mse := mean_squared_error(kernel, x, y, axes, padding_mode), (mse,))
        second = moments(x, y, axes, padding_mode, nodes_per_pixel)
        best = _best_of(kernel, second, steps, starts, watch)
        mse = mean_squared_error(kernel, x, y, axes, padding_mode)
        return Fit(mse, tuple(best.history), best.start)


def check(kernel: Kernel, x: Tensor, y: Tensor) -> None:
    """Refuse what cannot be fitted."""
    kind = traits(kernel)
    if kind.per_tap or kind.normalize or kind.channelwise:
        raise ValueError(
            f"kernel must be learned, of the displacement and not normalised, to be fitted; got {kernel!r}"
        )
    out_channels, in_channels = kernel.mixing.shape[-2:]
    if x.ndim != y.ndim or x.shape[0] != y.shape[0]:
        raise ValueError(f"y must have x's batch and axes, got x {tuple(x.shape)} and y {tuple(y.shape)}")
    if (x.shape[1], y.shape[1]) != (in_channels, out_channels):
        raise ValueError(
            f"kernel takes {in_channels} channels to {out_channels} (without groups), x and y have {x.shape[1]} and "
            f"{y.shape[1]}: several images are several samples, not channels"
        )
    count = sum(p.numel() for p in kernel.parameters())
    if count > MOST_PARAMETERS:
        raise ValueError(f"kernel has {count} parameters, fit takes at most {MOST_PARAMETERS}: train it by gradients")


def check_size(y: Tensor, axes: Sequence[Axis]) -> None:
    """Refuse a y that is not of the output's size."""
    wanted = tuple(axis.out_size for axis in axes)
    if y.shape[2:] != wanted:
        raise ValueError(f"y must have the output's size {wanted}, got shape {tuple(y.shape)}")


def mean_squared_error(kernel: Kernel, x: Tensor, y: Tensor, axes: Sequence[Axis], padding_mode: str) -> float:
    """What the layer misses, over all pixels and in float64."""
    double = {name: p.detach().double().cpu() for name, p in kernel.named_parameters()}
    numbers = prod(axis.taps for axis in axes) * sum(kernel.mixing.shape)
    total = 0.0
    for rows, patches, d in patches_and_displacements(x, axes, padding_mode, MOST_NUMBERS_AT_ONCE // numbers):
        predicted = torch.einsum("ptoc,nptc->nop", functional_call(kernel, double, (d,)), patches)
        total += (predicted - y[:, :, rows].flatten(2)).square().sum().item()
    return total / y.numel()


def solved_mixing(kernel: Kernel, x: Tensor, y: Tensor, axes: Sequence[Axis], padding_mode: str) -> Tensor:
    """[R, Cout, Cin] the least-squares mixing over all pixels, exactly, by its normal equations."""
    functions, out_channels, in_channels = kernel.mixing.shape
    width = functions * in_channels
    gram, target = x.new_zeros(width, width), x.new_zeros(width, out_channels)
    taps = prod(axis.taps for axis in axes)
    most_pixels = max(1, MOST_NUMBERS_AT_ONCE // (taps * functions))
    for rows, patches, d in patches_and_displacements(x, axes, padding_mode, most_pixels):
        features = torch.einsum("ptr,nptc->nprc", kernel.basis(d), patches).flatten(2).flatten(0, 1)
        gram += features.mT @ features
        target += features.mT @ y[:, :, rows].flatten(2).mT.flatten(0, 1)
    return solved(gram, target).reshape(functions, in_channels, out_channels).mT


def _best_of(kernel: Kernel, second: Moments, steps: int, starts: int, watch: Callable[[Step], None] | None) -> Descent:
    """Fit from several starts and leave the best in the kernel."""
    reset = getattr(kernel, "reset_parameters", None)
    starts = starts if reset is not None else 1
    trials = []
    for start in range(starts):
        if start:
            assert reset is not None
            reset()
        trial = Descent(kernel, second, start, watch)
        trial.take(steps if starts == 1 else -(-steps // 4))
        trials.append(trial)
    best = min(trials, key=lambda trial: trial.mse)
    if starts > 1:
        best.take(steps - -(-steps // 4))
    for name, parameter in kernel.named_parameters():
        parameter.copy_(best.named(best.vector)[name])
    return best
