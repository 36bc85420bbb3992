"""A converted layer is the original, at every pixel of every input; elsewhere it is the original's output resized."""

from fractions import Fraction
from itertools import product

import pytest
import torch
from torch import nn

import contconv
from contconv.conversion import ConvertedPool

CONVS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
POOLS = {"max": nn.MaxPool1d, "avg": nn.AvgPool1d}
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
MODES = ("zeros", "reflect", "replicate", "circular")


def twin(layer, kernel="spline"):
    return contconv.convert(layer, lambda name, module: True, kernel=kernel)


def check_identity(layer, sizes, kernels=("spline", "table")):
    """Equal outputs for every size that the original takes; where it refuses, so does the twin or it has no pixel."""
    layers = [twin(layer, kernel) for kernel in kernels]
    dtype = layer.weight.dtype
    checked = 0
    for size in sizes:
        x = torch.randn(2, layer.in_channels, *size, dtype=dtype)
        try:
            want = layer(x)
        except RuntimeError:
            continue
        if want.numel() == 0:
            continue
        checked += 1
        for converted in layers:
            got = converted(x)
            assert got.shape == want.shape
            assert (got - want).abs().max() <= TOLERANCE[dtype] * max(1, want.abs().max().item())
    return checked


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_every_kernel_size_padding_and_input_size(stride, dilation, dtype):
    sizes = [(n,) for n in ((1, 2, 3, 4, 5, 6, 12, 13) if dtype is torch.float64 else (12, 13))]
    for taps, padding in product((1, 2, 3, 5), (0, 1, 4)):
        conv = nn.Conv1d(2, 3, taps, stride, padding, dilation, dtype=dtype)
        assert check_identity(conv, sizes, ("spline",)) >= 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_every_padding_mode(mode, stride):
    for taps, padding, dilation in product((2, 3), (0, 1, 3), (1, 2)):
        conv = nn.Conv1d(2, 3, taps, stride, padding, dilation, padding_mode=mode, dtype=torch.float64)
        assert check_identity(conv, [(n,) for n in (3, 4, 7, 8, 9)], ("spline",)) >= 2


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("taps", [2, 3, (4, 3)])
def test_same_and_valid(padding, mode, taps):
    for dilation in (1, 2, (3, 1)):
        conv = nn.Conv2d(2, 3, taps, 1, padding, dilation, padding_mode=mode, dtype=torch.float64)
        assert check_identity(conv, [(11, 12), (12, 13)], ("spline",)) == 2


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_two_and_three_dimensions_with_groups(groups, bias, dtype):
    options = {"groups": groups, "bias": bias, "dtype": dtype}
    plane = nn.Conv2d(4, 8, (3, 2), (2, 3), (1, 2), (1, 2), **options)
    assert check_identity(plane, [(8, 9), (7, 12), (5, 5)]) == 3
    space = nn.Conv3d(4, 4, (3, 2, 1), (1, 2, 3), (1, 0, 2), (2, 1, 1), **options)
    assert check_identity(space, [(6, 5, 4), (5, 6, 7)]) == 2


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_transposed_convolutions(stride, dilation, dtype):
    for taps, padding in product((1, 2, 3, 4), (0, 2)):
        for output_padding in {0, max(stride, dilation) - 1}:
            conv = nn.ConvTranspose1d(
                2, 4, taps, stride, padding, output_padding, 2, taps % 2 == 0, dilation, dtype=dtype
            )
            assert check_identity(conv, [(n,) for n in (1, 5, 6)], ("table",) if taps == 3 else ("spline",)) >= 1


@pytest.mark.parametrize("groups", [1, 4])
def test_transposed_convolutions_of_more_dimensions(groups):
    plane = nn.ConvTranspose2d(4, 8, (4, 3), (2, 3), (1, 0), (1, 2), groups, dtype=torch.float64)
    assert check_identity(plane, [(5, 4), (3, 6)]) == 2
    space = nn.ConvTranspose3d(4, 4, (2, 3, 4), (2, 1, 3), 1, 0, groups, dtype=torch.float64)
    assert check_identity(space, [(3, 4, 2)]) == 1


