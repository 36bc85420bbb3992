"""The tools that people use around layers: profiler, summary, parametrizations, deferred initialisation, files."""

import copy

import pytest
import torch
from safetensors.torch import load_model, save_model
from torch import nn
from torch.nn.utils import parametrize, skip_init
from torch.profiler import ProfilerActivity, profile
from torchinfo import summary

import contconv
from contconv import ContinuousConv2d
from contconv.kernels import KERNELS
from contconv.models import CCNet, ConvNet, with_hub

MAKES = {
    **{name: lambda name=name, **made: ContinuousConv2d(8, 16, 3, kernel=name, **made) for name in KERNELS},
    "cubic": lambda **made: ContinuousConv2d(8, 8, 4, kernel=contconv.Cubic(), groups=8, **made),
    "gaussian": lambda **made: ContinuousConv2d(
        8, 8, 5, kernel=contconv.Gaussian([[2.0, 1.0], [1.0, 2.0]], 5), groups=8, **made
    ),
}


@pytest.mark.parametrize("kernel", ["internal", "spline"])
def test_the_profiler_names_the_native_operations(kernel):
    """Where there are any."""
    layer = ContinuousConv2d(4, 4, 3, kernel=kernel, strategy="phases")
    x = torch.randn(1, 4, 9, 9, requires_grad=True)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        layer(x, scale=2 / 3).sum().backward()
    named = {event.key for event in profiled.key_averages() if event.key.startswith("contconv::")}
    assert named == ({"contconv::forward", "contconv::backward"} if contconv.native.available() else set())


def test_torchinfo_sums_up_a_network():
    net = CCNet("spline", width=4, hidden=8)
    lines = summary(net, (1, 3, 32, 32), verbose=0)
    assert lines.total_params == sum(p.numel() for p in net.parameters())
    shapes = [info.output_size for info in lines.summary_list if info.class_name == "ContinuousConv2d"]
    assert (len(shapes), shapes[0], shapes[-1]) == (8, [1, 4, 32, 32], [1, 8, 8, 8])


class Halved(nn.Module):
    """A parametrization with a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(0.5))

    def forward(self, mixing):
        return self.factor * mixing


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_parametrized_mixing(kernel):
    layer = ContinuousConv2d(3, 4, 3, kernel=kernel, bias=False)
    x = torch.randn(1, 3, 8, 8)
    whole = layer(x, scale=0.7)
    parametrize.register_parametrization(layer.kernel, "mixing", Halved())
    torch.testing.assert_close(layer(x, scale=0.7), whole / 2)
    layer(x, scale=0.7).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in layer.kernel.parametrizations.parameters())


@pytest.mark.parametrize("kernel", KERNELS)
def test_what_inference_keeps_follows_a_parametrization(kernel):
    layer = ContinuousConv2d(3, 4, 3, kernel=kernel, bias=False).eval()
    x = torch.randn(1, 3, 8, 8)
    with torch.no_grad():
        whole = layer(x, scale=0.7)
        parametrize.register_parametrization(layer.kernel, "mixing", Halved())
        torch.testing.assert_close(layer(x, scale=0.7), whole / 2)
        layer.kernel.parametrizations.mixing[0].factor.fill_(2)
        torch.testing.assert_close(layer(x, scale=0.7), whole * 2)
        parametrize.remove_parametrizations(layer.kernel, "mixing", leave_parametrized=False)
        torch.testing.assert_close(layer(x, scale=0.7), whole)


@pytest.mark.parametrize("kernel", KERNELS)
def test_spectral_and_weight_norm(kernel):
    layer = ContinuousConv2d(3, 4, 3, kernel=kernel)
    before = layer(torch.ones(1, 3, 6, 6), scale=1.5)
    nn.utils.parametrizations.weight_norm(layer.kernel, "mixing", dim=-2)
    torch.testing.assert_close(layer(torch.ones(1, 3, 6, 6), scale=1.5), before)


def poisoned(layer: nn.Module) -> nn.Module:
    """What `to_empty` may leave: anything."""
    with torch.no_grad():
        for tensor in [*layer.parameters(), *layer.buffers()]:
            tensor.fill_(float("nan"))
    return layer


def on_meta(make):
    with torch.device("meta"):
        return make()


@pytest.mark.parametrize("way", ["device-argument", "device-context"])
@pytest.mark.parametrize("name", MAKES)
def test_made_on_meta_then_drawn_is_made_at_once(name, way):
    make = MAKES[name]
    deferred = make(device="meta") if way == "device-argument" else on_meta(make)
    deferred = poisoned(deferred.to_empty(device="cpu"))
    assert_drawn_alike(deferred, make())


@pytest.mark.parametrize("kernel", KERNELS)
def test_skip_init_then_drawn_is_made_at_once(kernel):
    assert_drawn_alike(poisoned(skip_init(ContinuousConv2d, 8, 16, 3, kernel=kernel)), MAKES[kernel]())


def assert_drawn_alike(layer: nn.Module, made: nn.Module) -> None:
    """From the same randomness, the same layer."""
    for drawn in (layer, made):
        torch.manual_seed(3)
        drawn.reset_parameters()
    x = torch.randn(1, 8, 9, 9)
    y = layer(x, scale=0.7)
    assert y.isfinite().all()
    assert torch.equal(y, made(x, scale=0.7))


@pytest.mark.parametrize("name", MAKES)
def test_safetensors_keep_a_layer(name, tmp_path):
    layer, other = MAKES[name](), MAKES[name]()
    save_model(layer, str(tmp_path / "layer.safetensors"))
    load_model(other, str(tmp_path / "layer.safetensors"))
    x = torch.randn(1, 8, 9, 9)
    assert torch.equal(other(x, scale=0.7), layer(x, scale=0.7))


@pytest.mark.parametrize("make", [lambda c: c("spline", width=4, hidden=8), lambda c: c(classes=3, width=4, hidden=8)])
def test_the_hub_mixin_keeps_a_network_in_a_folder(make, tmp_path):
    net = make(with_hub(CCNet)).eval()
    net.save_pretrained(tmp_path)
    again = with_hub(CCNet).from_pretrained(tmp_path)
    x = torch.randn(2, 3, 32, 32)
    assert isinstance(again, CCNet)
    assert torch.equal(again(x), net(x))


def test_a_network_with_the_mixin_is_the_network():
    torch.manual_seed(1)
    plain = ConvNet(width=4, hidden=8)
    torch.manual_seed(1)
    mixed = with_hub(ConvNet)(width=4, hidden=8)
    x = torch.randn(1, 3, 32, 32)
    assert torch.equal(copy.deepcopy(mixed)(x), plain(x))
