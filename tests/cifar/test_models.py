"""The networks: the paper's table, sizes and scales, and what they refuse."""

from fractions import Fraction as F
from functools import partial

import pytest
import torch
from torch import nn

from contconv import SplineKernel, sample_scales
from contconv.kernels import TapKernel
from contconv.models import BlurPoolNet, CCNet, ConvNet, equal_steps
from contconv.models.blurpool import BlurPool
from contconv.models.networks import KERNEL_CHOICES, Network, build

# Example 1 of the paper's appendix: scales and sizes of layers 2 to 8, [H, W].
PAPER_SCALES = [
    (F(5, 6), F(7, 9)), (F(5, 6), F(4, 5)), (F(8, 9), F(5, 6)), (F(189, 250), F(3, 4)), (F(6, 7), F(6, 7)),
    (F(5, 6), F(7, 8)), (F(3, 4), F(6, 7)),
]  # fmt: skip
PAPER_SIZES = [(32, 32), (27, 25), (23, 20), (20, 17), (15, 13), (13, 11), (11, 10), (8, 8)]

# The paper's table, counted by hand: weights and biases of the eight layers, then of FC 512-512-10 on 64x8x8.
CONVOLUTIONS = [896, 16416, 18496, 36928, 36928, 36928, 36928, 65600]
HEAD = 2_097_664 + 262_656 + 5_130


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def sizes_of_maps(model: nn.Module, *arguments) -> list[tuple[int, ...]]:
    """The spatial size that each convolutional layer puts out."""
    sizes = []
    handles = [
        conv.register_forward_hook(lambda module, inputs, output: sizes.append(tuple(output.shape[-2:])))
        for conv in model.convs
    ]
    model(*arguments)
    for handle in handles:
        handle.remove()
    return sizes


@pytest.mark.parametrize("model", [ConvNet(), BlurPoolNet(), CCNet("spline")], ids=lambda m: type(m).__name__)
def test_layers_have_the_parameters_of_the_papers_table(model):
    assert [parameters(conv) for conv in model.convs] == CONVOLUTIONS
    assert parameters(model) == sum(CONVOLUTIONS) + HEAD


def test_the_papers_kernel_has_an_internal_net_for_each_layer_and_17_functions_for_each_tap():
    internal = 2 * 16 + 16 + 16 * 16 + 16
    biases = [32, 32, *[64] * 6]
    expected = [17 * (layer - bias) + bias + internal for layer, bias in zip(CONVOLUTIONS, biases, strict=True)]
    assert [parameters(conv) for conv in CCNet().convs] == expected


def test_convnet_is_the_papers_table():
    model = ConvNet()
    plain = nn.Sequential(
        nn.Conv2d(3, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, 32, 4, 2, 1), nn.ReLU(),
        nn.Conv2d(32, 64, 3, 1, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU(),
        nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU(),
        nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU(), nn.Conv2d(64, 64, 4, 2, 1), nn.ReLU(),
        nn.Flatten(), nn.Linear(4096, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10),
    )  # fmt: skip
    plain.load_state_dict(dict(zip(plain.state_dict(), model.state_dict().values(), strict=True)))
    x = torch.randn(3, 3, 32, 32)
    assert torch.allclose(model(x), plain(x), atol=1e-6)
    assert torch.allclose(model.features(x), plain[:16](x), atol=1e-6)


@pytest.mark.parametrize("kernel", KERNEL_CHOICES)
def test_ccnet_has_the_papers_sizes_at_the_papers_scales(kernel):
    model = CCNet(KERNEL_CHOICES[kernel], width=4, hidden=8)
    x = torch.randn(2, 3, 32, 32)
    assert sizes_of_maps(model, x, PAPER_SCALES) == PAPER_SIZES
    assert model(x, PAPER_SCALES).shape == (2, 10)


def test_without_scales_all_steps_are_equal():
    model = CCNet("spline", width=4, hidden=8)
    x = torch.randn(2, 3, 32, 32)
    # ceil of 32 * 4 ** (-i / 7)
    assert sizes_of_maps(model, x) == [(n, n) for n in (32, 27, 22, 18, 15, 12, 10, 8)]
    assert torch.equal(model(x), model(x, equal_steps()))
    for height, width in equal_steps():
        assert float(height) == float(width) == pytest.approx(0.25 ** (1 / 7), abs=1e-12)


def test_each_layer_gets_its_own_scale():
    model = CCNet("spline", width=4, hidden=8)
    x = torch.randn(2, 3, 32, 32)
    y = model.convs[0](x, scale=1).relu()
    for conv, scale, size in zip(model.convs[1:], PAPER_SCALES, PAPER_SIZES[1:], strict=True):
        y = conv(y, scale=scale, size=size).relu()
    assert torch.equal(model.features(x, PAPER_SCALES), y)


def test_forward_is_the_head_of_the_features():
    scales = sample_scales(7, 1 / 4, generator=torch.Generator().manual_seed(3))
    x = torch.randn(2, 3, 32, 32)
    for model, more in ((ConvNet(), ()), (BlurPoolNet(), ()), (CCNet("spline"), (scales,))):
        features = model.features(x, *more)
        assert features.shape == (2, 64, 8, 8)
        assert features.min() == 0
        assert torch.equal(model(x, *more), model.head(features))


@pytest.mark.parametrize(
    "model", [ConvNet(width=4), BlurPoolNet(width=4), CCNet(width=4)], ids=lambda m: type(m).__name__
)
def test_features_of_another_size(model):
    assert model.features(torch.randn(1, 3, 40, 48)).shape == (1, 8, 10, 12)
    with pytest.raises(ValueError, match=r"need a last map of 8x8, got 10x12: give images of 32x32"):
        model(torch.randn(1, 3, 40, 48))


def test_channels_last_in_gives_channels_last_features_and_the_same_numbers():
    x = torch.randn(2, 3, 32, 32)
    last = x.contiguous(memory_format=torch.channels_last)
    for model in (ConvNet(width=8), BlurPoolNet(width=8), CCNet("spline", width=8)):
        features = model.features(last)
        assert features.is_contiguous(memory_format=torch.channels_last)
        assert torch.allclose(model(last), model(x), atol=1e-6)


def test_a_blur_of_one_pixel_makes_the_convnet():
    conv, blur = ConvNet(), BlurPoolNet(blur=1)
    blur.load_state_dict(conv.state_dict())
    for size in (32, 45):
        x = torch.randn(2, 3, size, size)
        assert torch.allclose(blur.features(x), conv.features(x), atol=1e-6)


def test_blurpool_is_the_binomial_mean_at_every_second_pixel():
    x = torch.arange(25.0).reshape(1, 1, 5, 5).square()
    y = BlurPool(3)(x)[0, 0]
    weights = torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]]) / 16
    assert y.shape == (3, 3)
    assert y[1, 1] == pytest.approx((x[0, 0, 1:4, 1:4] * weights).sum().item())
    row = x[0, 0, 0]  # the corner reflects: left of 0 is 1, above it is row 1
    corner = (row[0] + row[1]) / 2 / 2 + (x[0, 0, 1, 0] + x[0, 0, 1, 1]) / 2 / 2
    assert y[0, 0] == pytest.approx(corner.item())