def test_transposed_convolutions_take_an_output_size():
    conv = nn.ConvTranspose2d(2, 3, 3, stride=3, padding=1, dtype=torch.float64)
    x = torch.randn(1, 2, 4, 5, dtype=torch.float64)
    converted = twin(conv)
    for size in ([10, 13], [11, 15], [12, 14]):
        torch.testing.assert_close(converted(x, output_size=size), conv(x, output_size=size))
    with pytest.raises(ValueError, match="output_size must be between 10 and 12"):
        converted(x, output_size=[13, 13])
    assert converted(x, output_size=[20, 20], scale=4).shape == (1, 3, 20, 20)


def test_without_a_batch_axis():
    conv = nn.Conv2d(2, 3, 3, stride=2)
    x = torch.randn(2, 9, 8)
    assert torch.equal(twin(conv)(x), conv(x))
    spread = nn.ConvTranspose1d(2, 3, 4, stride=2, dtype=torch.float64)
    x = torch.randn(2, 9, dtype=torch.float64)
    torch.testing.assert_close(twin(spread)(x), spread(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_taps_survive_bit_for_bit(dtype):
    conv = nn.Conv2d(3, 8, 3, stride=2, padding=1, dtype=dtype)
    converted = twin(conv)
    assert torch.equal(converted.weight, conv.weight)
    x = torch.randn(1, 3, 16, 16, dtype=dtype)
    assert torch.equal(converted(x), conv(x))


def test_gradients_are_the_originals():
    conv = nn.Conv2d(4, 6, 3, stride=2, padding=1, dilation=2, groups=2, dtype=torch.float64)
    converted = twin(conv)
    x = torch.randn(2, 4, 11, 12, dtype=torch.float64, requires_grad=True)
    for layer in (conv, converted):
        layer(x).square().sum().backward()
    dx = x.grad / 2  # of both, summed
    torch.testing.assert_close(converted.weight.grad, conv.weight.grad)
    torch.testing.assert_close(converted.bias.grad, conv.bias.grad)
    x.grad = None
    conv(x).square().sum().backward()
    torch.testing.assert_close(dx, x.grad)


def positions(grid, in_size):
    """Where the output pixels of each axis look, in input pixels."""
    return [
        [i / s + Fraction(n - 1, 2) - (out - 1) / (2 * s) + c for i in range(out)]
        for n, s, out, c in zip(in_size, grid.scale, grid.size, grid.center, strict=True)
    ]


@pytest.mark.parametrize("n", [31, 32, 33])
@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(61, 100), 1, Fraction(3, 2)])
@pytest.mark.parametrize(
    "conv", [nn.Conv1d(1, 1, 3, 2, 1), nn.Conv1d(1, 1, 1, 2), nn.Conv1d(1, 1, 7, 2, 3), nn.Conv1d(1, 1, 4, 1, 0)]
)
def test_at_another_scale_the_output_covers_what_the_original_covers(conv, scale, n):
    converted = twin(conv)
    (own,), (other,) = (positions(grid, (n,)) for grid in (converted.native((n,)), converted.resize((n,), scale=scale)))
    stride, spacing = conv.stride[0], 1 / Fraction(scale)
    assert own == [i * stride - conv.padding[0] + Fraction(conv.kernel_size[0] - 1, 2) for i in range(len(own))]
    assert other[0] + other[-1] == own[0] + own[-1]  # the middle stays
    missing = (own[-1] - own[0] + stride) - (other[-1] - other[0] + spacing)
    assert -spacing < missing <= 0  # and less than a pixel is too much


def centroid(y):
    return (y * torch.arange(y.shape[-1], dtype=y.dtype)).sum(-1) / y.sum(-1)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("ratio", [0.5, 0.7, 1.3, 2])
