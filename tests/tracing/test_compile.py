"""torch.compile: one graph, equal to eager in output and gradients, and few compilations whatever the scales."""

import copy
import random
from fractions import Fraction

import pytest
import torch
from problems import KERNEL_CASES, STRATEGY_NAMES, Problem, assert_near, few, input_of, layer_of, run_layer
from torch._dynamo.testing import CompileCounterWithBackend

import contconv
from contconv import native
from contconv.models import CCNet
from contconv.native import library


@pytest.fixture(autouse=True)
def forget():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(module, **options):
    counter = CompileCounterWithBackend(options.pop("backend", "aot_eager"))
    return torch.compile(module, backend=counter, fullgraph=True, **options), counter


def results(call, module, x, **options) -> list:
    """Output and all gradients of a step."""
    module.zero_grad()
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    y = call(x, **options)
    y.pow(2).sum().backward()
    return [y.detach(), x.grad, *(p.grad for p in module.parameters())]


def assert_same(graph, module, x, **options) -> None:
    for got, want in zip(results(graph, module, x, **options), results(module, module, x, **options), strict=True):
        assert_near(got, want, 1e-5 if got.dtype == torch.float32 else None)


@pytest.mark.parametrize("strategy", [None, *STRATEGY_NAMES])
@pytest.mark.parametrize("kernel", ["internal", "cubic"])
def test_a_layer_is_one_graph_in_every_strategy(kernel, strategy):
    kernel = KERNEL_CASES[kernel]
    problem = kernel.fitted(Problem((5, 6), (3, 2), scale=0.5 if strategy == "conv" else 2 / 3, channels=(2, 2)))
    layer, x = layer_of(problem, kernel, dtype=torch.float32), input_of(problem, dtype=torch.float32)
    if strategy is not None and run_layer(layer, problem, strategy, x) is None:
        return
    graph, counter = compiled(layer)
    assert_same(graph, layer, x, **problem.call)
    assert counter.frame_count == 1


@pytest.mark.parametrize("kernel", KERNEL_CASES)
def test_every_kernel_compiles(kernel):
    kernel = KERNEL_CASES[kernel]
    problem = kernel.fitted(few()[1])
    layer = layer_of(problem, kernel)
    graph, _ = compiled(layer)
    assert_same(graph, layer, input_of(problem), **problem.call)


@pytest.mark.parametrize("problem", few(), ids=str)
def test_one_to_three_axes_and_every_option(problem):
    layer = layer_of(problem, KERNEL_CASES["spline"])
    graph, _ = compiled(layer)
    assert_same(graph, layer, input_of(problem), **problem.call)


def stream(count: int, make_scale):
    draw = random.Random(0)
    for _ in range(count):
        yield torch.randn(1, 2, draw.randint(5, 15), draw.randint(5, 15)), make_scale(draw)


SCALE_STREAMS = {
    "floats": lambda draw: {"scale": draw.uniform(0.3, 2)},
    "floats per axis": lambda draw: {"scale": (draw.uniform(0.3, 2), draw.uniform(0.3, 2))},
    "fractions": lambda draw: {"scale": Fraction(draw.randint(2, 30), draw.randint(2, 30))},
    "sizes": lambda draw: {"size": (draw.randint(2, 20), draw.randint(2, 20))},
    "both": lambda draw: {"scale": draw.uniform(0.3, 2), "size": (draw.randint(2, 20), draw.randint(2, 20))},
}


@pytest.mark.parametrize(("name", "dynamic"), [*((name, None) for name in SCALE_STREAMS), ("floats per axis", True)])
def test_fifty_scales_and_sizes_do_not_mean_fifty_compilations(name, dynamic):
    layer = contconv.ContinuousConv2d(2, 3, 3)
    graph, counter = compiled(layer, dynamic=dynamic)
    for x, call in stream(50, SCALE_STREAMS[name]):
        assert_same(graph, layer, x, **call)
    assert counter.frame_count <= 4


def test_a_float_means_the_same_fraction_as_in_eager_calls():
    """50 x 1.1 is 55 pixels, not 56, also where the graph was made for another scale."""
    layer = contconv.ContinuousConv1d(1, 1, 3)
    graph, _ = compiled(layer, dynamic=True)
    for scale, size in ((0.7, 35), (1.1, 55), (2 / 3, 34), (0.1, 5)):
        assert graph(torch.randn(1, 1, 50), scale=scale).shape[-1] == size


