"""Fixed kernels are PyTorch's interpolation."""

import pytest
import torch
import torch.nn.functional as F
from problems import STRATEGY_NAMES, assert_near

import contconv

EXACT = 1e-12
MODES = {1: "linear", 2: "bilinear", 3: "trilinear"}
SIZES = {
    1: [(1,), (3,), (7,), (8,), (20,), (63,)],
    2: [(1, 1), (4, 9), (12, 5), (7, 6), (30, 13), (3, 25)],
    3: [(1, 2, 3), (9, 5, 4), (5, 6, 7), (3, 10, 2)],
}


def image(axes, dtype=torch.float64):
    return torch.randn(2, 3, *(7, 6, 5)[:axes], dtype=dtype)


@pytest.mark.parametrize("size", SIZES[2], ids=str)
def test_cubic_is_bicubic_at_every_pixel(size):
    x = image(2)
    got = contconv.continuous_conv(x, contconv.Cubic(-0.75), size=size, padding_mode="replicate")
    assert_near(got, F.interpolate(x, size=size, mode="bicubic", align_corners=False), EXACT)


@pytest.mark.parametrize(("axes", "size"), [(axes, size) for axes in SIZES for size in SIZES[axes]], ids=str)
def test_linear_is_linear_at_every_pixel(axes, size):
    x = image(axes)
    got = contconv.continuous_conv(x, contconv.Linear(), size=size, padding_mode="replicate")
    assert_near(got, F.interpolate(x, size=size, mode=MODES[axes], align_corners=False), EXACT)


@pytest.mark.parametrize("strategy", STRATEGY_NAMES)
@pytest.mark.parametrize(("mode", "kernel"), [("bicubic", contconv.Cubic()), ("bilinear", contconv.Linear())])
def test_every_strategy_interpolates_by_a_half(mode, kernel, strategy):
    x = torch.randn(2, 3, 8, 6, dtype=torch.float64)
    got = contconv.continuous_conv(x, kernel, scale=0.5, padding_mode="replicate", strategy=strategy)
    assert_near(got, F.interpolate(x, scale_factor=0.5, mode=mode, align_corners=False), EXACT)


@pytest.mark.parametrize("scale", [2, 3.0, 0.5])
def test_a_scale_that_divides_the_sizes_is_a_scale_factor(scale):
    x = torch.randn(1, 2, 8, 6, dtype=torch.float64)
    got = contconv.continuous_conv(x, contconv.Cubic(), scale=scale, padding_mode="replicate")
    assert_near(got, F.interpolate(x, scale_factor=scale, mode="bicubic", align_corners=False), EXACT)


@pytest.mark.parametrize("size", [(20, 24), (13, 9), (29, 17), (10, 31), (40, 33)], ids=str)
@pytest.mark.parametrize(("mode", "kernel"), [("bicubic", contconv.Cubic(-0.5)), ("bilinear", contconv.Linear())])
def test_antialiased_resizing_away_from_the_border(mode, kernel, size):
    """Up as well as down. At the border PyTorch leaves out the taps beyond it, we pad."""
    x = torch.randn(1, 2, 30, 33, dtype=torch.float64)
    got = contconv.continuous_conv(x, kernel, size=size, antialias=True, padding_mode="replicate")
    want = F.interpolate(x, size=size, mode=mode, align_corners=False, antialias=True)
    inside = (..., slice(3, -3), slice(3, -3))
    assert_near(got[inside], want[inside], EXACT)


@pytest.mark.parametrize("size", [(9, 4), (5, 11)], ids=str)
def test_gradients_are_interpolations_too(size):
    x, y = image(2).requires_grad_(), image(2).requires_grad_()
    y.data.copy_(x.data)
    contconv.continuous_conv(x, contconv.Cubic(), size=size, padding_mode="replicate").square().sum().backward()
    F.interpolate(y, size=size, mode="bicubic", align_corners=False).square().sum().backward()
    assert_near(x.grad, y.grad, EXACT)
