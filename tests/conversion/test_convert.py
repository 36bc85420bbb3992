"""`contconv.convert` replaces what it is told to, changes no output, and reports what it did and why not."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune, weight_norm

import contconv
from contconv.conversion import ConvertedConv2d, ConvertedPool, ConvertedUpsample


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.down = nn.Conv2d(4, 4, 3, stride=2, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.flat = nn.AvgPool2d(3, 1, 1)
        self.block = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.BatchNorm2d(4), nn.ReLU())
        self.up = nn.ConvTranspose2d(4, 4, 4, stride=2, padding=1)
        self.more = nn.Upsample(scale_factor=2, mode="bilinear")

    def forward(self, x):
        return self.more(self.up(self.block(self.flat(self.pool(self.down(self.stem(x)))))))


X = torch.randn(2, 3, 18, 20)


def replaced(model, layers):
    return set(contconv.conversion_report(contconv.convert(model, layers)).replaced)


def test_what_the_words_mean():
    net = Net()
    strided = {"down", "pool", "up", "more"}
    assert replaced(net, "strided") == strided
    assert replaced(net, "all") == strided | {"stem", "block.0"}
    assert replaced(net, nn.Conv2d) == {"stem", "down", "block.0"}
    assert replaced(net, [nn.MaxPool2d, "block.0"]) == {"pool", "block.0"}
    assert replaced(net, ["strided", "stem"]) == strided | {"stem"}
    assert replaced(net, "block.*") == {"block.0"}
    assert replaced(net, lambda name, module: module.__class__ is nn.Conv2d and name < "e") == {"down", "block.0"}


@pytest.mark.parametrize("kernel", ["spline", "table"])
@pytest.mark.parametrize("layers", ["strided", "all"])
def test_outputs_do_not_change(layers, kernel):
    net = Net().double()
    torch.testing.assert_close(contconv.convert(net, layers, kernel=kernel)(X.double()), net(X.double()))


def test_a_copy_or_in_place():
    net = Net()
    copied = contconv.convert(net)
    assert isinstance(net.down, nn.Conv2d)
    assert isinstance(copied.down, ConvertedConv2d)
    assert isinstance(copied.pool, ConvertedPool)
    assert isinstance(copied.more, ConvertedUpsample)
    assert contconv.convert(net, inplace=True) is net
    assert isinstance(net.down, ConvertedConv2d)


def test_a_layer_alone_is_a_model():
    conv = nn.Conv2d(3, 4, 3, stride=2)
    converted = contconv.convert(conv)
    assert isinstance(converted, ConvertedConv2d)
    assert torch.equal(converted(X), conv(X))
    assert contconv.conversion_report(converted).replaced == ("",)


def test_twice_is_no_more_than_once():
    net = contconv.convert(Net())
    again = contconv.convert(net, "all")
    report = contconv.conversion_report(again)
    assert set(report.replaced) == {"stem", "block.0"}
    assert report.kept["pool"] == report.kept["down"] == "it is continuous already"
    torch.testing.assert_close(again(X), net(X))


def test_a_layer_that_was_kept_can_be_converted_later():
    conv = contconv.convert(nn.Conv2d(3, 4, 3))
    assert isinstance(conv, nn.Conv2d)
    assert isinstance(contconv.convert(conv, "all"), ConvertedConv2d)


def test_conversion_in_inference_mode_can_be_trained():
    with torch.inference_mode():
        net = contconv.convert(Net())
    net(X).sum().backward()
    assert net.down.weight.grad is not None


def test_shared_modules_stay_shared():
    conv = nn.Conv2d(4, 4, 3, stride=2, padding=1)
    net = nn.Sequential(conv, nn.ReLU(), conv, nn.Sequential(conv))
    converted = contconv.convert(net)
    assert converted[0] is converted[2] is converted[3][0]
    (entry,) = contconv.conversion_report(converted).entries
    assert (entry.name, entry.also) == ("0", ("2", "3.0"))
    x = torch.randn(1, 4, 32, 32)
    torch.testing.assert_close(converted(x), net(x))
    assert replaced(net, ["2"]) == {"0"}


def test_tied_weights_stay_tied():
    net = nn.Sequential(nn.Conv2d(4, 4, 3, 2, 1), nn.Conv2d(4, 4, 3, 2, 2, dilation=2))
    net[1].weight = net[0].weight
    net[1].bias = net[0].bias
    converted = contconv.convert(net)
    assert converted[0].kernel.weight is converted[1].kernel.weight
    assert converted[0].bias is converted[1].bias
    kept = contconv.conversion_report(contconv.convert(net, lambda name, module: name == "0")).kept
    assert "shared with '1'" in kept["0"]


def test_a_weight_tied_to_something_else_is_left_alone():
    net = nn.Sequential(nn.Conv1d(4, 4, 3, 2, 1), nn.ConvTranspose1d(4, 4, 3, 2, 1))
    net[1].weight = net[0].weight
    report = contconv.conversion_report(contconv.convert(net))
    assert not report.replaced
    assert all("shared with" in why for why in report.kept.values())


def test_modes_gradients_and_types_are_kept():
    net = Net().double().eval()
    net.down.weight.requires_grad_(False)
    net.up.bias.requires_grad_(False)
    converted = contconv.convert(net)
    assert not any(module.training for module in converted.modules())
    assert not converted.down.weight.requires_grad
    assert converted.down.bias.requires_grad
    assert converted.up.weight.requires_grad
    assert not converted.up.bias.requires_grad
    assert {p.dtype for p in converted.parameters()} == {torch.float64}
    assert sum(p.numel() for p in converted.parameters()) == sum(p.numel() for p in net.parameters())


@pytest.mark.filterwarnings("ignore:.*weight_norm.*deprecated")
@pytest.mark.parametrize("normalise", [parametrizations.weight_norm, parametrizations.spectral_norm, weight_norm])
def test_parametrized_layers_are_evaluated(normalise):
    net = nn.Sequential(normalise(nn.Conv1d(2, 3, 3, stride=2))).eval()
    with torch.no_grad():
        next(p for name, p in net.named_parameters() if "weight" in name).mul_(3)
    x = torch.randn(1, 2, 9)
    converted = contconv.convert(net)
    with torch.no_grad():
        torch.testing.assert_close(converted(x), net(x))
    assert "parametrization" in contconv.conversion_report(converted).entries[0].why
    assert isinstance(converted[0].weight, nn.Parameter)
    assert converted[0].weight.requires_grad


class OwnForward(nn.Conv2d):
    def forward(self, x):
        return super().forward(x) + 1


class NoForward(nn.Conv2d):
    pass


def test_what_cannot_be_converted_stays_and_the_report_says_why():
    hooked = nn.Conv2d(3, 4, 3, stride=2)
    hooked.register_forward_hook(lambda module, args, y: y + 1)
    patched = nn.Conv2d(3, 4, 3, stride=2)
    patched.forward = lambda x: x
    pruned = nn.Conv2d(3, 4, 3, stride=2)
    prune.l1_unstructured(pruned, "weight", amount=2)
    cases = {
        "own": (OwnForward(3, 4, 3, stride=2), "with a forward of its own"),
        "lazy": (nn.LazyConv2d(4, 3, stride=2), "no weights yet"),
        "hooked": (hooked, "hooks"),
        "patched": (patched, "forward was replaced"),
        "pruned": (pruned, "L1Unstructured"),
        "complex": (nn.Conv2d(3, 4, 3, stride=2, dtype=torch.complex64), "complex64"),
        "indices": (nn.MaxPool2d(2, return_indices=True), "indices"),
        "fixed": (nn.Upsample(size=8), "fixed output size"),
    }
    net = nn.ModuleDict({name: module for name, (module, _) in cases.items()} | {"fine": NoForward(3, 4, 3, stride=2)})
    converted = contconv.convert(net)
    report = contconv.conversion_report(converted)
    assert report.replaced == ("fine",)
    for name, (module, reason) in cases.items():
        assert reason in report.kept[name]
        assert type(converted[name]) is type(module)
        assert f"{name} " in str(report)
        with pytest.raises(ValueError, match=f"layers: {name} cannot be converted"):
            contconv.convert(net, [name])


def test_quantized_layers_are_named_in_the_report():
    quantized = torch.ao.nn.quantized.Conv2d(3, 4, 3, stride=2)
    report = contconv.conversion_report(contconv.convert(nn.Sequential(quantized), inplace=True))
    assert "is none of Conv1d" in report.kept["0"]


def test_bad_requests():
    net = Net()
    with pytest.raises(ValueError, match="no module 'dwon'; did you mean 'down'"):
        contconv.convert(net, ["dwon"])
    with pytest.raises(TypeError, match="layers must be of strings and types"):
        contconv.convert(net, [3])
    with pytest.raises(ValueError, match="kernel must be one of spline, table, got 'cubic'"):
        contconv.convert(net, kernel="cubic")
    with pytest.raises(TypeError, match=r"model must be an nn\.Module, got str"):
        contconv.convert("net")
    with pytest.raises(TypeError, match="convert it first and compile afterwards"):
        contconv.convert(torch.jit.script(nn.Sequential(nn.Conv2d(1, 1, 1))))
    with pytest.raises(ValueError, match="has no report"):
        contconv.conversion_report(net)
    with pytest.raises(ValueError, match=r"layers: block\.1 cannot be converted: BatchNorm2d is none of"):
        contconv.convert(net, "block.1")


def test_a_converted_model_can_be_copied_pickled_and_loaded():
    net = contconv.convert(Net()).eval()
    want = net(X)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        torch.testing.assert_close(other(X), want)
        assert contconv.conversion_report(other) == contconv.conversion_report(net)
    fresh = contconv.convert(Net()).eval()
    fresh.load_state_dict(net.state_dict())
    torch.testing.assert_close(fresh(X), want)
