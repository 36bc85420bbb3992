"""Trained discrete layers and whole models -> continuous ones with the same outputs."""

from contconv.conversion.layers import (
    ConvertedConv,
    ConvertedConv1d,
    ConvertedConv2d,
    ConvertedConv3d,
    ConvertedConvTranspose1d,
    ConvertedConvTranspose2d,
    ConvertedConvTranspose3d,
)
from contconv.conversion.report import Entry, Report
from contconv.conversion.resampling import ConvertedPool, ConvertedUpsample
from contconv.conversion.stored import load_converted, load_weights, save_converted
from contconv.conversion.whole_model import conversion_report, convert

__all__ = [
    "ConvertedConv",
    "ConvertedConv1d",
    "ConvertedConv2d",
    "ConvertedConv3d",
    "ConvertedConvTranspose1d",
    "ConvertedConvTranspose2d",
    "ConvertedConvTranspose3d",
    "ConvertedPool",
    "ConvertedUpsample",
    "Entry",
    "Report",
    "conversion_report",
    "convert",
    "load_converted",
    "load_weights",
    "save_converted",
]