def test_features_stay_where_they_are(stride, ratio):
    conv = nn.Conv1d(1, 1, 3, stride, 1, bias=False, dtype=torch.float64)
    conv.weight.data[:] = torch.tensor([0.2, 0.6, 0.2])
    converted = twin(conv)
    place = 21.3
    x = torch.exp(-((torch.arange(64, dtype=torch.float64) - place) ** 2) / 40)[None, None]
    own, other = converted(x), converted(x, scale=ratio / stride)
    as_own = (centroid(other) - (other.shape[-1] - 1) / 2) / ratio + (own.shape[-1] - 1) / 2
    assert abs(as_own - centroid(own)).item() < 0.06  # half a pixel off a pixel, three neighbours are one-sided


def test_a_size_alone_takes_the_scale_at_which_it_covers_the_same():
    converted = twin(nn.Conv2d(3, 5, 3, 2, 1))
    grid = converted.resize((32, 32), size=(12, 20))
    assert grid.size == (12, 20)
    assert grid.scale == (Fraction(12, 32), Fraction(20, 32))
    assert converted(torch.randn(1, 3, 32, 32), size=(12, 20)).shape == (1, 5, 12, 20)


def test_a_constant_has_one_response_at_every_scale():
    conv = nn.Conv2d(1, 1, 3, 2, 1, padding_mode="replicate", dtype=torch.float64)
    spread = nn.ConvTranspose1d(1, 1, 4, 2, 1, bias=False, dtype=torch.float64)
    spread.weight.data[:] = torch.tensor([0.25, 0.75, 0.75, 0.25])  # linear interpolation
    ones = torch.ones(1, 1, 16, 16, dtype=torch.float64)
    for scale in (0.3, 0.5, 0.61, 1, 1.7):
        y = twin(conv)(ones, scale=scale)
        torch.testing.assert_close(y, torch.full_like(y, (conv.weight.sum() + conv.bias).item()))
    for scale in (1, 1.5, 2, 2.9, 3):
        y = twin(spread)(ones[0, :, :1], scale=scale)[..., 4:-4]
        torch.testing.assert_close(y, torch.ones_like(y))


@pytest.mark.parametrize("options", [{}, {"padding": 1}, {"ceil_mode": True}, {"padding": 1, "ceil_mode": True}])
@pytest.mark.parametrize("kind", POOLS)
def test_poolings_are_themselves_and_know_their_size(kind, options):
    for taps, stride in ((2, 2), (3, 2), (3, 3)):
        pool = POOLS[kind](taps, stride, **options)
        converted = ConvertedPool(pool, twin(nn.Sequential(pool))[0].geometry)
        for n in range(3, 13):
            x = torch.randn(1, 2, n, dtype=torch.float64)
            assert torch.equal(converted(x), pool(x))
            assert converted.native((n,)).size == pool(x).shape[2:]


def test_poolings_at_another_scale_pool():
    ramp = torch.arange(32, dtype=torch.float64)[None, None]
    for kind, lift in (("max", 1.0), ("avg", 0.0)):
        pool = twin(nn.Sequential(POOLS[kind](3, 2, 1)))
        with contconv.scales(pool, {"0": Fraction(2, 5)}):
            y = pool(ramp)
        grid = pool[0].resize((32,), scale=Fraction(2, 5))
        expected = torch.tensor([float(g) for g in positions(grid, (32,))[0]], dtype=torch.float64) + lift
        torch.testing.assert_close(y[0, 0, 1:-1], expected[1:-1])


def test_too_small_an_input_is_refused():
    with pytest.raises(ValueError, match="at least one channel and one pixel"):
        twin(nn.Conv2d(1, 1, 1))(torch.zeros(1, 1, 0, 9), size=(3, 3))
    with pytest.raises(ValueError, match="too few for the layer"):
        twin(nn.Conv2d(1, 1, 5))(torch.zeros(1, 1, 4, 9))


@pytest.mark.parametrize("wrong", [torch.int64, torch.complex64])
def test_a_type_that_no_layer_takes_is_refused_at_its_own_scale_too(wrong):
    layer = contconv.convert(nn.Conv2d(3, 4, 3, stride=2))
    with pytest.raises((TypeError, ValueError), match="x must"):
        layer(torch.ones(1, 3, 8, 8, dtype=wrong))
