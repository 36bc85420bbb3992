"""Kernels fitted to pairs of images."""

from contconv.fitting.descent import Step
from contconv.fitting.kernel_fit import Fit, fit

__all__ = ["Fit", "Step", "fit"]
