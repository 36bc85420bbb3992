"""Less memory costs time, never a digit."""

import re
import weakref
from dataclasses import replace

import pytest
import torch
from problems import STRATEGY_NAMES, assert_near, expected, few, input_of, layer_of, pairs, run
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import contconv
from contconv.functional import planned
from contconv.strategies import STRATEGIES
from contconv.strategies.chunked import Chunked
from contconv.strategies.factored import Factored
from contconv.strategies.phases import Phases


def least_limit(layer, x, call) -> int:
    """The bytes that one row needs, as the refusal of less says; with none, one byte is enough."""
    layer.memory_limit = 1
    try:
        layer(x, **call)
    except ValueError as error:
        return int(re.search(r"less than the (\d+) bytes", str(error))[1])
    return 1


@pytest.mark.parametrize("strategy", STRATEGY_NAMES)
@pytest.mark.parametrize(("problem", "kernel"), pairs(few()), ids=str)
def test_row_by_row_the_output_and_the_gradients_are_the_same(problem, kernel, strategy):
    if run(problem, kernel, strategy, input_of(problem)) is None:
        return
    whole, limited = (layer_of(problem, kernel, strategy=strategy) for _ in range(2))
    limited.memory_limit = least_limit(limited, input_of(problem).requires_grad_(), problem.call)
    got, want = (outputs(layer, problem) for layer in (limited, whole))
    assert_near(got[0], expected(problem, kernel, whole, input_of(problem)))
    for one, other in zip(got, want, strict=True):
        assert_near(one, other)


def outputs(layer, problem) -> list:
    x = input_of(problem).requires_grad_()
    y = layer(x, **problem.call)
    return [y.detach(), *torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])]


class LargestTensor(TorchDispatchMode):
    """Watches what operators return."""

    bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and not function.is_view:
                self.bytes = max(self.bytes, tensor.numel() * tensor.element_size())
        return result


class Living(TorchDispatchMode):
    """Counts the bytes of tensors that operators have made and somebody still has."""

    now = peak = 0

    def __init__(self) -> None:
        super().__init__()
        self.storages = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in self.storages:
                self._enter(tensor.untyped_storage())
        return result

    def _enter(self, storage) -> None:
        key, size = storage._cdata, storage.nbytes()
        self.storages.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._leave, key, size)

    def _leave(self, key, size) -> None:
        self.storages.discard(key)
        self.now -= size


# batch, channels, groups, size, scale: few phases and many, few channels and many, one image and several
SHAPES = [
    (20, (32, 32), 1, (32, 32), (0.6789, 0.7123)),
    (20, (32, 32), 4, (32, 32), (0.6789, 0.7123)),
    (8, (32, 32), 1, (64, 64), (2 / 3, 2 / 3)),
    (8, (32, 32), 32, (64, 64), (2 / 3, 2 / 3)),
    (2, (96, 96), 1, (16, 16), (0.6789, 0.7123)),
    (2, (96, 96), 4, (16, 16), (0.6789, 0.7123)),
    (4, (16, 16), 1, (32, 32), (1.7, 2.3)),
    (16, (3, 32), 1, (40, 40), (0.6789, 0.7123)),
    (16, (64, 3), 1, (24, 24), (5 / 6, 3 / 4)),
    (1, (32, 32), 1, (64, 64), (0.6789, 0.7123)),
    (32, (64, 64), 1, (16, 16), (5 / 6, 4 / 5)),
]


