"""Recipes: schedules, optimizers, and what they refuse."""

import pytest
import torch
from synthetic import CONVNET, TINY, config
from torch import nn

from contconv.cifar.muon import Muon
from contconv.cifar.recipe import PAPER, SHORT, Recipe, learning_rate, optimizers, recipe
from contconv.models.networks import Network, build


def test_the_papers_recipe():
    for model, rate, drops in (("ccnet", 5e-4, (200, 300)), ("convnet", 1e-3, (150, 250))):
        paper = recipe("paper", model)
        assert paper == PAPER[model]
        assert (paper.epochs, paper.batch, paper.weight_decay, paper.label_smoothing) == (400, 64, 5e-4, 0)
        rates = [learning_rate(paper, 781 * epoch, 781 * 400) for epoch in range(400)]
        for epoch, value in enumerate(rates):
            assert value == pytest.approx(rate * 0.1 ** sum(epoch >= drop for drop in drops))
        (adam,) = optimizers(paper, build(CONVNET))
        assert type(adam) is torch.optim.Adam
        assert adam.param_groups[0]["weight_decay"] == 5e-4


@pytest.mark.parametrize("network", [Network("convnet"), Network("ccnet"), Network("ccnet", "taps")], ids=str)
def test_the_papers_recipe_starts_with_signals_that_reach_the_end(network):
    """PyTorch's own variance shrinks them so much that Adam's weight decay wins over the gradient, for good."""
    x = torch.randn(64, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    spread = {}
    for initial in ("default", "kaiming"):
        torch.manual_seed(0)
        model = build(network, initial)
        with torch.no_grad():
            logits = model(x)
        spread[initial] = (logits - logits.mean(0)).std().item()
    assert spread["default"] < 0.01
    assert 0.2 < spread["kaiming"] < 5
    if network.model == "ccnet":
        weights = model.convs[3].kernel(torch.zeros(2))  # [64, 64] of 3x3
        assert weights.var().item() == pytest.approx(2 / (9 * 64), rel=0.3)
    assert recipe("paper", network.model).initial == "kaiming"


def test_one_cycle_rises_to_its_peak_and_falls_to_nothing():
    rates = [learning_rate(SHORT, step, 1000) for step in range(1000)]
    top = rates.index(max(rates))
    assert rates[top] == SHORT.learning_rate
    assert rates[0] == pytest.approx(SHORT.learning_rate / 25)
    assert rates[:top] == sorted(rates[:top])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert rates[-1] < 1e-4 * SHORT.learning_rate


@pytest.mark.parametrize("decoupled", [False, True])
def test_the_optimizer_is_adam_by_hand_whatever_the_layout_of_the_weights(decoupled):
    plain = Recipe(1, 1, 0.01, "drops", weight_decay=0.1, decoupled=decoupled)
    layer = nn.Conv2d(3, 5, 3).to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    weight = layer.weight.detach().double()
    (adam,) = optimizers(plain, layer)
    first = second = torch.zeros_like(weight)
    for step in range(1, 4):
        adam.zero_grad()
        layer(x).square().sum().backward()
        gradient = layer.weight.grad.double() + (0 if decoupled else 0.1 * weight)
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        update = (first / (1 - 0.9**step)) / ((second / (1 - 0.999**step)).sqrt() + 1e-8)
        weight = weight * (1 - 0.01 * 0.1 if decoupled else 1) - 0.01 * update
        adam.step()
        assert torch.allclose(layer.weight.double(), weight, atol=1e-6)


@pytest.mark.parametrize("network", [CONVNET, TINY])
def test_filters_move_by_muon_and_the_rest_by_adam(network):
    model = build(network)
    adam, muon = optimizers(recipe("short", network.model, filter_rate=0.02), model)
    moved = {id(p) for group in muon.param_groups for p in group["params"]}
    others = {id(p) for group in adam.param_groups for p in group["params"]}
    assert moved == {id(p) for p in model.parameters() if p.ndim > 2}
    assert others == {id(p) for p in model.parameters() if p.ndim <= 2}
    assert {group["share"] for group in muon.param_groups} == {0.02 / SHORT.learning_rate}


@pytest.mark.parametrize(
    ("shape", "out_dim"), [((6, 3, 3, 3), 0), ((6, 2, 1, 1), 0), ((9, 6, 4), -2), ((4, 9, 6, 5), -2)]
)
def test_muon_steps_along_the_singular_vectors_of_the_momentum(shape, out_dim):
    weight = nn.Parameter(torch.randn(shape))
    start, momentum = weight.detach().clone(), torch.zeros(shape)
    muon = Muon([{"params": [weight], "out_dim": out_dim}], lr=0.1, weight_decay=0.5)
    for _ in range(3):
        weight.grad = torch.randn(shape)
        momentum = 0.95 * momentum + 0.05 * weight.grad
        before = weight.detach().clone()
        muon.step()
        step = (before * (1 - 0.1 * 0.5) - weight.detach()) / 0.1
        ahead = 0.05 * weight.grad + 0.95 * momentum
        step, ahead = (t.movedim(out_dim, 0).flatten(1) for t in (step, ahead))
        left, _, right = torch.linalg.svd(ahead, full_matrices=False)
        values = left.T @ step @ right.T
        assert torch.allclose(values, values.diag().diag(), atol=1e-3)
        assert values.diag().min() > 0.5
        assert values.diag().max() < 1.3
    assert not torch.equal(weight, start)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"filter_rate": 0.0}, "filter_rate must be positive, got 0.0"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch": -1}, "batch must be at least 1, got -1"),
        ({"learning_rate": 0.0}, "learning_rate must be positive, got 0.0"),
        ({"weight_decay": -0.1}, "weight_decay must be at least 0"),
        ({"diffusion": (1.0, float("nan"))}, "diffusion must be finite numbers of at least 0, got 1, nan"),
        ({"consistency": -1.0}, "consistency must be at least 0 and finite, got -1.0"),
        ({"consistency": float("nan")}, "consistency must be at least 0 and finite, got nan"),
        ({"consistency": 1.0, "batch": 33}, "batch must be even with a consistency, .* got 33"),
        ({"agreement": float("inf")}, "agreement must be at least 0 and finite, got inf"),
        ({"agreement": 1.0, "consistency": 1.0}, "give one of consistency and agreement"),
        ({"agreement": 1.0, "agreement_noise": -1.0}, "agreement_noise must be at least 0 and finite, got -1"),
        ({"agreement_noise": 0.5}, "agreement_noise=0.5 needs an agreement"),
        ({"agreement_every": 0}, "agreement_every must be at least 1, got 0"),
        ({"agreement_from": 1.0}, "agreement_from must be at least 0 and less than 1, got 1.0"),
        ({"label_smoothing": 1.0}, "label_smoothing must be at least 0 and less than 1"),
    ],
)
def test_what_recipes_refuse(changes, reason):
    with pytest.raises(ValueError, match=reason):
        recipe("short", "ccnet", **changes)


@pytest.mark.parametrize("changes", [{"network": CONVNET}, {"random_scales": False}], ids=str)
def test_agreement_needs_random_scales(changes):
    with pytest.raises(ValueError, match="agreement is that of ccnet's maps at random scales, got "):
        config(1, agreement=1.0, **changes)
