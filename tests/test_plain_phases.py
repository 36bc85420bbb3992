"""`phases` without the native kernel: large batches, pieces of batches, and none at all."""

import pytest
import torch
from problems import assert_near

import contconv
from contconv.functional import planned
from contconv.strategies import STRATEGIES, classes, products
from contconv.strategies.phases import Phases, filters_pass

LAYERS = {1: contconv.ContinuousConv1d, 2: contconv.ContinuousConv2d, 3: contconv.ContinuousConv3d}

# in_size, scale: rows of one class that are many, few or one; columns that share phases or do not; up and down
SHAPES = [
    ((19,), (0.6789,)),
    ((9, 10), (0.6789, 0.7123)),
    ((13, 11), (5 / 6, 0.7123)),
    ((13, 12), (0.6789, 4 / 5)),
    ((5, 6), (1.618, 1.2345)),
    ((3, 4, 5), (0.6789, 4 / 3, 0.7123)),
    ((6, 6, 5), (5 / 6, 5 / 6, 0.7123)),
]


def results(strategy, layer, x, scale):
    """y and all gradients, by a strategy that is not in the registry."""
    problem = planned(
        x.shape, layer.kernel, scale=scale, size=None, padding_mode=layer.padding_mode, antialias=False, center=0,
        training=True, dtype=x.dtype,
    )  # fmt: skip
    x = x.clone().requires_grad_()
    y = strategy.run(x, layer.kernel, layer.bias, problem)
    weight = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape)
    return problem, [y, *torch.autograd.grad(y, [x, *layer.parameters()], weight)]


# Few rows are matrices of their own, one for each filter; many are an image with a group of channels for each.
NEVER, ALWAYS = {"LEAST_ROWS": 2**62}, {"LEAST_ROWS": 1, "LEAST_NUMBERS": 1, "LEAST_COLUMNS": 1}


@pytest.mark.parametrize(
    ("dtype", "convolved"),
    [
        (torch.float32, NEVER),
        (torch.float32, ALWAYS),
        (torch.float32, ALWAYS | {"LEAST_COLUMNS": 9}),
        (torch.float64, {}),
    ],
    ids=["products", "convolutions", "of many columns", "float64"],
)
@pytest.mark.parametrize("piece", [1, 40_000, 2**30])
@pytest.mark.parametrize(("groups", "batch"), [(1, 150), (1, 20), (1, 2), (1, 1), (2, 40), (1, 0)])
@pytest.mark.parametrize(("in_size", "scale"), SHAPES, ids=str)
def test_it_gives_what_the_reference_gives(in_size, scale, groups, batch, piece, dtype, convolved, monkeypatch):
    monkeypatch.setattr(classes, "PIECE_BYTES", piece)
    for name, least in convolved.items():
        monkeypatch.setattr(products, name, least)
    torch.manual_seed(0)
    layer = LAYERS[len(in_size)](4, 6, 3, groups=groups, padding_mode="replicate").to(dtype)
    x = torch.randn(batch, 4, *in_size, dtype=dtype)
    problem, got = results(Phases(native=False), layer, x, scale)
    _, want = results(STRATEGIES["reference"], layer, x, scale)
    assert filters_pass(problem) == (len(in_size) > 1 or problem.axes[0].phases > 3)
    for one, other in zip(got, want, strict=True):
        assert one.shape == other.shape
        assert_near(one, other)


@pytest.mark.parametrize("batch", [1, 40])
@pytest.mark.parametrize("channels", [(3, 16), (2, 1)])
def test_a_gradient_that_is_one_number_everywhere(channels, batch):
    torch.manual_seed(0)
    layer = contconv.ContinuousConv2d(*channels, 3)
    x = torch.randn(batch, channels[0], 12, 11)
    found = {}
    for strategy in (Phases(native=False), STRATEGIES["reference"]):
        problem = planned(
            x.shape, layer.kernel, scale=0.61, size=None, padding_mode="zeros", antialias=False, center=0, training=True
        )
        x.requires_grad_()
        total = strategy.run(x, layer.kernel, layer.bias, problem).sum()
        found[strategy] = torch.autograd.grad(total, [x, *layer.parameters()])
    for one, other in zip(*found.values(), strict=True):
        assert_near(one, other)


