"""What a kernel was sampled at before is never seen after it has changed, and no gradient is ever lost."""

import pytest
import torch
from problems import KERNEL_CASES, LEARNED_CASES, STRATEGY_NAMES, Problem, input_of, layer_of, run_layer
from torch import nn
from torch.nn.utils import parametrize

import contconv

PROBLEM = Problem((5, 6), (3, 2), scale=2 / 3, channels=(4, 4), groups=2)
STRIDED = Problem((6, 6), (3, 2), scale=0.5, channels=(4, 4), groups=2)
each_learned = pytest.mark.parametrize("kernel", LEARNED_CASES.values(), ids=str)
each_strategy = pytest.mark.parametrize("strategy", STRATEGY_NAMES)
each_problem = pytest.mark.parametrize("problem", [PROBLEM, STRIDED], ids=str)


def add_one(layer):
    with torch.no_grad():
        for parameter in layer.kernel.parameters():
            parameter.add_(1)


def add_one_to_data(layer):
    for parameter in layer.kernel.parameters():
        parameter.data.add_(1)


def replace_data(layer):
    for parameter in layer.kernel.parameters():
        parameter.data = parameter.data + 1


def replace_parameters(layer):
    for module in layer.kernel.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(parameter.detach() + 1))


def load_state(layer):
    layer.load_state_dict({name: value + name.startswith("kernel") for name, value in layer.state_dict().items()})


def take_a_step(layer):
    for parameter in layer.kernel.parameters():
        parameter.grad = -torch.ones_like(parameter)
    torch.optim.SGD(layer.kernel.parameters(), lr=1).step()


@pytest.mark.parametrize(
    "change",
    [add_one, add_one_to_data, replace_data, replace_parameters, load_state, take_a_step],
    ids=lambda f: f.__name__,
)
@each_learned
def test_a_changed_parameter_changes_the_output_in_evaluation_too(kernel, change):
    layer, fresh, x = layer_of(PROBLEM, kernel).eval(), layer_of(PROBLEM, kernel), input_of(PROBLEM)
    with torch.no_grad():
        for strategy in STRATEGY_NAMES:
            run_layer(layer, PROBLEM, strategy, x)
    change(layer)
    add_one(fresh)
    for strategy in STRATEGY_NAMES:
        with torch.no_grad():
            got = run_layer(layer, PROBLEM, strategy, x)
        want = run_layer(fresh, PROBLEM, strategy, x)
        assert (got is None) == (want is None)
        assert got is None or torch.allclose(got, want, rtol=0, atol=1e-10)


@each_problem
@each_strategy
@pytest.mark.parametrize("grad", [torch.no_grad, torch.inference_mode])
@each_learned
def test_a_call_without_gradients_leaves_the_next_one_its_gradients(kernel, grad, strategy, problem):
    layer, x = layer_of(problem, kernel).eval(), input_of(problem)
    with grad():
        run_layer(layer, problem, strategy, x)
    y = run_layer(layer, problem, strategy, x)
    if y is not None:
        y.square().sum().backward()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in layer.parameters())


def test_a_changed_attribute_of_a_fixed_kernel_changes_the_output():
    x, cubic = torch.randn(1, 2, 6, 7, dtype=torch.float64), contconv.Cubic(-0.75)
    contconv.continuous_conv(x, cubic, scale=1.5)
    cubic.a = -0.5
    want = contconv.continuous_conv(x, contconv.Cubic(-0.5), scale=1.5)
    torch.testing.assert_close(contconv.continuous_conv(x, cubic, scale=1.5), want)


class Hinge(nn.Module):
    """A user's kernel whose mixing is no parameter of its own: somebody else computes it."""

    kernel_size = (3, 3)

    def __init__(self, mixing):
        super().__init__()
        self.mixing = mixing

    def basis(self, d):
        return torch.stack([d.abs().sum(-1), d.square().sum(-1)], dim=-1)


@each_strategy
def test_a_mixing_that_another_net_computes_gets_its_gradient(strategy):
    x = torch.randn(1, 2, 6, 6, dtype=torch.float64)
    code = torch.randn(3, dtype=torch.float64, requires_grad=True)

    def output(code):
        kernel = Hinge(
            (code[:, None] * torch.arange(3.0 * 2 * 4 * 2, dtype=torch.float64).reshape(3, -1)).sum(0).reshape(2, 4, 2)
        )
        layer = contconv.ContinuousConv2d(2, 4, 3, kernel=kernel, bias=False)
        return run_layer(layer, Problem((6, 6), (3, 3), scale=0.5), strategy, x)

    if output(code) is not None:
        assert torch.autograd.gradcheck(output, code)


class Warped(nn.Module):
    """A user's kernel whose basis depends on a tensor that is no parameter of its own."""

    kernel_size = (3, 3)

    def __init__(self, warp):
        super().__init__()
        self.warp = warp
        self.mixing = nn.Parameter(torch.ones(2, 4, 2, dtype=torch.float64))

    def basis(self, d):
        return torch.cos(d * self.warp)


@each_strategy
def test_a_basis_that_another_net_steers_gets_its_gradient(strategy):
    x = torch.randn(1, 2, 6, 6, dtype=torch.float64)
    warp = torch.rand(2, dtype=torch.float64, requires_grad=True)

    def output(warp):
        layer = contconv.ContinuousConv2d(2, 4, 3, kernel=Warped(warp * 2), bias=False)
        return run_layer(layer, Problem((6, 6), (3, 3), scale=0.5), strategy, x)

    if output(warp) is not None:
        assert torch.autograd.gradcheck(output, warp)


@each_strategy
def test_a_replaced_mixing_is_the_one_that_counts(strategy):
    x, first, second = torch.randn(1, 2, 6, 6), torch.randn(2, 4, 2), torch.randn(2, 4, 2)
    problem = Problem((6, 6), (3, 3), scale=0.5)
    layer = contconv.ContinuousConv2d(2, 4, 3, kernel=Hinge(first), bias=False)
    run_layer(layer, problem, strategy, x)
    layer.kernel.mixing = second
    got = run_layer(layer, problem, strategy, x)
    want = run_layer(contconv.ContinuousConv2d(2, 4, 3, kernel=Hinge(second), bias=False), problem, strategy, x)
    assert (got is None) == (want is None)
    assert got is None or torch.equal(got, want)


class Double(nn.Module):
    def forward(self, value):
        return 2 * value


@each_strategy
def test_a_parametrised_kernel_is_trained_through_its_parametrisation(strategy):
    problem, kernel = STRIDED, KERNEL_CASES["spline"]
    plain, layer, x = layer_of(problem, kernel), layer_of(problem, kernel), input_of(problem)
    parametrize.register_parametrization(layer.kernel, "mixing", Double())
    got, want = run_layer(layer, problem, strategy, x), run_layer(plain, problem, strategy, x)
    assert (got is None) == (want is None)
    if got is not None:
        bias = plain.bias.detach()[:, None, None]
        torch.testing.assert_close(got - bias, 2 * (want - bias))
        original = layer.kernel.parametrizations.mixing.original
        torch.testing.assert_close(
            torch.autograd.grad(got.sum(), original), torch.autograd.grad(2 * want.sum(), plain.kernel.mixing)
        )
