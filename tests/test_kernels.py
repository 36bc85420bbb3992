"""Kernels are the functions that they say they are, and start with the variance of a convolution."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
from problems import KERNEL_CASES, KERNEL_SIZES, LEARNED_CASES, TOLERANCE, Problem, Waves, assert_near, layer_of
from torch import nn

import contconv
from contconv.kernels import FIXED, KERNELS

CONVS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


def layer_with(kernel, axes):
    problem = kernel.fitted(Problem((5,) * axes, KERNEL_SIZES["mixed"][:axes], channels=(4, 4), groups=2))
    return problem, layer_of(problem, kernel)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("kernel", KERNEL_CASES.values(), ids=str)
def test_a_kernel_can_be_evaluated_anywhere_in_its_support(kernel, axes):
    problem, layer = layer_with(kernel, axes)
    arrays = {name: p.detach().numpy() for name, p in layer.kernel.named_parameters()}
    weight = kernel.formula(arrays, problem.kernel_size)
    half = torch.tensor(problem.kernel_size) / 2
    d = (torch.rand(20, axes, dtype=torch.float64) * 2 - 1) * half
    tap = torch.floor(half - d).int().tolist()
    want = np.stack([weight(tuple(di), tuple(j)) for di, j in zip(d.tolist(), tap, strict=True)])
    got = kernel_values(layer.kernel, d)
    assert_near(got.squeeze(), want, 1e-12)


def kernel_values(kernel, d):
    """A user's module need not be callable: basis and mixing are enough."""
    if isinstance(kernel, Waves):
        return torch.einsum("...r,roi->...oi", kernel.basis(d), kernel.mixing)
    return kernel(d)


@pytest.mark.parametrize("name", KERNELS)
def test_a_learned_kernel_keeps_the_shape_of_the_displacements(name):
    kernel = KERNELS[name](6, 4, (3, 2), groups=2)
    assert kernel(torch.zeros(5, 1, 7, 2)).shape == (5, 1, 7, 4, 3)
    assert kernel(torch.zeros(2)).shape == (4, 3)


@pytest.mark.parametrize("name", KERNELS)
def test_the_same_kernel_comes_by_name_and_by_instance(name):
    torch.manual_seed(3)
    by_name = contconv.ContinuousConv2d(4, 6, (3, 2), kernel=name)
    by_instance = contconv.ContinuousConv2d(4, 6, (3, 2), kernel=KERNELS[name](4, 6, (3, 2)))
    assert type(by_name.kernel) is type(by_instance.kernel)
    assert [(n, p.shape) for n, p in by_name.named_parameters()] == [
        (n, p.shape) for n, p in by_instance.named_parameters()
    ]


def test_the_internal_net_has_the_papers_parameters():
    kernel = contconv.InternalNet(8, 6, (3, 3), groups=2)
    shapes = {name: tuple(p.shape) for name, p in kernel.named_parameters()}
    assert shapes == {
        "layers.0.weight": (16, 2),
        "layers.0.bias": (16,),
        "layers.1.weight": (16, 16),
        "layers.1.bias": (16,),
        "mixing": (17, 6, 4),
    }


def test_the_internal_net_per_tap_has_one_mixing_for_each_tap():
    assert contconv.InternalNet(8, 6, (3, 2), per_tap=True).mixing.shape == (6, 17, 6, 8)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_spline_has_exactly_the_parameters_of_a_convolution(axes):
    spline, conv = contconv.SplineKernel(4, 6, (3,) * axes, groups=2), CONVS[axes](4, 6, 3, groups=2, bias=False)
    assert sum(p.numel() for p in spline.parameters()) == conv.weight.numel()


@pytest.mark.parametrize("kernel_size", [(1,), (4,), (3, 2), (5, 5), (3, 4, 2)])
def test_a_spline_passes_through_the_taps_of_a_convolution(kernel_size):
    taps = torch.randn(4, 2, *kernel_size, dtype=torch.float64)
    spline = contconv.SplineKernel.from_taps(taps, groups=2)
    for j in product(*map(range, kernel_size)):
        d = torch.tensor([(k - 1) / 2 - i for k, i in zip(kernel_size, j, strict=True)], dtype=torch.float64)
        torch.testing.assert_close(spline(d), taps[(..., *j)], rtol=0, atol=1e-12)


@pytest.mark.parametrize("scale", [1, 0.5, 2 / 3, 1.7, 2**0.5], ids=str)
@pytest.mark.parametrize("kernel_size", [(1, 2), (3, 3), (4, 5)], ids=str)
def test_a_spline_through_taps_keeps_their_sum_at_every_phase(kernel_size, scale):
    taps = torch.randn(4, 2, *kernel_size, dtype=torch.float64)
    x = torch.ones(1, 4, 9, 8, dtype=torch.float64)
    spline = contconv.SplineKernel.from_taps(taps, groups=2)
    y = contconv.continuous_conv(x, spline, scale=scale, padding_mode="replicate")
    assert_near(y, taps.sum((1, 2, 3))[:, None, None].expand(y.shape).detach(), 1e-12)


def test_a_spline_is_smooth_inside_its_support():
    spline = contconv.SplineKernel(1, 1, (5,), dtype=torch.float64)
    d = torch.linspace(-2.5, 2.5, 5001, dtype=torch.float64)
    w = spline(d[:, None]).flatten()
    bend = w.diff().diff() / 0.001**2
    assert bend.diff().abs().max() < 0.01 * w.abs().max() / 0.001 * 10


