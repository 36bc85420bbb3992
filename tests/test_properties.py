"""What the operation keeps: centres, shifts, constants, ramps, reflections."""

from fractions import Fraction
from math import sqrt

import pytest
import torch
import torch.nn.functional as F
from problems import FIXED_CASES, KERNEL_CASES, Problem, assert_near, input_of, layer_of

import contconv
from contconv.kernels import FIXED

SCALES = [1, 0.5, 1 / 3, 2 / 3, 1.5, 2, 3.7, sqrt(0.5), (0.4, 1.9)]


def white_cross(n=161):
    x = torch.zeros(1, 1, n, n, dtype=torch.float64)
    x[..., n // 2, n // 2 - 8 : n // 2 + 9] = 1
    x[..., n // 2 - 8 : n // 2 + 9, n // 2] = 1
    return x


def centre_of_mass(x):
    rows = torch.arange(x.shape[-1], dtype=x.dtype)
    return torch.stack([(x.sum(-1) * rows).sum(), (x.sum(-2) * rows).sum()]) / x.sum()


def test_a_cross_stays_put_under_fifty_gaussians_on_four_pixels():
    x, gaussian = white_cross(), contconv.Gaussian(1.0, kernel_size=4)
    start = centre_of_mass(x)
    for _ in range(50):
        x = contconv.continuous_conv(x, gaussian, scale=1)
    assert (centre_of_mass(x) - start).abs().max() < 1e-6


def test_the_same_cross_drifts_half_a_pixel_at_each_discrete_convolution_on_four_pixels():
    x, d = white_cross(), torch.arange(4, dtype=torch.float64) - 1.5
    taps = torch.exp(-(d[:, None] ** 2 + d**2) / 2)
    start = centre_of_mass(x)
    for _ in range(50):
        x = F.conv2d(F.pad(x, (1, 2, 1, 2)), (taps / taps.sum())[None, None])
    assert (centre_of_mass(x) - start).abs().sub(25).abs().max() < 1e-6


@pytest.mark.parametrize("name", KERNEL_CASES)
@pytest.mark.parametrize(("k", "l"), [(1, 1), (1, 2), (2, 3), (3, 2), (5, 4), (2, 1), (3, 7)])
def test_a_shift_by_l_pixels_at_scale_k_over_l_shifts_the_output_by_k(k, l, name):  # noqa: E741
    kernel = KERNEL_CASES[name]
    problem = kernel.fitted(Problem((43, 2 * l), (4, 3), scale=Fraction(k, l)))
    layer, x = layer_of(problem, kernel), input_of(problem)
    y, shifted = layer(x, **problem.call), layer(x.roll(l, 2), **problem.call)
    border = k * 4
    assert_near(shifted[:, :, k + border : -border], y[:, :, border : -k - border].detach(), 1e-12)


@pytest.mark.parametrize("name", KERNEL_CASES)
@pytest.mark.parametrize(("k", "l"), [(1, 2), (2, 3), (3, 2), (4, 1)])
def test_on_a_circle_the_shift_holds_everywhere(k, l, name):  # noqa: E741
    kernel = KERNEL_CASES[name]
    problem = kernel.fitted(Problem((3 * l, 2 * l), (3, 4), scale=Fraction(k, l), padding_mode="circular"))
    layer, x = layer_of(problem, kernel), input_of(problem)
    y = layer(x, **problem.call)
    assert_near(layer(x.roll((l, -l), (2, 3)), **problem.call), y.roll((k, -k), (2, 3)).detach(), 1e-12)


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("padding_mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("scale", SCALES, ids=str)
@pytest.mark.parametrize("name", FIXED)
def test_constants_stay_constant_under_a_normalised_kernel(name, scale, padding_mode, antialias):
    x = torch.full((1, 2, 20, 23), 3.25, dtype=torch.float64)
    kernel = FIXED_CASES[name].make(2, 2, (3, 3))
    y = contconv.continuous_conv(x, kernel, scale=scale, padding_mode=padding_mode, antialias=antialias)
    assert_near(y, torch.full_like(y, 3.25), 1e-12)


@pytest.mark.parametrize("scale", SCALES, ids=str)
@pytest.mark.parametrize("kernel", [contconv.Linear(), contconv.Cubic(-0.5)], ids=str)
def test_ramps_are_exact(kernel, scale):
    rows, columns = torch.arange(20.0, dtype=torch.float64), torch.arange(23.0, dtype=torch.float64)
    x = (2 * rows[:, None] - 3 * columns + 5)[None, None]
    y = contconv.continuous_conv(x, kernel, scale=scale, padding_mode="replicate")[0, 0]
    grid = contconv.projected_grid((20, 23), scale=scale)
    g, h = (torch.tensor([float(p) for p in axis], dtype=torch.float64) for axis in grid)
    inside = ((g >= 2) & (g <= 17))[:, None] & ((h >= 2) & (h <= 20))
    assert_near(y[inside], (2 * g[:, None] - 3 * h + 5)[inside], 1e-12)


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("padding_mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("scale", SCALES, ids=str)
@pytest.mark.parametrize("name", FIXED)
def test_a_mirrored_image_gives_the_mirrored_result(name, scale, padding_mode, antialias):
    x = torch.randn(1, 2, 20, 23, dtype=torch.float64)
    kernel = FIXED_CASES[name].make(2, 2, (3, 3))
    options = {"scale": scale, "padding_mode": padding_mode, "antialias": antialias}
    y = contconv.continuous_conv(x, kernel, **options)
    assert_near(contconv.continuous_conv(x.flip(2, 3), kernel, **options).flip(2, 3), y, 1e-12)


@pytest.mark.parametrize("name", KERNEL_CASES)
def test_every_image_of_a_batch_is_alone(name):
    kernel = KERNEL_CASES[name]
    problem = kernel.fitted(Problem((5, 6), (3, 2), scale=2 / 3))
    layer, x = layer_of(problem, kernel), input_of(problem, batch=3)
    one_by_one = torch.cat([layer(image[None], **problem.call) for image in x])
    assert_near(layer(x, **problem.call), one_by_one.detach(), 1e-12)


@pytest.mark.parametrize("name", KERNEL_CASES)
def test_the_output_is_linear_in_the_input(name):
    kernel = KERNEL_CASES[name]
    problem = kernel.fitted(Problem((5, 6), (3, 2), scale=2 / 3, bias=False))
    layer, x = layer_of(problem, kernel), input_of(problem)
    y = layer(x, **problem.call)
    assert_near(layer(2 * x - 3 * x.flip(2), **problem.call), (2 * y - 3 * layer(x.flip(2), **problem.call)).detach())


@pytest.mark.parametrize(
    "kernel", [contconv.Linear(), contconv.Cubic(), contconv.Lanczos(2), contconv.Gaussian(0.7, 4)]
)
@pytest.mark.parametrize("antialias", [False, True])
def test_a_separable_kernel_can_go_one_axis_at_a_time(kernel, antialias):
    x = torch.randn(1, 1, 9, 8, dtype=torch.float64)
    options = {"padding_mode": "replicate", "antialias": antialias}
    together = contconv.continuous_conv(x, kernel, scale=(0.7, 1.3), **options)
    rows = contconv.continuous_conv(x[0].mT.transpose(0, 1), kernel, scale=0.7, **options)  # [8, 1, 7]
    apart = contconv.continuous_conv(rows.permute(2, 1, 0), kernel, scale=1.3, **options)  # [7, 1, 11]
    assert_near(together, apart.permute(1, 0, 2)[None], 1e-12)
