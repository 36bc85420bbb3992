"""At scale 1/k a continuous convolution is PyTorch's own, with stride k and the kernel sampled at its one phase."""

from fractions import Fraction
from itertools import product

import oracle
import pytest
import torch
import torch.nn.functional as F
from problems import LEARNED_CASES, STRATEGY_NAMES, Problem, Waves, assert_near, input_of, layer_of, run
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import contconv

CONVS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
EXACT = 1e-12


def by_torch(layer, x, strides):
    """The same by padding or cropping x to what the windows see, and one strided convolution with sampled weights."""
    axes = [
        oracle.axis(n, size, Fraction(1, k), center=c)
        for n, size, k, c in zip(x.shape[2:], layer.kernel_size, strides, layer.center, strict=True)
    ]
    pads = [(-a.neighbours(0)[0], a.neighbours(len(a.grid) - 1)[-1] - a.in_size + 1) for a in axes]
    d = [[float(a.displacement(0, m)) for m in a.neighbours(0)] for a in axes]
    d = torch.tensor(list(product(*d)), dtype=x.dtype).reshape(*layer.kernel_size, -1)
    weight = sampled(layer.kernel, d).movedim((-2, -1), (0, 1))  # [Cout, Cin/groups, *K]
    padded = F.pad(x, [p for pair in reversed(pads) for p in pair])
    return CONVS[len(axes)](padded, weight, layer.bias, tuple(strides), groups=layer.groups)


def sampled(kernel, d):
    if isinstance(kernel, Waves):
        return torch.einsum("...r,roi->...oi", kernel.basis(d), kernel.mixing)
    return kernel(d)


def check(problem, kernel, strides, strategy=None):
    problem = kernel.fitted(problem)
    layer, x = layer_of(problem, kernel, strategy=strategy), input_of(problem).requires_grad_()
    got, want = layer(x, **problem.call), by_torch(layer, x, strides)
    assert_near(got, want.detach(), EXACT)
    inputs = [x, *layer.parameters()]
    direction = torch.cos(torch.arange(want.numel(), dtype=want.dtype)).reshape(want.shape)
    for g, w in zip(
        torch.autograd.grad(got, inputs, direction), torch.autograd.grad(want, inputs, direction), strict=True
    ):
        assert_near(g, w, EXACT)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("kernel_size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("kernel", LEARNED_CASES.values(), ids=str)
def test_for_every_input_size_and_parity(kernel, kernel_size, k):
    for in_size in range(1, 10):
        check(Problem((in_size,), (kernel_size,), scale=Fraction(1, k)), kernel, (k,))


@pytest.mark.parametrize("strategy", STRATEGY_NAMES)
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize(
    ("in_size", "kernel_size", "strides"),
    [
        ((8, 8), (3, 3), (1, 1)),
        ((8, 8), (4, 4), (2, 2)),
        ((8, 7), (3, 2), (2, 3)),
        ((5, 9), (2, 5), (1, 4)),
        ((4, 5, 3), (3, 2, 1), (2, 1, 3)),
        ((4, 4, 4), (2, 2, 2), (2, 2, 2)),
    ],
)
def test_in_two_and_three_dimensions(in_size, kernel_size, strides, groups, strategy):
    scale = tuple(Fraction(1, k) for k in strides)
    problem = Problem(in_size, kernel_size, scale=scale, groups=groups, channels=(4, 8))
    for name in ("internal", "spline"):
        if run(problem, LEARNED_CASES[name], strategy, input_of(problem)) is not None:
            check(problem, LEARNED_CASES[name], strides, strategy)


@pytest.mark.parametrize("in_size", [1, 4, 7, 100])
@pytest.mark.parametrize("scale", [1, 0.5, 1 / 3, Fraction(1, 50)])
@pytest.mark.parametrize("out", [None, 1, 9])
def test_the_convolution_is_what_runs(in_size, scale, out):
    layer = contconv.ContinuousConv1d(2, 3, 3)
    assert contconv.explain(layer, (1, 2, in_size), scale=scale, size=out).strategy == "conv"


@pytest.mark.parametrize("kernel_size", [1, 3, (5, 3)])
def test_a_spline_through_a_convolutions_taps_is_that_convolution(kernel_size):
    conv = nn.Conv2d(4, 6, kernel_size, padding="same", groups=2, dtype=torch.float64)
    x = torch.randn(2, 4, 7, 6, dtype=torch.float64)
    spline = contconv.SplineKernel.from_taps(conv.weight, groups=2)
    assert_near(contconv.continuous_conv(x, spline, conv.bias, scale=1), conv(x).detach(), EXACT)


def test_four_taps_at_stride_two_are_centred_already():
    conv = nn.Conv2d(3, 5, 4, stride=2, padding=1, dtype=torch.float64)
    x = torch.randn(2, 3, 8, 12, dtype=torch.float64)
    table = contconv.Table(conv.weight)
    assert_near(contconv.continuous_conv(x, table, conv.bias, scale=0.5), conv(x).detach(), EXACT)


def test_three_taps_at_stride_two_sit_half_a_pixel_off_and_center_says_so():
    conv = nn.Conv2d(3, 5, 3, stride=2, padding=1, dtype=torch.float64)
    x = torch.randn(2, 3, 8, 12, dtype=torch.float64)
    spline = contconv.SplineKernel.from_taps(conv.weight)
    got = contconv.continuous_conv(x, spline, conv.bias, scale=0.5, center=-0.5)
    assert_near(got, conv(x).detach(), EXACT)


class Convolutions(TorchDispatchMode):
    """Filter sizes and strides of the convolutions that are computed."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, operation, types, arguments=(), keywords=None):
        if operation is torch.ops.aten.convolution.default:
            self.seen.append((tuple(arguments[1].shape[2:]), tuple(arguments[3])))
        return operation(*arguments, **(keywords or {}))


@pytest.mark.parametrize("center", [0, 1, (-2, 0)])
@pytest.mark.parametrize("strides", [(2, 2), (1, 3), (4, 2)])
@pytest.mark.parametrize("channels", [3, 16])
def test_single_taps_are_picked_first(channels, strides, center):
    """oneDNN's gradient of 1x1 filters with strides, few channels, channels last, corrupts memory."""
    layer = contconv.ContinuousConv2d(channels, 8, 1, [Fraction(1, k) for k in strides], center=center)
    x = torch.randn(4, channels, 12, 24).to(memory_format=torch.channels_last).requires_grad_()
    with Convolutions() as convolutions:
        y = layer(x)
    assert convolutions.seen == [((1, 1), (1, 1))]
    inputs = [x, *layer.parameters()]
    wanted = torch.autograd.grad(by_torch(layer, x.contiguous(), strides).square().sum(), inputs)
    assert_near(y, by_torch(layer, x.contiguous(), strides))
    for have, want in zip(torch.autograd.grad(y.square().sum(), inputs), wanted, strict=True):
        assert_near(have, want)
