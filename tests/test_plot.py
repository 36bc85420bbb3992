"""Kernels can be looked at: any channels, axes, resolution, with a scale's phases marked."""

import subprocess
import sys

import matplotlib
import numpy as np
import pytest
import torch

matplotlib.use("Agg")
from matplotlib import pyplot

from contconv import ContinuousConv1d, ContinuousConv2d, ContinuousConv3d, Cubic, Gaussian, plot


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot.close("all")


def test_a_map_shows_the_kernel_of_the_channels_asked_for():
    layer = ContinuousConv2d(3, 4, 3)
    figure = plot.kernel(layer, channels=(2, 1), resolution=11)
    shown = figure.axes[0].images[0].get_array()
    line = torch.linspace(-1.5, 1.5, 11)
    with torch.no_grad():
        expected = layer.kernel(torch.stack(torch.meshgrid(line, line, indexing="ij"), -1))[..., 2, 1]
    np.testing.assert_allclose(shown, expected.numpy(), atol=1e-6)


def test_a_curve_marks_the_phases_of_a_scale():
    figure = plot.kernel(ContinuousConv1d(1, 1, 3), scale=2 / 3)
    marked = figure.axes[0].lines[-1].get_xdata()
    assert len(marked) == 6  # two phases of three taps
    assert np.allclose(np.diff(np.sort(marked)), 0.5)


def test_a_map_marks_the_phases_of_a_scale():
    figure = plot.kernel(Cubic(), scale=(1 / 2, 2 / 3))
    assert len(figure.axes[0].lines[0].get_xdata()) == 4 * 8


def test_three_axes_become_slices():
    figure = plot.kernel(ContinuousConv3d(1, 1, 3), slices=4, resolution=20)
    assert len([axis for axis in figure.axes if axis.images]) == 4


def test_it_draws_into_a_plot_of_yours():
    figure, ax = pyplot.subplots()
    assert plot.kernel(Gaussian(1.0, 5), ax=ax, axes=2, title="blur") is figure
    assert ax.get_title() == "blur"


def test_wrong_channels_are_refused():
    with pytest.raises(ValueError, match="channels must be"):
        plot.kernel(ContinuousConv2d(3, 4, 3), channels=(4, 0))
    with pytest.raises(TypeError, match="kernel must be a module"):
        plot.kernel(torch.nn.ReLU())


def test_without_matplotlib_the_extra_is_named():
    code = """
import sys
sys.modules["matplotlib"] = None
import contconv.plot
try:
    contconv.plot.kernel(contconv.Cubic())
except ImportError as error:
    print(error)
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "contconv[plot]" in printed