def test_filters_as_a_convolution_wants_them():
    layer = contconv.ContinuousConv2d(2, 1, (4, 1), kernel="spline").double()
    x = torch.randn(130, 6, 6, 4, dtype=torch.float64).movedim(-1, 1)[:, ::2, 1::2, 1::2].requires_grad_()
    grads = []
    for strategy in ("phases", "reference"):
        y = contconv.continuous_conv(x, layer.kernel, layer.bias, scale=0.0859, strategy=strategy)
        grads.append(torch.autograd.grad(y.square().sum(), [x, *layer.parameters()]))
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("needed", ["x", "kernel", "bias"])
def test_only_the_gradients_that_are_wanted_are_made(needed):
    torch.manual_seed(0)
    layer = contconv.ContinuousConv2d(3, 4, 3)
    x = torch.randn(2, 3, 9, 8)
    problem = planned(
        x.shape, layer.kernel, scale=0.6789, size=None, padding_mode="zeros", antialias=False, center=0, training=True
    )
    x.requires_grad_(needed == "x")
    layer.kernel.requires_grad_(needed == "kernel")
    layer.bias.requires_grad_(needed == "bias")
    Phases(native=False).run(x, layer.kernel, layer.bias, problem).square().sum().backward()
    having = {name for name, tensor in {"x": x, "bias": layer.bias}.items() if tensor.grad is not None}
    having |= {"kernel"} if all(p.grad is not None for p in layer.kernel.parameters()) else set()
    assert having == {needed}


@pytest.mark.parametrize("kernel", ["internal", "internal-per-tap"])
@pytest.mark.parametrize("strategy", [Phases(native=False), *STRATEGIES.values()], ids=lambda one: one.name)
def test_many_gradients_at_once_are_right_or_refused(strategy, kernel):
    layer = contconv.ContinuousConv2d(3, 4, 3, kernel=kernel).double()
    x = torch.randn(2, 3, 9, 8, dtype=torch.float64, requires_grad=True)
    problem = planned(
        x.shape, layer.kernel, scale=0.6789, size=None, padding_mode="zeros", antialias=False, center=0, training=True,
        dtype=x.dtype,
    )  # fmt: skip
    if strategy.why_not(problem):
        return
    y = strategy.run(x, layer.kernel, layer.bias, problem)
    many = torch.randn(3, *y.shape, dtype=y.dtype)
    if strategy.name == "phases":
        with pytest.raises(NotImplementedError, match=r"one gradient at a time.*use torch\.func"):
            torch.autograd.grad(y, x, many, is_grads_batched=True)
        return
    (found,) = torch.autograd.grad(y, x, many, is_grads_batched=True, retain_graph=True)
    for one, dy in zip(found, many, strict=True):
        assert_near(one, torch.autograd.grad(y, x, dy, retain_graph=True)[0])


@pytest.mark.parametrize("channels", [(1, 1), (2, 3), (3, 16)])
def test_the_gradient_of_a_small_mixing_is_not_a_running_sum(channels):
    torch.manual_seed(0)
    layer = contconv.ContinuousConv2d(*channels, 3)
    x = torch.rand(1, channels[0], 100, 100)  # of one sign, so that errors add up
    found = []
    for dtype in (torch.float32, torch.float64):
        layer, x = layer.to(dtype), x.to(dtype)
        problem = planned(
            x.shape, layer.kernel, scale=1.3123, size=None, padding_mode="zeros", antialias=False, center=0,
            training=True, dtype=dtype,
        )  # fmt: skip
        y = Phases(native=False).run(x, layer.kernel, layer.bias, problem)
        found += torch.autograd.grad(y.sum(), layer.kernel.mixing)
    assert (found[0].double() - found[1]).abs().max() <= 2e-6 * found[1].abs().max()
