"""Diffusion of filters: against the heat equation stepped by hand, and in training."""

import math

import pytest
import torch
from safetensors.torch import load_file
from synthetic import run
from torch import nn

from contconv.cifar.diffusion import Filters, diffusing, filters_of
from contconv.cifar.recipe import SHORT, recipe
from contconv.cli import main
from contconv.kernels import SplineKernel, TapKernel
from contconv.models import CCNet, ConvNet
from contconv.modules import ContinuousConv2d


def stepped(values, time, axis, steps=4000):
    """The heat equation by small explicit steps: what flows between two neighbours is their difference."""
    values = values.double().movedim(axis, -1).clone()
    for _ in range(steps):
        flow = values.diff(dim=-1) * time / steps
        values[..., :-1] += flow
        values[..., 1:] -= flow
    return values.movedim(-1, axis)


@pytest.mark.parametrize("points", [(3, 3), (4, 4), (1, 5), (2, 3)])
def test_taps_obey_the_heat_equation(points):
    filters = Filters(nn.Parameter(torch.randn(3, 2, *points)), points)
    wanted = stepped(stepped(filters.parameter.detach(), 0.3, 2), 0.3, 3)
    filters.diffuse(0.3)
    assert torch.allclose(filters.parameter.double(), wanted, atol=1e-3)


@pytest.mark.parametrize("density", [None, 2])
def test_control_points_obey_it_too_in_pixels(density):
    layer = ContinuousConv2d(2, 3, (3, 4), kernel=SplineKernel(2, 3, (3, 4), density=density))
    filters = filters_of(layer, "layer")
    mixing = layer.kernel.mixing
    points = [n * (density or 1) + (0 if density is None else 3) for n in (3, 4)]
    assert list(filters.points) == points
    time = 0.05 * (density or 1) ** 2  # a pixel is `density` points wide
    wanted = stepped(stepped(mixing.detach().reshape(*points, 3, 2), time, 0), time, 1).flatten(0, 1)
    filters.diffuse(0.05)
    assert torch.allclose(mixing.double(), wanted, atol=1e-3)


def test_what_alternates_fades_and_what_is_constant_stays():
    sign = (-1.0) ** torch.arange(64)
    filters = Filters(nn.Parameter(torch.stack([sign.expand(1, 1, 64), torch.ones(1, 1, 64)])), (1, 64))
    filters.diffuse(0.1)
    alternating, constant = filters.parameter.detach()
    assert torch.allclose(alternating[..., 20:40], math.exp(-0.4) * sign[20:40], atol=1e-5)
    assert torch.allclose(constant, torch.ones(1), atol=1e-5)


def test_taps_that_are_closer_diffuse_faster():
    layer = ContinuousConv2d(2, 3, (3, 5), kernel=TapKernel(2, 3, (5, 5), density=2, dilation=(1, 2)))
    weight = layer.kernel.weight
    wanted = stepped(stepped(weight.detach(), 0.05 * 4, 2), 0.05, 3)
    filters_of(layer, "layer").diffuse(0.05)
    assert torch.allclose(weight.double(), wanted, atol=1e-3)


def test_all_filters_of_a_network_are_found_once():
    for model in (ConvNet(width=4, hidden=8), CCNet("spline", width=4, hidden=8)):
        assert len({id(filters.parameter) for filters, _ in diffusing(model, (1.0,))}) == 8


def test_kernels_without_points_are_refused_where_they_would_diffuse():
    model = CCNet("internal-per-tap", last_kernel="spline", width=4, hidden=8)
    with pytest.raises(ValueError, match=r"diffusion is for kernels made of taps or of control points .* got convs.0 "):
        diffusing(model, (1.0,))
    assert len(diffusing(model, (0, 0, 0, 0, 0, 0, 0, 1))) == 1
    arguments = ["cifar", "train", "--data", "none", "--out", "none", "--diffusion", "0.1"]
    assert main(arguments) == 2  # before data are looked for


def test_rates_that_train_alike_are_one_config():
    assert recipe("short", "ccnet", diffusion=(0.0,)) == recipe("short", "ccnet", diffusion=(0.0,) * 8) == SHORT
    assert recipe("short", "ccnet", diffusion=(0.1,) * 8).diffusion == (0.1,)


def roughness(out):
    """How much neighbouring control points differ, as a share of how large they are, in all layers together."""
    mixings = [mixing for name, mixing in load_file(out / "model.safetensors").items() if name.endswith("mixing")]
    grids = [mixing.unflatten(0, (math.isqrt(len(mixing)),) * 2) for mixing in mixings]
    return sum((grid.diff(dim=0).square().sum() / grid.square().sum()).item() for grid in grids) / len(grids)


def test_training_with_it_makes_smoother_filters(data, tmp_path):
    for name, diffusion in {"rough": (), "smooth": (2.0,), "smoother": (8.0,)}.items():
        run(tmp_path / name, epochs=2, diffusion=diffusion)
    rough, smooth, smoother = (roughness(tmp_path / name) for name in ("rough", "smooth", "smoother"))
    assert smoother < 0.8 * smooth < 0.8 * 0.8 * rough


def test_every_layer_may_have_a_rate_of_its_own():
    model = CCNet(TapKernel, width=4, hidden=8)
    weights = [conv.kernel.weight for conv in model.convs]
    assert [(id(filters.parameter), rate) for filters, rate in diffusing(model, (0.5,))] == [
        (id(w), 0.5) for w in weights
    ]
    some = diffusing(model, (0, 0, 0, 0, 0, 0.5, 1, 2))
    assert [(id(filters.parameter), rate) for filters, rate in some] == [
        (id(w), rate) for w, rate in zip(weights[5:], (0.5, 1, 2), strict=True)
    ]
    assert diffusing(model, ()) == []
    with pytest.raises(ValueError, match=r"diffusion must be one number, or 8, one for each .* got 3"):
        diffusing(model, (1, 1, 1))