INNER = (STRATEGIES["reference"], Phases(native=False), Factored(native=False))


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("limited", [False, True], ids=["free", "limited"])
@pytest.mark.parametrize("inner", INNER, ids=lambda inner: inner.name)
@pytest.mark.parametrize(("batch", "channels", "groups", "size", "scale"), SHAPES, ids=str)
def test_no_more_is_alive_than_is_told(batch, channels, groups, size, scale, inner, limited, training):
    """Beyond the input, the output, and their gradients and the parameters'."""
    layer = contconv.ContinuousConv2d(*channels, 3, groups=groups)
    x = torch.randn(batch, channels[0], *size).to(memory_format=torch.channels_last).requires_grad_(training)
    problem = planned(
        x.shape, layer.kernel, scale=scale, size=None, padding_mode="zeros", antialias=False, center=0,
        training=training,
    )  # fmt: skip
    strategy = inner
    if limited:
        strategy = Chunked(inner)
        one_row = strategy.cost(replace(problem, memory_limit=1)).bytes
        problem = replace(problem, memory_limit=3 * one_row // 2)
        assert strategy.cost(problem).bytes <= problem.memory_limit
    with Living() as living, torch.set_grad_enabled(training):
        y = strategy.run(x, layer.kernel, layer.bias, problem)
        everything = [x, y]
        if training:
            everything += torch.autograd.grad(y, [x, *layer.parameters()], torch.ones_like(y))
            everything.append(y)  # for its gradient
    beyond = living.peak - sum(4 * tensor.numel() for tensor in everything)
    assert beyond <= 1.1 * strategy.cost(problem).bytes + 2**18  # of indices, which are kept from call to call


@pytest.mark.parametrize(
    ("options", "limit"), [({"strategy": "chunked"}, 64), ({"memory_limit": 8 * 2**20}, 8)], ids=str
)
def test_no_tensor_is_larger_than_the_limit_and_the_whole_is_the_same(options, limit):
    x = torch.randn(2, 16, 90, 100)
    layer, largest = contconv.ContinuousConv2d(16, 16, 3, **options), LargestTensor()
    plain = contconv.ContinuousConv2d(16, 16, 3, strategy="phases")
    plain.load_state_dict(layer.state_dict())
    with largest:
        got = trained(layer, x)
    assert largest.bytes <= limit * 2**20 < 130 * 150 * 9 * 16 * 16 * 4, "which is what all the filters would take"
    for one, other in zip(got, trained(plain, x), strict=True):
        assert_near(one, other)


def trained(layer, x) -> list:
    x = x.clone().requires_grad_()
    y = layer(x, size=(130, 150))
    return [y.detach(), *torch.autograd.grad(y.square().mean(), [x, *layer.parameters()])]


def test_few_output_channels_keep_to_a_limit_that_others_keep_to():
    """Unlimited, inputs are mixed beforehand and kept, which one row of a block is not worth."""
    x = torch.randn(1, 64, 40, 40)
    free = contconv.ContinuousConv2d(64, 3, 3, 1.37345)
    limited = contconv.ContinuousConv2d(64, 3, 3, 1.37345, memory_limit=700_000)
    limited.load_state_dict(free.state_dict())
    torch.testing.assert_close(limited(x), free(x))


def small_layer(**options) -> contconv.ContinuousConv2d:
    torch.manual_seed(0)
    return contconv.ContinuousConv2d(2, 2, 3, 0.7123, **options)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("strategy", ["chunked", "phases", "factored"])
def test_a_layer_that_is_used_twice_gets_the_gradients_of_both(strategy, create_graph):
    """The history of its input has its own parameters in it."""
    found = []
    for options in ({"strategy": "reference"}, {"strategy": strategy}, {"strategy": strategy, "memory_limit": 30_000}):
        layer = small_layer(**options).double()
        x = torch.linspace(-1, 1, 2 * 2 * 9 * 8, dtype=torch.float64).view(2, 2, 9, 8).requires_grad_()
        y = layer(layer(x)).square().sum()
        gradients = torch.autograd.grad(y, [x, *layer.parameters()], create_graph=create_graph)
        if create_graph:
            gradients += torch.autograd.grad(sum(g.square().sum() for g in gradients), [x, *layer.parameters()])
        found.append(gradients)
    for limited in found[1:]:
        for one, other in zip(limited, found[0], strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("create_graph", [False, True])
def test_hooks_are_called_once(create_graph):
    layer, x = small_layer(strategy="chunked"), torch.randn(2, 2, 9, 8, requires_grad=True)
    calls = []
    for tensor in (x, layer.kernel.mixing):
        tensor.register_hook(calls.append)
    layer(x).sum().backward(create_graph=create_graph)
    assert len(calls) == 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_sums_over_blocks_are_not_rounded_at_each(dtype):
    x, errors = torch.rand(4, 4, 40, 40), []
    layer = contconv.ContinuousConv2d(4, 4, 3, 0.7123, strategy="phases")
    wanted = torch.autograd.grad(layer(x).sum(), list(layer.parameters()))
    layer = layer.to(dtype)
    for limit in (None, least_limit(layer, x.to(dtype), {})):
        layer.memory_limit = limit
        found = torch.autograd.grad(layer(x.to(dtype)).sum(), list(layer.parameters()))
        pairs = zip(found, wanted, strict=True)
        errors.append(max(((one.float() - other).abs().max() / other.abs().max()).item() for one, other in pairs))
    assert errors[1] <= 1.5 * errors[0] + torch.finfo(dtype).eps


def test_what_the_kernel_reads_may_not_change_before_the_way_back():
    class Buffered(contconv.Linear):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("steepness", torch.ones(()))

        def basis(self, d):
            return super().basis(d) * self.steepness

    kernel = Buffered()
    x = torch.randn(1, 1, 12, 12, requires_grad=True)
    y = contconv.continuous_conv(x, kernel, scale=0.7123, strategy="chunked")
    kernel.steepness.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_autocast_around_backward_alone_changes_nothing():
    layer, x = small_layer(strategy="chunked"), torch.randn(2, 2, 9, 8, requires_grad=True)
    y = layer(x)
    plain = torch.autograd.grad(y.sum(), [x, *layer.parameters()], retain_graph=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = torch.autograd.grad(y.sum(), [x, *layer.parameters()])
    for one, other in zip(cast, plain, strict=True):
        torch.testing.assert_close(one, other)


def test_a_limit_that_the_fastest_does_not_keep_is_kept_by_another():
    layer, x = contconv.ContinuousConv2d(16, 16, 3, 2 / 3), torch.randn(2, 16, 32, 32)
    refused = {name: least_limit(with_strategy(layer, name), x, {}) for name in ("phases", "factored", "reference")}
    assert min(refused.values()) < max(refused.values())
    layer.strategy, layer.memory_limit = None, min(refused.values())
    with torch.no_grad():
        assert_near(layer(x), contconv.continuous_conv(x, layer.kernel, layer.bias, scale=2 / 3))


def with_strategy(layer, name):
    layer.strategy = name
    return layer


def test_what_is_chunked_is_refused_with_one_number():
    layer = contconv.ContinuousConv2d(8, 8, 3, 0.7123, strategy="chunked", memory_limit=1)
    with pytest.raises(ValueError, match="memory_limit=1 is less than") as refusal:
        layer(torch.randn(1, 8, 16, 16))
    assert str(refusal.value).count("less than") == 1
