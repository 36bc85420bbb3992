"""A plan says what every layer does and what it costs, and a budget is kept."""

from fractions import Fraction

import pytest
import torch
from nets import NETS, Residual, UNet, input_of
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import contconv


def macs(model, x):
    """By PyTorch's own counter."""
    with FlopCounterMode(display=False) as counter:
        model(x)
    return counter.get_total_flops() // 2


@pytest.mark.parametrize("name", [name for name in NETS if name not in ("unet", "audio")])
@pytest.mark.parametrize("layers", ["strided", "all"])
def test_the_original_costs_what_pytorch_counts(name, layers):
    net, x = NETS[name](), input_of(name, batch=1)
    plan = contconv.plan(contconv.convert(net, layers), x, scales={})
    assert plan.macs == plan.original_macs == macs(net, x)


def test_a_scale_changes_the_costs_as_it_changes_the_sizes():
    net = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 8, 1))
    plan = contconv.plan(contconv.convert(net), (32, 32), scales={"0": 0.75})
    pixels = 24 * 24
    assert plan.macs == pixels * (27 * 4 + 36 * 8 + 8 * 8)
    assert plan.original_macs == 16 * 16 * (27 * 4 + 36 * 8 + 8 * 8)


@pytest.mark.parametrize("budget", [0.4, 0.7, 1.5])
def test_a_budget_is_kept_and_used(budget):
    model = contconv.convert(Residual(), ["strided", "stem"])
    plan = contconv.plan(model, (64, 64), budget=budget)
    for proposal in (plan, *plan.others):
        assert proposal.macs <= budget * proposal.original_macs
        with contconv.scales(model, proposal):
            assert model(torch.zeros(2, 3, 64, 64)).shape == (2, 5)
    assert plan.macs > 0.75 * budget * plan.original_macs
    assert plan.name == "early"
    assert {other.name for other in plan.others} <= {"even", "late"}


def test_a_budget_in_multiply_adds():
    model = contconv.convert(Residual())
    original = contconv.plan(model, 32, scales={}).macs
    plan = contconv.plan(model, 32, budget=original // 2, unit="macs")
    assert plan.macs <= original // 2


def test_a_budget_in_seconds_is_measured():
    model = contconv.convert(Residual()).eval()
    plan = contconv.plan(model, (32, 32), budget=3600, unit="seconds")
    assert plan.seconds is not None
    assert 0 < plan.seconds < 3600
    assert " ms, " in str(plan)
    with pytest.raises(ValueError, match=r"budget=1e-09 \(seconds\) cannot be kept"):
        contconv.plan(model, (32, 32), budget=1e-9, unit="seconds")


def test_a_plan_is_for_one_input_size():
    model = contconv.convert(Residual())
    plan = contconv.plan(model, (32, 32), scales={"down1": 0.7})
    assert plan.scales["down1"] == plan.scales["short1"] == (Fraction(7, 10),) * 2
    assert plan.sizes["down2"] == (12, 12)
    with contconv.scales(model, plan), pytest.raises(ValueError, match=r"the plan is for inputs of \(\(32, 32\),\)"):
        model(torch.zeros(1, 3, 40, 40))


def test_a_plan_and_its_scales_do_the_same():
    model = contconv.convert(UNet())
    x = input_of("unet")
    with contconv.scales(model, contconv.plan(model, x, scales={"down1": 0.6})):
        planned = model(x)
    with contconv.scales(model, {"down1": 0.6}):
        torch.testing.assert_close(model(x), planned)


def test_a_plan_can_be_read():
    text = str(contconv.plan(contconv.convert(Residual()), (32, 32), budget=0.8))
    assert "down1   32 x 32 -> " in text
    assert "(was 16 x 16)" in text
    assert "of the original" in text
    assert "or even" in text


def test_bad_requests():
    model = contconv.convert(Residual())
    with pytest.raises(ValueError, match="give either budget= or scales="):
        contconv.plan(model, (32, 32))
    with pytest.raises(ValueError, match="unit must be one of"):
        contconv.plan(model, (32, 32), budget=1, unit="joules")
    with pytest.raises(ValueError, match="no continuous layers"):
        contconv.plan(Residual(), (32, 32), budget=1)
    with pytest.raises(ValueError, match="input_size must have 2 numbers"):
        contconv.plan(model, (32, 32, 32), budget=1)
    with pytest.raises(ValueError, match=r"cannot be kept: the cheapest way costs 0\.\d+.* convert an earlier layer"):
        contconv.plan(model, (32, 32), budget=0.01)
    with pytest.raises(ValueError, match="budget must be positive"):
        contconv.plan(model, (32, 32), budget=-1)
