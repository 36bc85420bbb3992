"""The oracle itself, against things that are known from elsewhere."""

from fractions import Fraction

import numpy as np
import oracle
import pytest
import torch
import torch.nn.functional as F

RNG = np.random.default_rng(0)


def test_half_scale_projects_to_the_papers_positions():
    assert oracle.projected_grid(6, scale=0.5) == [Fraction(1, 2), Fraction(5, 2), Fraction(9, 2)]


def test_third_scale_projects_to_the_papers_positions():
    assert oracle.projected_grid(9, scale=1 / 3) == [1, 4, 7]


def test_half_scale_and_two_taps_give_the_papers_distances():
    half = oracle.axis(6, 2, scale=0.5)
    assert [half.displacement(1, m) for m in half.neighbours(1)] == [Fraction(1, 2), -Fraction(1, 2)]


@pytest.mark.parametrize(("scale", "size"), [(0.6, 3), (1.4, 6)])
def test_four_pixels_resize_as_in_the_papers_figure(scale, size):
    assert oracle.scale_and_size(4, scale=scale)[1] == size


@pytest.mark.parametrize("kernel_size", [1, 2, 3, 4, 5])
def test_neighbours_are_the_k_from_the_ceil_on(kernel_size):
    axis = oracle.axis(7, kernel_size, scale=0.61, center=Fraction(1, 3))
    for i, g in enumerate(axis.grid):
        first = int(np.ceil(float(g - Fraction(kernel_size, 2))))
        assert list(axis.neighbours(i)) == list(range(first, first + kernel_size))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_padding_is_numpys(mode):
    names = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    padded = np.pad(np.arange(5), 4, mode=names[mode])
    assert [oracle.pixel(m, 5, mode) for m in range(-4, 9)] == padded.tolist()


def test_reflection_stops_before_the_far_border():
    with pytest.raises(oracle.Refused):
        oracle.pixel(-5, 5, "reflect")


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("kernel_size", [(3,), (3, 5), (3, 1, 3)])
def test_table_at_scale_one_is_convolution(groups, kernel_size):
    d = len(kernel_size)
    x, w = RNG.normal(size=(2, 4, *(5, 6, 4)[:d])), RNG.normal(size=(4, 4 // groups, *kernel_size))
    got = oracle.continuous_conv(x, oracle.table(w), kernel_size, scale=1, groups=groups)
    conv = (F.conv1d, F.conv2d, F.conv3d)[d - 1]
    want = conv(torch.tensor(x), torch.tensor(w), padding=[k // 2 for k in kernel_size], groups=groups)
    np.testing.assert_allclose(got, want.numpy(), atol=1e-12)


@pytest.mark.parametrize("size", [(9, 4), (3, 17), (5, 6)])
@pytest.mark.parametrize(
    ("mode", "weight", "k"), [("bicubic", oracle.cubic(-0.75), 4), ("bilinear", oracle.linear(), 2)]
)
def test_fixed_kernels_interpolate(size, mode, weight, k):
    x = RNG.normal(size=(1, 2, 5, 6))
    got = oracle.continuous_conv(x, weight, (k, k), size=size, padding_mode="replicate", normalize=True)
    want = F.interpolate(torch.tensor(x), size=size, mode=mode, align_corners=False)
    np.testing.assert_allclose(got, want.numpy(), atol=1e-12)


@pytest.mark.parametrize(
    ("mode", "weight", "k"), [("bicubic", oracle.cubic(-0.5), 4), ("bilinear", oracle.linear(), 2)]
)
def test_stretched_kernels_are_an_antialiased_resize(mode, weight, k):
    x = RNG.normal(size=(1, 1, 20, 24))
    got = oracle.continuous_conv(x, weight, (k, k), size=(13, 9), antialias=True, normalize=True)
    want = F.interpolate(torch.tensor(x), size=(13, 9), mode=mode, align_corners=False, antialias=True)
    inside = (..., slice(3, -3), slice(2, -2))
    np.testing.assert_allclose(got[inside], want.numpy()[inside], atol=1e-12)


def test_a_chosen_pixel_is_the_same_as_in_the_whole():
    x = RNG.normal(size=(1, 2, 5, 6))
    call = {"scale": 1.5, "normalize": True}
    whole = oracle.continuous_conv(x, oracle.lanczos(3), (6, 6), **call)
    some = oracle.continuous_conv(x, oracle.lanczos(3), (6, 6), pixels=[(0, 0), (3, 5)], **call)
    np.testing.assert_array_equal(some, np.stack([whole[..., 0, 0], whole[..., 3, 5]], -1))