def test_a_kernel_may_be_made_by_a_function():
    model = CCNet(partial(SplineKernel, density=2), width=4, hidden=8)
    assert all(conv.kernel.density == 2 for conv in model.convs)
    assert model(torch.zeros(1, 3, 32, 32)).shape == (1, 10)


def test_the_last_layer_may_have_another_kernel():
    model = build(Network("ccnet", "taps", width=4, hidden=8, last_kernel="spline-folded"))
    assert [type(conv.kernel) for conv in model.convs] == [TapKernel] * 7 + [SplineKernel]
    assert model.convs[-1].kernel.fold
    assert model(torch.zeros(1, 3, 32, 32)).shape == (1, 10)
    with pytest.raises(ValueError, match=r"last_kernel must be one of .*, got 'unknown'"):
        Network("ccnet", "taps", last_kernel="unknown")
    with pytest.raises(ValueError, match="last_kernel is for ccnet only, convnet has none"):
        Network("convnet", last_kernel="taps")


def test_the_last_layers_may_have_another_kernel():
    model = build(Network("ccnet", "taps", width=4, hidden=8, last_kernel="spline-folded", last_layers=3))
    assert [type(conv.kernel) for conv in model.convs] == [TapKernel] * 5 + [SplineKernel] * 3
    for wrong in (0, 9, 2.5):
        for make in (partial(Network, "ccnet"), CCNet):
            with pytest.raises(ValueError, match=f"last_layers must be a number from 1 to 8, .* got {wrong}"):
                make("taps", last_kernel="spline", last_layers=wrong)
    with pytest.raises(ValueError, match="last_layers=3 needs a last_kernel"):
        Network("ccnet", "taps", last_layers=3)


def test_what_the_networks_refuse():
    model = CCNet("spline", width=4, hidden=8)
    x = torch.zeros(1, 3, 32, 32)
    with pytest.raises(ValueError, match=r"scales must have 7 entries, .* got 8"):
        model(x, [1, *PAPER_SCALES])
    with pytest.raises(ValueError, match=r"8x8, got 27x27: .* scales whose product is 1/4"):
        model(x, [F(5, 6)] + [1] * 6)
    with pytest.raises(TypeError, match="scales must be a sequence of 7"):
        model(x, 0.5)
    with pytest.raises(ValueError, match="scale must be positive"):
        model(x, [0.5, -1] + [1] * 5)
    with pytest.raises(ValueError, match="kernel must be one of"):
        CCNet("unknown")
    with pytest.raises(ValueError, match="padding_mode must be one of"):
        ConvNet(padding_mode="unknown")
    with pytest.raises(ValueError, match="size must be odd"):
        BlurPoolNet(blur=2)