def test_a_scale_of_many_digits_takes_images_of_changing_size():
    """0.7071 is no simple fraction; of 10000 pixels it makes 7071 or 7072, as the last bit of the float says."""
    layer = contconv.ContinuousConv1d(1, 1, 3, scale=0.7071, kernel="spline")
    graph, counter = compiled(layer)
    for size in (9, 14, 100, 10000):
        assert_same(graph, layer, torch.randn(1, 1, size))
    assert counter.frame_count == 2


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_layers_after_a_size_that_the_graph_does_not_know(memory_format):
    first, second = contconv.ContinuousConv2d(2, 3, 3), contconv.ContinuousConv2d(3, 2, 2)
    net = torch.nn.ModuleList([first, second])

    def call(x, scale):
        return second(first(x, scale=scale).relu(), scale=1 / 2).mean((2, 3))

    graph, counter = compiled(call, dynamic=True)
    for x, options in stream(5, SCALE_STREAMS["floats"]):
        x = x.contiguous(memory_format=memory_format)
        for got, want in zip(results(graph, net, x, **options), results(call, net, x, **options), strict=True):
            assert_near(got, want, 1e-5)
    assert counter.frame_count <= 2


@pytest.mark.parametrize("scales", [None, "random"])
def test_ccnet_is_one_graph(scales):
    net, x = CCNet(width=2, hidden=8), torch.randn(2, 3, 32, 32)
    options = {} if scales is None else {"scales": contconv.sample_scales(7, 1 / 4)}
    graph, counter = compiled(net)
    assert_same(graph, net, x, **options)
    assert counter.frame_count == 1


def test_training_in_a_graph_leads_to_the_weights_of_eager_training():
    torch.manual_seed(1)
    eager = torch.nn.Sequential(contconv.ContinuousConv2d(2, 3, 3, scale=0.6), torch.nn.ReLU())
    traced = torch.nn.Sequential(contconv.ContinuousConv2d(2, 3, 3, scale=0.6), torch.nn.ReLU())
    traced.load_state_dict(eager.state_dict())
    graph, _ = compiled(traced)
    x = torch.randn(2, 2, 8, 8)
    for module, call in ((eager, eager), (traced, graph)):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            call(x).square().mean().backward()
            optimizer.step()
    for got, want in zip(traced.parameters(), eager.parameters(), strict=True):
        assert_near(got, want)


@pytest.mark.parametrize("strategy", ["phases", "factored"])
def test_gradients_in_a_graph_do_not_compute_the_output_again(strategy, monkeypatch):
    calls = []
    forward = library.forward
    monkeypatch.setattr(library, "forward", lambda *arguments: calls.append("forward") or forward(*arguments))
    layer = contconv.ContinuousConv2d(4, 4, 3, scale=0.6, strategy=strategy)
    x = torch.randn(2, 4, 9, 9, requires_grad=True)
    graph, _ = compiled(layer)
    y = graph(x)
    assert len(calls) == native.available()
    y.square().sum().backward()
    assert len(calls) == native.available()
    layer(x)  # and eager calls go on computing it
    assert len(calls) == 2 * native.available()


@pytest.mark.parametrize("channels", [4, 1])
def test_channels_last_and_autocast_come_out_as_in_eager_calls(channels):
    layer = contconv.ContinuousConv2d(channels, 4, 3, scale=0.6)
    graph, _ = compiled(layer)
    x = torch.randn(2, channels, 8, 8).to(memory_format=torch.channels_last)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        got, want = graph(x), layer(x)
    assert got.dtype == want.dtype == torch.bfloat16
    assert got.stride() == want.stride()
    assert torch.equal(got, want)


def test_a_copied_layer_is_another_layer():
    layer = contconv.ContinuousConv2d(2, 2, 3, scale=0.6)
    graph, x = compiled(layer)[0], torch.randn(1, 2, 8, 8)
    graph(x)
    twin = copy.deepcopy(layer)
    with torch.no_grad():
        twin.kernel.mixing.mul_(2)
    assert_same(compiled(twin)[0], twin, x)
    assert_same(graph, layer, x)


class Steered(torch.nn.Module):
    """A kernel whose mixing belongs to somebody else."""

    kernel_size = (3, 3)

    def __init__(self, outside):
        super().__init__()
        self.outside = [outside]

    @property
    def mixing(self):
        return self.outside[0]

    def basis(self, d):
        return d.new_ones(*d.shape[:-1], 1)


def test_a_kernel_that_reads_tensors_of_others_is_refused():
    """Their gradients would be lost."""
    steered = Steered(torch.ones(1, 2, 2, requires_grad=True))
    graph, _ = compiled(lambda x: contconv.continuous_conv(x, steered, scale=0.6))
    with pytest.raises(Exception, match="not its own parameters"):
        graph(torch.randn(1, 2, 8, 8))


def test_inductor_compiles_a_layer():
    layer = contconv.ContinuousConv2d(2, 3, 3, scale=0.6)
    graph, counter = compiled(layer, backend="inductor")
    assert_same(graph, layer, torch.randn(1, 2, 8, 8))
    assert counter.frame_count == 1
