"""`contconv.convert` replaces what it is told to, changes no output, and reports what it did and why not."""

import copy
import pickle
import re

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


class SameConv2d(nn.Conv2d):
    """Pads by what TensorFlow would."""

    def forward(self, x):
        pads = []
        for n, k, s, d in zip(x.shape[2:], self.kernel_size, self.stride, self.dilation, strict=True):
            missing = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
            pads = [missing // 2, missing - missing // 2, *pads]
        return self._conv_forward(nn.functional.pad(x, pads), self.weight, self.bias)


class PaddedConv2d(nn.Conv2d):
    """Pads by a layer inside, which was made for one size of input."""

    def __init__(self, pad, *given, **options):
        super().__init__(*given, **options)
        self.static_padding = pad

    def forward(self, x):
        return nn.functional.conv2d(
            self.static_padding(x), self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )


class SpelledOut(nn.ConvTranspose1d):
    """A forward of its own, which does what every other one does."""

    def forward(self, x):
        return nn.functional.conv_transpose1d(x, self.weight, self.bias, self.stride, self.padding)


UNDERSTOOD = {
    "same": (SameConv2d(3, 4, (3, 4), stride=(2, 3), dilation=(1, 2)), 'pads as TensorFlow\'s "SAME" does'),
    "zeros": (PaddedConv2d(nn.ZeroPad2d((0, 1, 2, 1)), 3, 4, 3, stride=2), "pads as its static_padding does"),
    "zeros twice": (PaddedConv2d(nn.ConstantPad2d((0, 1, 2, 1), 0), 3, 4, 3, stride=2, padding=1), "static_padding"),
    "reflected": (PaddedConv2d(nn.ReflectionPad2d((1, 2, 0, 1)), 3, 3, 5, stride=3, groups=3), "static_padding"),
    "repeated": (PaddedConv2d(nn.ReplicationPad2d(1), 3, 4, 3), "static_padding"),
    "none": (PaddedConv2d(nn.Identity(), 3, 4, 3, stride=2, padding=1), "pads as its options say"),
    "transposed": (SpelledOut(3, 4, 4, stride=2, padding=1), "spreads its pixels as its options say"),
}


class Cropped(nn.Conv1d):
    """Causal: pads in its forward, on the left alone, and says nothing of it."""

    def forward(self, x):
        return super().forward(nn.functional.pad(x, (self.dilation[0] * (self.kernel_size[0] - 1), 0)))


class Odd(SameConv2d):
    """Has options that are no convolution's."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.padding = "SAME"
        self.unused = nn.ConstantPad3d(1, 0.0)

    def forward(self, x):
        padding, self.padding = self.padding, 0
        try:
            return super().forward(x)
        finally:
            self.padding = padding


def zeroed(conv):
    for parameter in conv.parameters():
        nn.init.zeros_(parameter)
    return conv


UNDERSTOOD |= {
    "causal": (Cropped(3, 4, 3, dilation=2), "pads 4 + 0 zeros"),
    "zero weights": (zeroed(PaddedConv2d(nn.ReflectionPad2d(1), 3, 4, 3)), "pads as its static_padding does"),
    "wide reflection": (PaddedConv2d(nn.ReflectionPad2d(4), 3, 4, 3, stride=2), "pads as its static_padding does"),
    "normalised": (parametrizations.spectral_norm(SameConv2d(3, 4, 3, stride=2)), 'TensorFlow\'s "SAME"'),
    "odd options": (Odd(3, 4, 3, stride=2), 'TensorFlow\'s "SAME"'),
    "half precision": (SameConv2d(3, 4, 3, stride=2).half(), 'TensorFlow\'s "SAME"'),
}


@pytest.mark.parametrize("name", UNDERSTOOD)
def test_a_forward_of_its_own_that_only_pads_is_tried_out_and_understood(name):
    conv, words = UNDERSTOOD[name]
    net = nn.Sequential(copy.deepcopy(conv).double()).eval()
    state = torch.get_rng_state()
    converted = contconv.convert(net, "all")
    assert torch.equal(torch.get_rng_state(), state)
    (entry,) = contconv.conversion_report(converted).entries
    assert entry.now.startswith("Converted"), entry.why
    assert words in entry.why
    for size in ((8, 9), (7, 10), (6, 11), (13, 12), (20, 21)):
        x = torch.randn(1, 3, *size[: conv.weight.ndim - 2], dtype=torch.float64)
        torch.testing.assert_close(converted(x), net(x))
    assert not any(type(layer).__name__.endswith(("Pad1d", "Pad2d")) for layer in converted.modules())


@pytest.mark.filterwarnings("ignore:.*weight_norm.*deprecated")
@pytest.mark.parametrize("inplace", [False, True])
def test_a_normalised_weight_and_a_forward_of_its_own(inplace):
    net = nn.Sequential(weight_norm(SameConv2d(3, 4, 3, stride=2)))
    x = torch.randn(1, 3, 9, 8)
    expected = net(x)
    torch.testing.assert_close(contconv.convert(net, inplace=inplace)(x), expected)


def test_a_network_on_the_meta_device_is_tried_out_too():
    with torch.device("meta"):
        net = nn.Sequential(SameConv2d(3, 4, 3, stride=2))
    converted = contconv.convert(net)
    assert isinstance(converted[0], ConvertedConv2d)
    assert converted[0].weight.is_meta


class Plain(nn.Conv2d):
    def forward(self, x):
        return super().forward(x)


class Standardised(nn.Conv2d):
    def forward(self, x):
        return self._conv_forward(x, self.weight - self.weight.mean((1, 2, 3), keepdim=True), self.bias)


class Adapted(nn.Conv2d):
    """Does nothing else yet, but will when its own parameter is trained."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.more = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return super().forward(x) * (1 + self.more)


class NoisyInTraining(nn.Conv2d):
    def forward(self, x):
        return super().forward(x + torch.randn_like(x) if self.training else x)


class SometimesSkipped(nn.Conv2d):
    def forward(self, x):
        return super().forward(x * 0 if self.training and torch.rand(()) < 0.5 else x)


class Failing(nn.Conv2d):
    def forward(self, x):
        raise RuntimeError("only at home")


class Constrained(nn.Conv2d):
    def forward(self, x):
        self.weight.data = torch.renorm(self.weight.data, p=2, dim=0, maxnorm=0.1)
        return super().forward(x)


class Masking(nn.Conv2d):
    def forward(self, x):
        self.weight.data[..., 2, :] = 0
        return super().forward(x)


class Scaled(nn.Conv2d):
    def forward(self, x, scale=1.0):
        return super().forward(x) * scale


class Clamped(nn.Conv2d):
    def forward(self, x):
        return super().forward(x.clamp(-8, 8))


class Partial(nn.Conv2d):
    def forward(self, x):
        return super().forward(x) * (
            x[:, :, ::2, ::2][:, :, : (x.shape[2] - 1) // 2, : (x.shape[3] - 1) // 2] != 0
        ).any(1, True)


class Detached(nn.Conv2d):
    def forward(self, x):
        return super().forward(x.detach())


class Watched(nn.Conv2d):
    def forward(self, x):
        self.seen = x
        return super().forward(x)


class Casting(nn.Conv2d):
    def forward(self, x):
        return super().forward(x.to(self.weight.dtype))


class Pair(nn.Conv2d):
    def forward(self, x):
        return super().forward(x), x


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (OwnForward, "which was tried out: it is no convolution with its weights, padded in a way known here"),
        (Standardised, "which was tried out: it is no convolution"),
        (Adapted, r"and with parameters or buffers of its own \(more\)"),
        (NoisyInTraining, "which draws random numbers"),
        (SometimesSkipped, "which draws random numbers"),
        (Failing, "which was tried out and raised RuntimeError: only at home"),
        (Constrained, "which changes the layer when it runs"),
        (Masking, "which changes the layer when it runs"),
        (Scaled, r"which takes more than its input \(scale\)"),
        (Clamped, "which was tried out: it is no convolution"),
        (Partial, "which was tried out: it is no convolution"),
        (Detached, "its gradients are not those of a convolution"),
        (Watched, "which changes the layer when it runs"),
        (Casting, "which takes inputs of another type than its weights"),
        (Pair, "which returns no tensor but tuple"),
    ],
)
def test_a_forward_of_its_own_that_does_more_stays(kind, reason):
    net = nn.Sequential(kind(3, 4, 3, stride=2)).eval()
    before = copy.deepcopy(net.state_dict())
    report = contconv.conversion_report(contconv.convert(net, inplace=True))
    assert re.match(f"{kind.__name__} is a Conv2d with a forward of its own, .*{reason}", report.kept["0"])
    assert not net.training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_what_is_inside_a_converted_layer_goes_with_it():
    conv = Plain(3, 4, 3, stride=2)
    conv.pool = nn.AvgPool2d(2)
    report = contconv.conversion_report(contconv.convert(nn.Sequential(conv)))
    assert [entry.name for entry in report.entries] == ["0"]
    conv.pool.register_forward_hook(lambda module, args, y: y)
    report = contconv.conversion_report(contconv.convert(nn.Sequential(conv)))
    assert "it has hooks" in report.kept["0"]


def test_a_plain_layer_is_not_tried_out():
    conv = nn.Conv2d(3, 4, 3, stride=2)
    conv.unused = nn.ConstantPad1d(1, 0.0)
    assert contconv.conversion_report(contconv.convert(nn.Sequential(conv))).replaced == ("0",)


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
