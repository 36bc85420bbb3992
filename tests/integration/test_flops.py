"""`torch.utils.flop_counter` counts what `explain` says, and what pencil and paper say."""

from fractions import Fraction
from itertools import product
from math import sqrt

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import contconv
from contconv import ContinuousConv1d, ContinuousConv2d, ContinuousConv3d
from contconv.kernels import KERNELS
from contconv.strategies import STRATEGIES

CALLS = {
    "half": {"scale": Fraction(1, 2)},
    "two-thirds": {"scale": 2 / 3},
    "irrational": {"scale": sqrt(0.5)},
    "up": {"scale": (1.5, 2)},
    "size": {"size": (3, 9)},
}


def counted(call) -> tuple[int, torch.Tensor]:
    """The multiply-adds of a call, as torch counts them, and what it returned."""
    with FlopCounterMode(display=False) as counter:
        y = call()
    return counter.get_total_flops() // 2, y


def assert_counts_agree(layer, x, call) -> None:
    explained = contconv.explain(layer, x, **call)
    macs, _ = counted(lambda: layer(x, **call))
    assert macs == explained.costs[explained.strategy].macs


@pytest.mark.parametrize(("strategy", "kernel", "call"), list(product(STRATEGIES, KERNELS, CALLS)))
def test_counted_is_what_explain_says(strategy, kernel, call):
    layer = ContinuousConv2d(4, 6, (3, 2), kernel=kernel, groups=2)
    x = torch.randn(3, 4, 8, 7)
    if not contconv.explain(layer, x, **CALLS[call]).reasons[strategy]:
        layer.strategy = strategy
        assert_counts_agree(layer, x, CALLS[call])


@pytest.mark.parametrize(("strategy", "kernel"), list(product(("phases", "factored"), KERNELS)))
def test_the_same_in_float64_which_the_native_kernel_does_not_serve(strategy, kernel):
    layer = ContinuousConv2d(4, 6, 3, kernel=kernel).double()
    x = torch.randn(2, 4, 9, 9).double()
    if not contconv.explain(layer, x, scale=0.7).reasons[strategy]:
        layer.strategy = strategy
        assert_counts_agree(layer, x, {"scale": 0.7})


@pytest.mark.parametrize("make", [contconv.Linear, contconv.Cubic, lambda: contconv.Gaussian([[2, 1], [1, 2.0]], 4)])
@pytest.mark.parametrize("call", CALLS)
def test_fixed_kernels_count_too(make, call):
    layer = ContinuousConv2d(3, 3, make().kernel_size, kernel=make(), groups=3)
    assert_counts_agree(layer, torch.randn(2, 3, 8, 7), CALLS[call])


@pytest.mark.parametrize("conv", [ContinuousConv1d, ContinuousConv3d])
def test_any_number_of_axes(conv):
    layer = conv(3, 4, 3)
    assert_counts_agree(layer, torch.randn(2, 3, *(5,) * layer.axes), {"scale": 0.7})


def test_blocks_count_every_sample_they_take():
    layer = ContinuousConv2d(4, 6, 3, memory_limit=40_000, strategy="reference")
    x = torch.randn(3, 4, 12, 12)
    assert contconv.explain(layer, x, scale=0.7).strategy == "chunked"
    assert_counts_agree(layer, x, {"scale": 0.7})


def test_a_convolution_by_hand():
    """[2, 3, 8, 8] -> [2, 5, 4, 4] with 3x3 taps, and the filters from 9 control points."""
    layer = ContinuousConv2d(3, 5, 3, kernel="spline")
    assert counted(lambda: layer(torch.zeros(2, 3, 8, 8), scale=1 / 2))[0] == (2 * 4 * 4 + 9) * 9 * 3 * 5


def test_a_bicubic_resize_by_hand():
    """Rows first, [2, 8, 6] -> [2, 4, 6], then columns to [2, 4, 9], with 4 taps each."""
    x = torch.zeros(1, 2, 8, 6)
    call = {"scale": (1 / 2, 3 / 2), "strategy": "separable"}
    assert counted(lambda: contconv.continuous_conv(x, contconv.Cubic(), **call))[0] == 2 * 4 * (4 * 6 + 4 * 9)
