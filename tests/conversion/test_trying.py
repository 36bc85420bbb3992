"""A convolution with a forward of its own: converted if all it does is pad, else kept with the reason."""

import copy
import re

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, weight_norm

import contconv
from contconv.conversion import ConvertedConv2d


class OwnForward(nn.Conv2d):
    def forward(self, x):
        return super().forward(x) + 1


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
