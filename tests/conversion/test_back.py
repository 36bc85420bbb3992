"""`to_conv` goes back: exactly where there is one filter, and with a word about what is lost where there is not."""

import copy

import pytest
import torch
from torch import nn

import contconv


def twin(layer):
    return contconv.convert(layer, lambda name, module: True)


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv1d(2, 4, 3, 2, 1, groups=2),
        nn.Conv2d(2, 4, (3, 2), (2, 1), (1, 0), (1, 2), bias=False, padding_mode="reflect"),
        nn.Conv2d(2, 4, 4, padding="same"),
        nn.Conv3d(2, 4, 3, 2, 1),
        nn.ConvTranspose1d(2, 4, 3, 2, 1, 1, dilation=2),
        nn.ConvTranspose2d(4, 4, 4, 2, 1, groups=2, bias=False),
    ],
    ids=str,
)
def test_there_and_back_is_the_same_layer(layer):
    back = twin(layer).to_conv()
    assert repr(back).replace("padding=(0, 0), ", "") == repr(layer).replace("padding=(0, 0), ", "")
    assert all(torch.equal(a, b) for a, b in zip(back.parameters(), layer.parameters(), strict=True))


@pytest.mark.parametrize("kernel_size", [1, 2, 3, 4, (5, 2)])
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("padding_mode", ["zeros", "reflect", "replicate", "circular"])
def test_a_continuous_layer_at_one_over_k(kernel_size, k, padding_mode):
    layer = contconv.ContinuousConv2d(
        2, 4, kernel_size, kernel="spline", groups=2, padding_mode=padding_mode, dtype=torch.float64
    )
    for n in (12, 13):
        conv = layer.to_conv(1 / k, in_size=n)
        for size in (n, n + 6):
            x = torch.randn(1, 2, size, size, dtype=torch.float64)
            torch.testing.assert_close(conv(x), layer(x, scale=1 / k))


def test_by_default_for_sizes_that_the_stride_divides():
    layer = contconv.ContinuousConv2d(3, 5, 3, scale=0.5)
    conv = layer.to_conv()
    assert isinstance(conv, nn.Conv2d)
    assert (conv.stride, conv.padding) == ((2, 2), (1, 1))
    x = torch.randn(2, 3, 20, 14)
    torch.testing.assert_close(conv(x), layer(x))


def test_fixed_and_stretched_kernels_go_back_too():
    blur = contconv.ContinuousConv2d(3, 3, 4, 0.5, kernel=contconv.Cubic(), groups=3, bias=False, antialias=True)
    conv = blur.to_conv(in_size=16)
    x = torch.randn(1, 3, 16, 16)
    torch.testing.assert_close(conv(x), blur(x))


def test_a_converted_layer_at_another_stride():
    layer = twin(nn.Conv2d(3, 4, 3, 2, 1, dtype=torch.float64))
    conv = layer.to_conv(1 / 4, in_size=32)
    x = torch.randn(1, 3, 32, 32, dtype=torch.float64)
    torch.testing.assert_close(conv(x), layer(x, scale=1 / 4))


def test_several_filters_are_refused_or_said_to_be_lost():
    layer = contconv.ContinuousConv2d(3, 5, 3)
    with pytest.raises(ValueError, match="2 x 2 phases"):
        layer.to_conv(2 / 3)
    with pytest.warns(UserWarning, match=r"scale 0.5 x 0.5 instead of 2/3 x 2/3 and one filter instead of 4; .* %"):
        conv = layer.to_conv(2 / 3, lossy=True)
    assert conv.stride == (2, 2)
    with pytest.raises(ValueError, match="phases"):
        layer.to_conv(2)


def test_the_way_back_has_weights_of_its_own():
    layer = twin(nn.Conv1d(1, 1, 3))
    conv = layer.to_conv()
    before = copy.deepcopy(conv.weight.data)
    layer.weight.data.zero_()
    assert torch.equal(conv.weight, before)
