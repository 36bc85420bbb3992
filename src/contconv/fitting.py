"""A kernel fitted to pairs of images: what a layer must be, for x to become y at a given scale.

Two solvers, both in float64. A basis without parameters (a spline) leaves a linear problem in the mixing: one solve.
Any other kernel is fitted by Levenberg-Marquardt steps on all its parameters. Gradient descent crawls here, because
natural images are smooth: the problem's condition number is that of the image's spectrum, which a second-order step
does not mind. Those steps need the images only through their moments (`statistics.py`), gathered once.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import functional_call, jacrev, vmap

from contconv.functional import continuous_conv
from contconv.kernels import Kernel, as_kernel, support, traits
from contconv.moments import Moments, moments
from contconv.size import PerAxis, Size

MOST_PARAMETERS = 4000  # a step solves a dense system of that size


@dataclass(frozen=True)
class Step:
    """Where a fit stands: the mean squared error after `iteration` accepted or refused steps of start `start`."""

    start: int
    iteration: int
    mse: float
    kernel: Kernel


@dataclass(frozen=True)
class Fit:
    """A fitted kernel's error on the images, before and after, and the errors along the way."""

    before: float
    mse: float
    history: tuple[float, ...]
    iterations: int


Watcher = Callable[[Step], None]
