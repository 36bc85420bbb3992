"""A basis that is too large to be remembered is made and used piece by piece, where no gradient is asked for."""

import pytest
import torch

import contconv
from contconv.kernels import sampling
from contconv.strategies import engine

CONVS = {1: contconv.ContinuousConv1d, 2: contconv.ContinuousConv2d, 3: contconv.ContinuousConv3d}


@pytest.mark.parametrize("padding_mode", ["zeros", "reflect"])
@pytest.mark.parametrize("strategy", ["phases", "factored"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_basis_too_large_to_be_remembered_is_made_in_pieces(axes, strategy, padding_mode, monkeypatch):
    layer = CONVS[axes](4, 6, 3, groups=2, strategy=strategy, padding_mode=padding_mode).eval()
    x = torch.randn(2, 4, *(13, 9, 6)[:axes])
    scale = (1.618, 0.8141, 1.4142)[:axes]
    whole = layer(x, scale=scale).detach()
    asked = []
    original = sampling._basis
    monkeypatch.setattr(sampling, "_basis", lambda *a: asked.append(1) or original(*a))
    monkeypatch.setattr(engine, "MOST_BYTES", 0)
    monkeypatch.setattr(engine, "FILTER_BYTES", 0)
    monkeypatch.setattr(engine, "PIECE_BYTES", 1)  # row by row
    with torch.no_grad():
        in_pieces, again = layer(x, scale=scale), layer(x, scale=scale)
    assert torch.equal(in_pieces, again)
    assert len(asked) >= 4  # twice, in two pieces or more, and nothing of it remembered
    assert torch.allclose(in_pieces, whole, atol=1e-6)
    asked.clear()
    layer(x, scale=scale).sum().backward()
    assert len(asked) == 1  # gradients want the whole


def test_memory_of_a_large_basis_is_that_of_a_piece():
    layer = contconv.ContinuousConv2d(16, 16, 5).eval()
    x = torch.randn(1, 16, 256, 256)
    with torch.no_grad():
        said = contconv.explain(layer, x, scale=(2.3166, 2.3130))
    assert said.problem.phases * said.problem.taps * said.problem.basis_functions * 4 > 500 * 2**20
    assert said.costs[said.strategy].bytes < 10 * 2**20
