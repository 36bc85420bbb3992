"""The kernel through a trained filter's taps: a cardinal spline, the same under every strategy."""

from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch

import contconv
from contconv.kernels import TapKernel
from contconv.strategies import STRATEGIES

CASES = [
    {"taps": (3,)},
    {"taps": (4,)},
    {"taps": (3,), "dilation": 2},
    {"taps": (2,), "dilation": 3},
    {"taps": (4,), "density": 2},
    {"taps": (3,), "density": 3, "dilation": 2},
]


def spline_through(values):
    """The cubic spline through values at the integers, zero far away: by solving for its control points."""
    margin = 40
    padded = np.pad(values, margin)
    size = len(padded)
    matrix = np.diag(np.full(size, 4.0)) + np.diag(np.ones(size - 1), 1) + np.diag(np.ones(size - 1), -1)
    control = np.linalg.solve(matrix / 6, padded)

    def at(u):
        a = np.abs(u + margin - np.arange(size))
        return float((control * np.where(a < 1, 2 / 3 - a**2 * (1 - a / 2), np.clip(2 - a, 0, None) ** 3 / 6)).sum())

    return at


def oracle(taps, density, dilation, size):
    """W(d), d descending with the tap's number, and what lies beyond the support given to the outermost neighbour."""
    stuffed = np.zeros(dilation * (len(taps) - 1) + 1)
    stuffed[::dilation] = taps
    spline = spline_through(stuffed)
    middle = (len(stuffed) - 1) / 2

    def weight(d):
        shifts = [0]
        if d > size / 2 - 1:
            shifts += range(1, 30)
        if d <= 1 - size / 2:
            shifts += range(-1, -30, -1)
        return sum(spline(middle - density * (d + n)) for n in shifts)

    return weight


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_the_folded_cardinal_spline(case):
    taps = torch.randn(1, 1, *case["taps"], dtype=torch.float64)
    density, dilation = case.get("density", 1), case.get("dilation", 1)
    kernel = TapKernel.from_taps(taps, density=density, dilation=dilation)
    (size,) = kernel.kernel_size
    weight = oracle(taps.flatten().numpy(), density, dilation, size)
    d = (torch.rand(40, 1, dtype=torch.float64) - 0.5) * size
    want = [weight(x) for x in d.flatten().tolist()]
    torch.testing.assert_close(kernel(d).flatten(), torch.tensor(want, dtype=torch.float64))


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("interpolation", ["spline", "nearest"])
@pytest.mark.parametrize("scale", [Fraction(1), Fraction(1, 2), Fraction(2, 3), Fraction(2), 1.2345])
def test_every_strategy_agrees(case, interpolation, scale):
    kernel = TapKernel(4, 6, **case, groups=2, interpolation=interpolation, dtype=torch.float64)
    x = torch.randn(2, 4, 9, dtype=torch.float64)
    wanted = contconv.continuous_conv(x, kernel, scale=scale, center=Fraction(1, 2), strategy="reference")
    ran = 0
    for name in STRATEGIES:
        try:
            y = contconv.continuous_conv(x, kernel, scale=scale, center=Fraction(1, 2), strategy=name)
        except ValueError:
            continue
        ran += 1
        torch.testing.assert_close(y, wanted)
    assert ran >= 3


def test_a_dilated_filter_on_its_own_grid_costs_what_it_has_taps():
    kernel = TapKernel(2, 3, (3, 3), dilation=(4, 7))
    layer = contconv.ContinuousConv2d(2, 3, kernel.kernel_size, kernel=kernel)
    told = contconv.explain(layer, (1, 2, 32, 32))
    assert told.strategy == "conv"
    assert told.costs["conv"].macs == 32 * 32 * 9 * 6
    off = contconv.continuous_conv(torch.zeros(1, 2, 32, 32), kernel, scale=1, center=0.5)
    assert off.shape == (1, 3, 32, 32)


def test_derivatives():
    kernel = TapKernel(2, 2, (3,), dilation=2, dtype=torch.float64)
    x = torch.randn(1, 2, 7, dtype=torch.float64, requires_grad=True)

    def call(x, weight):
        return torch.func.functional_call(kernel, {"weight": weight}, (d,)).sum() * x.sum()

    d = torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None]
    assert torch.autograd.gradcheck(call, (x, kernel.weight))
    for scale in (1, 0.7):
        assert torch.autograd.gradcheck(partial(contconv.continuous_conv, kernel=kernel, scale=scale), (x,))


def test_bad_arguments():
    with pytest.raises(ValueError, match="interpolation must be one of spline, nearest, got 'cubic'"):
        TapKernel(1, 1, (3,), interpolation="cubic")
    with pytest.raises(ValueError, match="dilation must be at least 1"):
        TapKernel(1, 1, (3,), dilation=0)


@pytest.mark.parametrize("case", [case for case in CASES if "density" not in case], ids=str)
def test_a_constant_has_one_response_to_the_last_digits_of_float64(case):
    kernel = TapKernel(2, 3, case["taps"] * 2, **{name: case[name] for name in case if name != "taps"}).double()
    layer = contconv.ContinuousConv2d(2, 3, kernel.kernel_size, kernel=kernel, padding_mode="replicate", bias=False)
    y = layer(torch.ones(1, 2, 20, 20, dtype=torch.float64), scale=(0.6789, 0.7123))
    assert (y - y[..., :1, :1]).abs().max() < 1e-13
