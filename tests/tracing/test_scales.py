"""`contconv.scales` and tracers: a graph is for what its block asks, and for nothing else."""

import asyncio
import threading

import pytest
import torch
from problems import assert_near
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.export import Dim, export

import contconv


def own_layers():
    first, second = (contconv.ContinuousConv2d(2, 2, 3, scale=0.5, padding_mode="replicate") for _ in range(2))
    return nn.Sequential(first, nn.ReLU(), second)


def converted_layers():
    return contconv.convert(
        nn.Sequential(
            nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.ConvTranspose2d(3, 2, 4, 2, 1),
            nn.Upsample(scale_factor=2),
        )
    )  # fmt: skip


MODELS = {"own": own_layers, "converted": converted_layers}


@pytest.fixture(autouse=True)
def forget():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(model):
    counter = CompileCounterWithBackend("aot_eager")
    return torch.compile(model, backend=counter, fullgraph=True), counter


def results(call, model, x) -> list:
    model.zero_grad()
    y = call(x)
    y.pow(2).sum().backward()
    return [y.detach(), *(p.grad for p in model.parameters())]


@pytest.mark.parametrize("name", MODELS)
def test_a_compiled_model_does_what_the_block_asks_and_compiles_once_for_it(name):
    model, x = MODELS[name](), torch.randn(2, 2, 12, 12)
    graph, counter = compiled(model)
    shapes = []
    for scale in (None, 0.61, None, 0.61):
        if scale is None:
            got, want = results(graph, model, x), results(model, model, x)
        else:
            with contconv.scales(model, {"0": scale}):
                got, want = results(graph, model, x), results(model, model, x)
        for one, other in zip(got, want, strict=True):
            assert_near(one, other, 1e-5)
        shapes.append(want[0].shape)
    assert shapes[0] == shapes[2] != shapes[1] == shapes[3]
    assert counter.frame_count == 2


def test_a_converted_model_at_its_own_scales_is_compiled_once_for_all_sizes():
    model = contconv.convert(
        nn.Sequential(
            nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.MaxPool2d(2), nn.Conv2d(3, 3, 3), nn.Upsample(scale_factor=2)
        ),
        "all",
    )
    counter = CompileCounterWithBackend("aot_eager")
    graph = torch.compile(model, backend=counter, fullgraph=True, dynamic=True)
    counts = []
    for size in ((24, 20), (25, 33), (40, 31), (26, 26)):
        x = torch.randn(2, 2, *size)
        for got, want in zip(results(graph, model, x), results(model, model, x), strict=True):
            assert_near(got, want, 1e-5)
        counts.append(counter.frame_count)
    assert len(set(counts)) == 1  # nothing is compiled again


def test_a_thread_does_not_get_the_graph_of_another_ones_block():
    model, x = own_layers(), torch.randn(1, 2, 12, 12)
    graph, _ = compiled(model)
    outside = graph(x).shape
    found = []
    with contconv.scales(model, {"0": 0.75}), torch.no_grad():
        inside = graph(x).shape
        thread = threading.Thread(target=lambda: found.append(graph(x).shape))
        thread.start()
        thread.join()
    assert found == [outside] != [inside]


def test_a_task_that_does_not_see_its_own_block_is_refused():
    model, x = own_layers(), torch.randn(1, 2, 12, 12)
    graph, _ = compiled(model)
    graph(x)

    async def waiting(entered, done):
        with contconv.scales(model, {"0": 0.75}):
            entered.set()
            await done.wait()

    async def main():
        entered, done = asyncio.Event(), asyncio.Event()
        other = asyncio.create_task(waiting(entered, done))
        await entered.wait()
        try:
            graph(x)
        finally:
            done.set()
            await other

    with pytest.raises(Exception, match="asynchronous task"):
        asyncio.run(main())


@pytest.mark.parametrize("name", MODELS)
def test_an_exported_program_keeps_what_its_block_asked_for(name):
    model, x = MODELS[name]().eval(), torch.randn(3, 2, 12, 12)
    with contconv.scales(model, {"0": 0.61}), torch.no_grad():
        program = export(model, (x[:2],), dynamic_shapes=({0: Dim.DYNAMIC},)).module()
        want = model(x)
    assert want.shape != model(x).shape
    assert_near(program(x), want)
