"""Continuous kernels: displacement -> basis, mixing. To add one: write its file and register it here."""

from collections.abc import Callable
from functools import partial

from contconv.kernels.base import Kernel, LearnedKernel, Traits, as_kernel, check_channels, support, traits
from contconv.kernels.fixed import Cubic, FixedKernel, Gaussian, Lanczos, Linear
from contconv.kernels.internal_net import InternalNet, is_net
from contconv.kernels.spline import SplineKernel
from contconv.kernels.table import Table
from contconv.kernels.taps import TapKernel, dilation_of

# Learned kernels, by the name that a layer's `kernel=` takes; each is made with
# (in_channels, out_channels, kernel_size, *, groups, device, dtype).
KERNELS: dict[str, Callable[..., LearnedKernel]] = {
    "internal": InternalNet,
    "internal-per-tap": partial(InternalNet, per_tap=True),
    "spline": SplineKernel,
}
DEFAULT_KERNEL = "internal"

FIXED: dict[str, type[FixedKernel]] = {
    "linear": Linear,
    "cubic": Cubic,
    "lanczos": Lanczos,
    "gaussian": Gaussian,
}

__all__ = [
    "DEFAULT_KERNEL",
    "FIXED",
    "KERNELS",
    "Cubic",
    "Gaussian",
    "InternalNet",
    "Kernel",
    "Lanczos",
    "LearnedKernel",
    "Linear",
    "SplineKernel",
    "Table",
    "TapKernel",
    "Traits",
    "as_kernel",
    "check_channels",
    "dilation_of",
    "is_net",
    "support",
    "traits",
]
