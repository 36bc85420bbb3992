"""The CIFAR ResNets are He et al.'s, and stay what they are when converted."""

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

import contconv
from contconv.models.resnet import Shortcut, antialiased, normalized, resnet, resnet20, resnet56


@pytest.mark.parametrize(("make", "parameters", "convolutions"), [(resnet20, 269722, 19), (resnet56, 853018, 55)])
def test_size_of_the_networks(make, parameters, convolutions):
    net = make()
    assert sum(p.numel() for p in net.parameters()) == parameters
    assert sum(isinstance(module, torch.nn.Conv2d) for module in net.modules()) == convolutions


def test_the_shortcut_is_every_second_pixel_and_new_channels():
    x = torch.randn(2, 16, 9, 8)
    assert torch.equal(Shortcut(16, 32, 2)(x), F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 8, 8)))


def test_weights_without_counters_can_be_loaded(tmp_path):
    net = resnet20().eval()
    weights = {name: value for name, value in net.state_dict().items() if not name.endswith("num_batches_tracked")}
    save_file(weights, tmp_path / "weights.safetensors")
    x = normalized(torch.rand(2, 3, 32, 32))
    loaded = resnet20(tmp_path / "weights.safetensors")
    assert not loaded.training
    assert torch.equal(loaded(x), net(x))
    with pytest.raises(ValueError, match=r"does not fit ResNet: it lacks layer1\.3"):
        resnet56(tmp_path / "weights.safetensors")


@pytest.mark.parametrize("layers", ["strided", "all"])
def test_converted_it_gives_the_same_numbers(layers):
    net = resnet20().eval()
    model = contconv.convert(net, layers)
    for size in (32, 31, 45):
        x = normalized(torch.rand(2, 3, size, size))
        with torch.inference_mode():
            assert torch.equal(model(x), net(x))


def test_at_other_scales_blocks_and_shortcuts_agree():
    model = contconv.convert(resnet20().eval(), ["strided", "conv1"])
    x = normalized(torch.rand(1, 3, 32, 32))
    plan = contconv.plan(model, x, scales={"conv1": 0.8, "layer3.0.conv1": (0.4, 0.6)})
    assert plan.sizes["layer2.0.shortcut.pick"] == plan.sizes["layer2.0.conv1"] == (13, 13)
    assert plan.sizes["layer3.0.shortcut.pick"] == plan.sizes["layer3.0.conv1"] == (6, 8)
    with contconv.scales(model, plan):
        assert model(x).shape == (1, 10)


def test_the_depth_is_read_from_the_weights(tmp_path):
    net = resnet20().eval()
    save_file(net.state_dict(), tmp_path / "weights.safetensors")
    x = normalized(torch.rand(2, 3, 32, 32))
    assert torch.equal(resnet(tmp_path / "weights.safetensors")(x), net(x))
    save_file({"weight": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="is not a ResNet for CIFAR-10: it has no layer1"):
        resnet(tmp_path / "other.safetensors")


def test_antialiased_blocks_blur_before_they_take_every_second_pixel():
    net = resnet20().eval()
    smooth = antialiased(net)
    block, x = net.layer2[0], torch.randn(2, 16, 8, 8)
    taps = torch.tensor([1.0, 2.0, 1.0]) / 4
    square = torch.outer(taps, taps)[None, None]

    def blurred(y):
        padded = F.pad(y, (1, 1, 1, 1), mode="reflect").flatten(0, 1)[:, None]
        return F.conv2d(padded, square)[:, 0].unflatten(0, y.shape[:2])[:, :, ::2, ::2]

    with torch.no_grad():
        y = blurred(F.relu(block.bn1(F.conv2d(x, block.conv1.weight, padding=1))))
        expected = F.relu(block.bn2(block.conv2(y)) + F.pad(blurred(x), (0, 0, 0, 0, 8, 8)))
        assert torch.allclose(smooth.layer2[0](x), expected, atol=1e-5)
        assert torch.equal(smooth.layer1(x), net.layer1(x))
    assert smooth.state_dict().keys() == net.state_dict().keys()
    assert net.layer2[0].conv1.stride == (2, 2)