# Values that can be worked out on paper


@pytest.mark.parametrize(
    ("kernel", "d", "value"),
    [
        (contconv.Linear(), [0.25], 0.75),
        (contconv.Linear(), [0.5, -0.5], 0.25),
        (contconv.Linear(), [1.0], 0.0),
        (contconv.Cubic(), [0.0], 1.0),
        (contconv.Cubic(), [1.0], 0.0),
        (contconv.Cubic(), [0.5], 19 / 32),
        (contconv.Cubic(-0.5), [0.5], 9 / 16),
        (contconv.Cubic(-0.5), [1.5], -1 / 16),
        (contconv.Cubic(), [2.0], 0.0),
        (contconv.Lanczos(2), [0.5], 4 * 2**0.5 / np.pi**2),
        (contconv.Lanczos(3), [1.0], 0.0),
        (contconv.Lanczos(3), [3.0], 0.0),
        (contconv.Gaussian(2.0, 6), [1.0, 1.0], np.exp(-0.5)),
        (contconv.Gaussian((2.0, 0.5), 6), [1.0, 1.0], np.exp(-1.25)),
        (contconv.Gaussian([[2.0, 1.0], [1.0, 2.0]], 6), [1.0, 1.0], np.exp(-1 / 3)),
        (contconv.Gaussian([[2.0, 1.0], [1.0, 2.0]], 6), [1.0, -1.0], np.exp(-1.0)),
        (contconv.Gaussian(2.0, (4, 2)), [1.9, 1.0], 0.0),
    ],
    ids=str,
)
def test_a_fixed_kernel_has_its_known_values(kernel, d, value):
    got = kernel(torch.tensor(d, dtype=torch.float64))
    assert got.shape == (1, 1)
    assert abs(got.item() - value) < 1e-12


@pytest.mark.parametrize("name", FIXED)
def test_a_fixed_kernel_has_nothing_to_learn_and_nothing_to_save(name):
    kernel = KERNEL_CASES[name].make(1, 1, (3, 3))
    assert list(kernel.parameters()) == []
    assert kernel.state_dict() == {}


@pytest.mark.parametrize("taps", [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0]])
def test_a_table_at_scale_one_is_its_taps_over_their_sum(taps):
    x = torch.zeros(1, 1, 9, dtype=torch.float64)
    x[..., 4] = 1
    y = contconv.continuous_conv(x, contconv.Table(torch.tensor(taps, dtype=torch.float64)), scale=1)
    first = 4 - len(taps) // 2 + (len(taps) + 1) % 2
    want = torch.tensor(taps[::-1], dtype=torch.float64) / sum(taps)
    torch.testing.assert_close(y.flatten()[first : first + len(taps)], want)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_displacement_next_to_the_border_between_taps_stays_on_its_side(dtype, sign):
    x, table = torch.randn(1, 1, 9).to(dtype), contconv.Table(torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=dtype))
    near, nearer = (contconv.continuous_conv(x, table, scale=1, center=sign * c) for c in (1e-3, 1e-30))
    assert torch.equal(near, nearer)


# Initialisation

INITS = {
    "default": lambda conv: conv.reset_parameters(),
    "xavier": lambda conv: nn.init.xavier_normal_(conv.weight),
    "kaiming": lambda conv: nn.init.kaiming_normal_(conv.weight),
}


def weights_at(name, d, axes, groups, init, seeds=8):
    """[seeds * Cout * Cin/groups, len(d)] initial weights at the displacements d: [..., D]."""
    drawn = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        kernel = KERNELS[name](32, 48, (3,) * axes, groups=groups, init=init)
        drawn.append(kernel(d).flatten(1).T.detach())
    return torch.cat(drawn)


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("name", KERNELS)
def test_initial_weights_have_the_variance_of_the_matching_convolution(name, init, axes, groups):
    conv = CONVS[axes](32, 48, 3, groups=groups)
    INITS[init](conv)
    d = torch.rand(100, axes) * 3 - 1.5
    drawn = weights_at(name, d, axes, groups, init)
    assert (drawn.square().mean() / conv.weight.var()).item() == pytest.approx(1, abs=0.12)


@pytest.mark.parametrize("name", [name for name in KERNELS if name.startswith("internal")])
def test_initial_weights_of_the_net_have_that_variance_at_every_displacement(name):
    d = torch.cartesian_prod(*[torch.tensor([-1.45, -0.8, 0.0, 0.3, 1.0, 1.5])] * 2)
    variance = weights_at(name, d, 2, 1, "default").square().mean(0)
    assert (variance * 3 * 32 * 9).sub(1).abs().max() < 0.35


@pytest.mark.parametrize("name", KERNELS)
def test_initial_bias_and_weights_are_redrawn_by_reset_parameters(name):
    layer = contconv.ContinuousConv2d(16, 32, 3, kernel=name)
    before = {key: value.clone() for key, value in layer.state_dict().items()}
    layer.reset_parameters()
    for key, value in layer.state_dict().items():
        assert not torch.equal(value, before[key]), key
    assert layer.bias.abs().max() <= (16 * 9) ** -0.5


@pytest.mark.parametrize("kernel", LEARNED_CASES.values(), ids=str)
def test_every_parameter_of_a_kernel_gets_a_gradient(kernel):
    _, layer = layer_with(kernel, 2)
    layer(torch.randn(2, 4, 5, 5, dtype=torch.float64), scale=Fraction(2, 3)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in layer.parameters())
