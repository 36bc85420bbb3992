"""First and second derivatives are right for the input, the bias and every parameter of every kernel."""

import pytest
import torch
from problems import (
    KERNEL_CASES,
    LEARNED_CASES,
    STRATEGY_NAMES,
    Problem,
    assert_near,
    few,
    input_of,
    layer_of,
    pairs,
    run,
)
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call


def differentiable(problem, kernel, strategy):
    """The layer as a function of its input and all its parameters, and where to evaluate it."""
    layer = layer_of(problem, kernel, strategy=strategy)
    names = [name for name, _ in layer.named_parameters()]
    tensors = [input_of(problem, batch=1), *(p.detach().clone() for p in layer.parameters())]

    def function(x, *parameters):
        return functional_call(layer, dict(zip(names, parameters, strict=True)), (x,), problem.call)

    return function, tuple(t.requires_grad_() for t in tensors)


@pytest.mark.parametrize("strategy", STRATEGY_NAMES)
@pytest.mark.parametrize(("problem", "kernel"), pairs(few()), ids=str)
def test_derivatives_along_random_directions(problem, kernel, strategy):
    if run(problem, kernel, strategy, input_of(problem)) is not None:
        function, tensors = differentiable(problem, kernel, strategy)
        assert gradcheck(function, tensors, fast_mode=True)
        assert gradgradcheck(function, tensors, fast_mode=True)


TINY = Problem((3, 4), (2, 3), scale=0.5, channels=(2, 2))


@pytest.mark.parametrize("strategy", STRATEGY_NAMES)
@pytest.mark.parametrize("kernel", ["spline", "waves", "cubic"])
def test_derivatives_element_by_element(kernel, strategy):
    kernel = KERNEL_CASES[kernel]
    problem = kernel.fitted(TINY)
    if run(problem, kernel, strategy, input_of(problem)) is not None:
        function, tensors = differentiable(problem, kernel, strategy)
        assert gradcheck(function, tensors)
        assert gradgradcheck(function, tensors)


@pytest.mark.parametrize("strategy", STRATEGY_NAMES)
@pytest.mark.parametrize(("problem", "kernel"), pairs(few()), ids=str)
def test_second_derivatives_in_float32_are_those_in_float64(problem, kernel, strategy):
    """Finite differences need float64; a strategy may compute float32 in another way."""
    if run(problem, kernel, strategy, input_of(problem).float(), dtype=torch.float32) is not None:
        got = second_derivatives(problem, layer_of(problem, kernel, strategy=strategy, dtype=torch.float32))
        want = second_derivatives(problem, layer_of(problem, kernel, strategy="reference"))
        for one, other in zip(got, want, strict=True):
            assert_near(one, other, 1e-4)


def second_derivatives(problem, layer) -> list:
    """Of a cubic function of the output."""
    x = input_of(problem, dtype=layer.bias.dtype).requires_grad_()
    inputs = [x, *layer.parameters()]
    first = torch.autograd.grad(layer(x, **problem.call).pow(3).sum(), inputs, create_graph=True)
    return torch.autograd.grad(sum(g.square().sum() for g in first), inputs)


@pytest.mark.parametrize("kernel", LEARNED_CASES.values(), ids=str)
def test_frozen_parameters_get_no_gradient_and_the_input_still_does(kernel):
    problem = kernel.fitted(TINY)
    layer, x = layer_of(problem, kernel).requires_grad_(False), input_of(problem).requires_grad_()
    layer(x, **problem.call).sum().backward()
    assert x.grad is not None
    assert all(p.grad is None for p in layer.parameters())


@pytest.mark.parametrize("strategy", STRATEGY_NAMES)
@pytest.mark.parametrize("kernel", KERNEL_CASES.values(), ids=str)
def test_a_plan_made_without_gradients_serves_training_afterwards(kernel, strategy):
    problem = kernel.fitted(Problem((4, 5), (3, 2), scale=0.5, channels=(2, 2), center=0.125))
    x = input_of(problem)
    with torch.inference_mode():
        run(problem, kernel, strategy, x)
    y = run(problem, kernel, strategy, x.requires_grad_())
    if y is not None:
        assert torch.autograd.grad(y.sum(), x)[0].isfinite().all()


@pytest.mark.parametrize("strategy", STRATEGY_NAMES)
@pytest.mark.parametrize("kernel", ["linear", "spline"])
def test_where_nothing_of_the_input_is_seen_its_gradient_is_zero(kernel, strategy):
    kernel = KERNEL_CASES[kernel]
    problem = kernel.fitted(Problem((3, 2), (2, 3), scale=1, center=(0, -9), channels=(2, 2), bias=False))
    x = input_of(problem).requires_grad_()
    y = run(problem, kernel, strategy, x)
    if y is not None:
        (gradient,) = torch.autograd.grad(y.sum(), x)
        assert torch.equal(gradient, torch.zeros_like(x))
