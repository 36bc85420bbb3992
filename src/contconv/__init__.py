"""Continuous convolution for PyTorch."""

from importlib import import_module
from types import ModuleType

from contconv._version import __version__
from contconv.conversion import conversion_report, convert, load_converted, save_converted
from contconv.elastic import Plan, plan, scales
from contconv.ensembles import ScaleEnsemble, ensemble
from contconv.explanation import Explanation, explain
from contconv.functional import continuous_conv
from contconv.grid import projected_grid
from contconv.kernels import Cubic, Gaussian, InternalNet, Kernel, Lanczos, Linear, SplineKernel, Table, TapKernel
from contconv.modules import ContinuousConv1d, ContinuousConv2d, ContinuousConv3d
from contconv.sequences import output_sizes, sample_scales

__all__ = [
    "ContinuousConv1d",
    "ContinuousConv2d",
    "ContinuousConv3d",
    "Cubic",
    "Explanation",
    "Gaussian",
    "InternalNet",
    "Kernel",
    "Lanczos",
    "Linear",
    "Plan",
    "ScaleEnsemble",
    "SplineKernel",
    "Table",
    "TapKernel",
    "__version__",
    "continuous_conv",
    "conversion_report",
    "convert",
    "ensemble",
    "explain",
    "load_converted",
    "output_sizes",
    "plan",
    "projected_grid",
    "sample_scales",
    "save_converted",
    "scales",
]

LATER = ("exporting", "fitting", "images", "models", "native", "plot")


def __getattr__(name: str) -> ModuleType:
    """Rooms that not everybody needs are imported when they are asked for."""
    if name in LATER:
        return import_module(f"contconv.{name}")
    raise AttributeError(f"module 'contconv' has no attribute {name!r}")
