"""A fixed kernel, one axis after the other: lines summed in one pass against tap by tap, and who gets which."""

import pytest
import torch

import contconv
from contconv.grid import PADDING_MODES
from contconv.strategies import separable

KERNELS = {"cubic": contconv.Cubic(), "lanczos": contconv.Lanczos(3), "linear": contconv.Linear()}


def derivatives(x, kernel, **options):
    """The output, a gradient, and a gradient of that."""
    x = x.detach().requires_grad_()
    y = contconv.continuous_conv(x, kernel, strategy="separable", **options)
    seed = torch.cos(torch.arange(y.numel(), dtype=y.dtype)).reshape(y.shape)
    (first,) = torch.autograd.grad((y.square() * seed).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x)
    return y, first, second


@pytest.mark.parametrize("padding_mode", PADDING_MODES)
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("shape", [(2, 3, 12, 9), (2, 2, 11), (1, 2, 9, 8, 10)], ids=str)
def test_one_pass_and_tap_by_tap_agree_in_everything(monkeypatch, shape, name, padding_mode):
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=torch.float64)
    for scale in (0.5, 2 / 3, 0.6789, 1.5):
        for antialias in (False, True):
            options = {"scale": scale, "antialias": antialias, "padding_mode": padding_mode}
            monkeypatch.setattr(separable, "can_be_summed", lambda x, profile: True)
            at_once = derivatives(x, KERNELS[name], **options)
            monkeypatch.setattr(separable, "can_be_summed", lambda x, profile: False)
            for one, other in zip(at_once, derivatives(x, KERNELS[name], **options), strict=True):
                torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_the_one_pass_is_what_runs_on_the_cpu(monkeypatch):
    def refused(*arguments):
        raise AssertionError("tap by tap")

    monkeypatch.setattr(separable, "resized", refused)
    x = torch.randn(1, 3, 16, 16, requires_grad=True)
    for scale in (1, 0.5, 0.6789):
        contconv.continuous_conv(x, contconv.Cubic(), scale=scale).sum().backward()
    with pytest.raises(AssertionError, match="tap by tap"):
        torch.func.vmap(lambda x: contconv.continuous_conv(x, contconv.Cubic(), scale=0.6789))(x[None])


class Wide(contconv.Kernel):
    """exp(-|a d|^2), whose width is learned."""

    kernel_size = 4
    channelwise = separable = True

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.tensor(0.8, dtype=torch.float64))
        self.mixing = torch.ones(1, 1, 1)

    def basis(self, d):
        return torch.exp(-(self.a * d).square().sum(-1, keepdim=True))


def test_a_trained_kernel_gets_its_gradient():
    kernel, x = Wide(), torch.randn(1, 2, 9, 9, dtype=torch.float64, requires_grad=True)

    def resized(a, x):
        return torch.func.functional_call(Whole(kernel), {"kernel.a": a}, (x,))

    assert torch.autograd.gradcheck(resized, (kernel.a, x))


class Whole(torch.nn.Module):
    def __init__(self, kernel):
        super().__init__()
        self.kernel = kernel

    def forward(self, x):
        return contconv.continuous_conv(x, self.kernel, scale=0.7)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_pixel_spoils_only_what_sees_it(bad):
    x = torch.rand(1, 1, 30, 30)
    clean = contconv.continuous_conv(x, contconv.Cubic(), scale=0.6789)
    x[..., 15, 15] = bad
    spoiled = contconv.continuous_conv(x, contconv.Cubic(), scale=0.6789)
    lost = ~spoiled.isfinite()
    assert 1 <= lost.sum() <= 9  # four taps along each axis, at two thirds of the pixels
    torch.testing.assert_close(spoiled[~lost], clean[~lost])


def test_an_empty_batch():
    assert contconv.continuous_conv(torch.zeros(0, 3, 8, 8), contconv.Cubic(), scale=1.5).shape == (0, 3, 12, 12)


class Loud(contconv.Linear):
    """A kernel times a learned number."""

    def __init__(self):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.tensor(2.0))

    @property
    def mixing(self):
        return self.gain.reshape(1, 1, 1)


@pytest.mark.parametrize("scale", [1, 0.5, 0.7])
def test_the_mixing_of_a_separable_kernel_counts(scale):
    kernel, x = Loud(), torch.rand(2, 3, 8, 9)
    y = contconv.continuous_conv(x, kernel, scale=scale)
    torch.testing.assert_close(y, 2 * contconv.continuous_conv(x, contconv.Linear(), scale=scale))
    y.sum().backward()
    assert kernel.gain.grad.item() == pytest.approx(y.sum().item() / 2, rel=1e-5)


class Mixed(Wide):
    channelwise = False

    def __init__(self):
        super().__init__()
        self.mixing = torch.nn.Parameter(torch.randn(1, 2, 3, dtype=torch.float64))


@pytest.mark.parametrize("scale", [0.5, 0.7])
def test_a_separable_kernel_that_mixes_channels_goes_another_way(scale):
    kernel, x = Mixed(), torch.randn(2, 3, 8, 9, dtype=torch.float64)
    y = contconv.continuous_conv(x, kernel, scale=scale)
    torch.testing.assert_close(y, contconv.continuous_conv(x, kernel, scale=scale, strategy="reference"))
    with pytest.raises(ValueError, match="the kernel mixes basis functions or channels"):
        contconv.continuous_conv(x, kernel, scale=scale, strategy="separable")


def test_derivatives_by_others_of_what_was_computed_before():
    x = torch.randn(1, 2, 8, 9, dtype=torch.float64, requires_grad=True)
    y = contconv.continuous_conv(x, contconv.Cubic(), scale=0.7)
    seeds = torch.randn(3, *y.shape, dtype=torch.float64)
    one_by_one = torch.stack([torch.autograd.grad(y, x, seed, retain_graph=True)[0] for seed in seeds])
    at_once = torch.func.vmap(lambda seed: torch.autograd.grad(y, x, seed, retain_graph=True)[0])(seeds)
    torch.testing.assert_close(at_once, one_by_one)
