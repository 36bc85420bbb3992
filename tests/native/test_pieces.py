"""A basis that is too large to be remembered is made and used piece by piece, where no gradient is asked for."""

from collections import Counter
from fractions import Fraction

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import contconv
from contconv.kernels import memory, sampling
from contconv.strategies import engine

CONVS = {1: contconv.ContinuousConv1d, 2: contconv.ContinuousConv2d, 3: contconv.ContinuousConv3d}
LAST = {1: torch.preserve_format, 2: torch.channels_last, 3: torch.channels_last_3d}


def small_pieces(monkeypatch):
    """Everything in pieces of one row; returns the displacements of every sampled basis."""
    sampled = []
    original = sampling._basis

    def counted(kernel, axes, device):
        sampled.append([axis.phases for axis in axes])
        return original(kernel, axes, device)

    monkeypatch.setattr(sampling, "_basis", counted)
    monkeypatch.setattr(engine, "MOST_BYTES", 0)
    monkeypatch.setattr(engine, "FILTER_BYTES", 0)
    monkeypatch.setattr(engine, "PIECE_BYTES", 1)
    monkeypatch.setattr(
        engine, "MANY_OUTPUTS", 10**9
    )  # or a net might be sampled by the kernel, and nobody would see it
    return sampled


@pytest.mark.parametrize("padding_mode", ["zeros", "reflect"])
@pytest.mark.parametrize("strategy", ["phases", "factored"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_basis_too_large_to_be_remembered_is_made_in_pieces(axes, strategy, padding_mode, monkeypatch):
    layer = CONVS[axes](4, 6, 3, groups=2, strategy=strategy, padding_mode=padding_mode).eval()
    x = torch.randn(2, 4, *(13, 9, 6)[:axes])
    scale = (1.618, 0.8141, 1.4142)[:axes]
    whole = layer(x, scale=scale).detach()
    asked = small_pieces(monkeypatch)
    with torch.no_grad():
        in_pieces, again = layer(x, scale=scale), layer(x.to(memory_format=LAST[axes]), scale=scale)
    assert torch.equal(in_pieces, again)
    assert len(asked) >= 4  # twice, in two pieces or more, and nothing of it remembered
    assert torch.allclose(in_pieces, whole, atol=1e-6)
    asked.clear()
    layer(x, scale=scale).sum().backward()
    assert len(asked) == (strategy == "factored")  # gradients want the whole; for filters the kernel samples it itself


@pytest.mark.parametrize(
    ("scale", "in_size", "wanted"),
    [
        ((1, 1.618, 0.8141), (4, 9, 7), {(1, 1, 6): 15}),  # a film: pieces are cut where every output is another phase
        ((Fraction(4, 3), 1.618), (9, 7), {(4, 1): 12}),
        ((Fraction(4, 3), Fraction(2, 3)), (9, 9), {(4, 2): 1}),  # phases come again on both axes: the whole
    ],
)
def test_no_two_pieces_sample_the_same(scale, in_size, wanted, monkeypatch):
    layer = CONVS[len(scale)](2, 3, 3, strategy="phases").eval()
    x = torch.randn(1, 2, *in_size)
    whole = layer(x, scale=scale).detach()
    sampled = small_pieces(monkeypatch)
    with torch.no_grad():
        assert torch.allclose(layer(x, scale=scale), whole, atol=1e-6)
    assert Counter(tuple(phases) for phases in sampled) == wanted


@pytest.mark.parametrize("strategy", ["phases", "factored"])
def test_pieces_cost_what_explain_says(strategy, monkeypatch):
    layer = contconv.ContinuousConv2d(4, 6, 3, strategy=strategy).eval()
    x = torch.randn(2, 4, 12, 9)
    small_pieces(monkeypatch)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        layer(x, scale=(1.618, 1.8141))
    with torch.no_grad():
        said = contconv.explain(layer, x, scale=(1.618, 1.8141))
    assert counter.get_total_flops() == 2 * said.costs[strategy].macs


def test_pieces_under_vmap(monkeypatch):
    layer = contconv.ContinuousConv2d(2, 3, 3).eval()
    parameters = {name: torch.stack([p.detach(), 2 * p.detach()]) for name, p in layer.named_parameters()}
    x = torch.randn(1, 2, 8, 7)

    def call(parameters, x):
        return torch.func.functional_call(layer, parameters, (x,), {"scale": (1.618, 0.8141)})

    whole = torch.func.vmap(call, (0, None))(parameters, x)
    small_pieces(monkeypatch)
    assert torch.allclose(torch.func.vmap(call, (0, None))(parameters, x), whole, atol=1e-6)


def test_pieces_leave_what_is_remembered_alone(monkeypatch):
    layer = contconv.ContinuousConv2d(1, 2, 3).eval()
    with torch.no_grad():
        layer(torch.randn(1, 1, 8, 8), scale=2 / 3)
        kept = list(memory._memories[layer.kernel].samples)
        monkeypatch.setattr(engine, "MOST_BYTES", 2**20)
        monkeypatch.setattr(engine, "PIECE_BYTES", 2**14)
        x = torch.randn(1, 1, 80, 80)
        assert engine.plan_of(contconv.explain(layer, x, scale=(1.618, 1.8141)).problem, "filters").rows
        layer(x, scale=(1.618, 1.8141))
    assert list(memory._memories[layer.kernel].samples) == kept


def test_memory_of_a_large_basis_is_that_of_a_piece():
    layer = contconv.ContinuousConv2d(16, 16, 5).eval()
    x = torch.randn(1, 16, 256, 256)
    with torch.no_grad():
        said = contconv.explain(layer, x, scale=(2.3166, 2.3130))
    assert said.problem.phases * said.problem.taps * said.problem.basis_functions * 4 > 500 * 2**20
    assert said.costs[said.strategy].bytes < 10 * 2**20
