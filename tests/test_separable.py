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
