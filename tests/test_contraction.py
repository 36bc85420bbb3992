"""`factored` without the native kernel: at either end, in blocks, and never one matrix after the other."""

import pytest
import torch
from problems import assert_near

import contconv
from contconv.functional import planned
from contconv.strategies import contraction, factored
from contconv.strategies.factored import Factored

LAYERS = {1: contconv.ContinuousConv1d, 2: contconv.ContinuousConv2d, 3: contconv.ContinuousConv3d}

# in_size, scale: every phase of its own, shared, up, down
SHAPES = [((19,), (0.6789,)), ((9, 10), (0.6789, 4 / 3)), ((5, 6), (1.618, 2.2345)), ((3, 4, 5), (2 / 3, 1.3, 0.7123))]


def problem_of(layer, x, scale):
    return planned(
        x.shape, layer.kernel, scale=scale, size=None, padding_mode=layer.padding_mode, antialias=False, center=0,
        training=True, dtype=x.dtype,
    )  # fmt: skip


def results(run, layer, x, problem):
    """y and all gradients."""
    x = x.clone().requires_grad_()
    y = run(x, layer.kernel, layer.bias, problem)
    weight = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape)
    return [y, *torch.autograd.grad(y, [x, *layer.parameters()], weight)]


def at_the(end, monkeypatch):
    """Have everything contracted there."""
    monkeypatch.setattr(contraction, "begins_at_output", lambda problem: end == "output")


@pytest.mark.parametrize("end", ["output", "input"])
@pytest.mark.parametrize("block", [1, 2**30])
@pytest.mark.parametrize("padding_mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize(("groups", "batch"), [(1, 3), (2, 2), (4, 1), (1, 0)])
@pytest.mark.parametrize(("in_size", "scale"), SHAPES, ids=str)
def test_either_end_is_the_reference(in_size, scale, groups, batch, padding_mode, block, end, monkeypatch):
    monkeypatch.setattr(factored, "BLOCK_BYTES", block)
    at_the(end, monkeypatch)
    layer = LAYERS[len(in_size)](4, 8, 3, groups=groups, padding_mode=padding_mode).double()
    x = torch.randn(batch, 4, *in_size, dtype=torch.float64)
    problem = problem_of(layer, x, scale)
    wanted = results(contconv.strategies.STRATEGIES["reference"].run, layer, x, problem)
    for have, want in zip(results(Factored(native=False).run, layer, x, problem), wanted, strict=True):
        assert_near(have, want)


@pytest.mark.parametrize("end", ["output", "input"])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("batch", [1, 3])
def test_pixels_are_never_multiplied_one_by_one(batch, memory_format, end, monkeypatch):
    """As torch.bmm does, several times slower, with matrices that do not lie as it likes them."""
    at_the(end, monkeypatch)
    layer = contconv.ContinuousConv2d(8, 8, 3)
    x = torch.randn(batch, 8, 24, 24).to(memory_format=memory_format).requires_grad_()
    problem = problem_of(layer, x, (0.6789, 0.7123))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiled:
        y = Factored(native=False).run(x, layer.kernel, layer.bias, problem)
        for gradient in (torch.ones(y.shape), torch.ones(y.shape).to(memory_format=torch.channels_last)):
            torch.autograd.grad(y, [x, *layer.parameters()], gradient, retain_graph=True)
    assert max(event.count for event in profiled.key_averages()) < problem.outputs
