"""Every strategy gives what the oracle gives, for every kernel and every kind of problem, or says why it cannot."""

from math import prod

import oracle
import pytest
import torch
from problems import (
    FIXED_CASES,
    LEARNED_CASES,
    STRATEGY_NAMES,
    TOLERANCE,
    assert_near,
    at_pixels,
    expected,
    few,
    input_of,
    layer_of,
    pairs,
    run,
    run_layer,
    scales,
    shapes,
    some_pixels,
)

import contconv
from contconv.kernels import FIXED, KERNELS
from contconv.strategies import STRATEGIES

each_strategy = pytest.mark.parametrize("strategy", STRATEGY_NAMES)


def check(problem, kernel):
    """Every strategy is near the oracle, in both dtypes that are trained in, or gives reasons why it cannot run."""
    layer, x = layer_of(problem, kernel), input_of(problem)
    out_size = oracle.scale_and_sizes(problem.in_size, problem.scale, problem.size)[1]
    pixels = some_pixels(out_size, count=max(10, 600 // prod(problem.kernel_size)))
    try:
        want = expected(problem, kernel, layer, x, pixels)
    except oracle.Refused:
        with pytest.raises(ValueError, match="padding_mode"):
            layer(x, **problem.call)
        return
    for dtype in (torch.float64, torch.float32):
        layer, x = layer.to(dtype), x.to(dtype)
        for strategy in STRATEGY_NAMES:
            got = run_layer(layer, problem, strategy, x)
            if got is not None:
                assert got.shape == (2, problem.channels[1], *out_size)
                assert_near(at_pixels(got, pixels), want, about=strategy)


NAMED = {name: case for name, case in LEARNED_CASES.items() if name in KERNELS or name == "table-of-conv"}


@pytest.mark.parametrize(("problem", "kernel"), pairs(shapes(), NAMED), ids=str)
def test_learned_kernels_agree_with_the_oracle_for_every_shape(problem, kernel):
    check(problem, kernel)


# A fixed kernel has its own size and its own groups, so that one of each is enough.
ONE_OF_EACH = [p for p in shapes() if p.groups == 1 and p.kernel_size[0] == 3]


@pytest.mark.parametrize(("problem", "kernel"), pairs(ONE_OF_EACH, FIXED_CASES), ids=str)
def test_fixed_kernels_agree_with_the_oracle_for_every_shape(problem, kernel):
    check(problem, kernel)


@pytest.mark.parametrize(("problem", "kernel"), pairs(scales()), ids=str)
def test_kernels_agree_with_the_oracle_at_every_scale(problem, kernel):
    check(problem, kernel)


@each_strategy
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("problem", "kernel"), pairs(few()), ids=str)
def test_every_dtype_agrees_with_the_oracle(problem, kernel, dtype, strategy):
    x = input_of(problem, dtype=dtype)
    if (got := run(problem, kernel, strategy, x, dtype=dtype)) is not None:
        assert got.dtype == dtype
        assert_near(got, expected(problem, kernel, layer_of(problem, kernel, dtype=dtype), x))


@each_strategy
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(("problem", "kernel"), pairs(few()), ids=str)
def test_gradients_are_those_of_the_reference(problem, kernel, dtype, strategy):
    if run(problem, kernel, strategy, input_of(problem, dtype=dtype), dtype=dtype) is not None:
        want = gradients(problem, layer_of(problem, kernel, strategy="reference"))
        got = gradients(problem, layer_of(problem, kernel, strategy=strategy, dtype=dtype))
        assert got.keys() == want.keys()
        for name in want:
            assert_near(got[name], want[name], about=name)


def gradients(problem, layer) -> dict:
    x = input_of(problem, dtype=layer.bias.dtype).requires_grad_()
    y = layer(x, **problem.call)
    (y * torch.cos(torch.arange(y.numel(), dtype=y.dtype)).reshape(y.shape)).sum().backward()
    return {"x": x.grad, **{name: p.grad for name, p in layer.named_parameters()}}


@each_strategy
def test_every_strategy_runs_somewhere_in_the_catalogue(strategy):
    ran = [run(problem, kernel, strategy, input_of(problem)) is not None for problem, kernel in pairs(few())]
    assert any(ran)


def test_the_reference_is_last_and_refuses_nothing():
    assert STRATEGY_NAMES[-1] == "reference"
    for problem, kernel in pairs(few()):
        assert run(problem, kernel, "reference", input_of(problem)) is not None


def test_a_strategy_is_registered_under_its_own_name():
    assert {name: strategy.name for name, strategy in STRATEGIES.items()} == {name: name for name in STRATEGIES}


def test_every_registered_kernel_has_a_formula_in_the_oracle():
    assert oracle.LEARNED.keys() == KERNELS.keys()
    assert oracle.FIXED.keys() == FIXED.keys()
    assert FIXED.keys() <= FIXED_CASES.keys()


@pytest.mark.parametrize(("problem", "kernel"), pairs(few()), ids=str)
def test_without_a_name_a_strategy_runs_that_has_no_reason_against_it(problem, kernel):
    explained = contconv.explain(layer_of(problem, kernel), input_of(problem), **problem.call)
    assert list(explained.reasons) == STRATEGY_NAMES
    assert explained.reasons[explained.strategy] == []
    assert all(name in str(explained) for name in STRATEGY_NAMES)


@pytest.mark.parametrize("wants_gradient", [False, True])
@pytest.mark.parametrize("kernel", ["internal", "gaussian"])
def test_explain_takes_a_tensor_for_what_it_is(kernel, wants_gradient):
    """Training and inference need not choose alike."""
    x = torch.zeros(1, 3, 8, 7, requires_grad=wants_gradient)
    made = contconv.Gaussian([[2.0, 1.0], [1.0, 2.0]], 4) if kernel == "gaussian" else kernel
    layer = contconv.ContinuousConv2d(3, 3, 4, kernel=made, groups=3 if kernel == "gaussian" else 1)
    assert contconv.explain(layer, x).problem.training == (wants_gradient or kernel == "internal")
    with torch.no_grad():
        assert not contconv.explain(layer, x).problem.training


@pytest.mark.parametrize("kernel", ["internal", "spline"])
@pytest.mark.parametrize(("batch", "side", "scale"), [(8, 7, (1.5, 0.8)), (1, 28, (0.7, 0.83)), (1, 28, (1.3, 0.83))])
def test_channels_that_stay_apart_are_not_factored(kernel, batch, side, scale):
    """Natively, that takes 10 to 20 times as long as filters do: nothing is there to fill the lanes of a vector."""
    layer = contconv.ContinuousConv2d(64, 64, 3, groups=64, kernel=kernel, scale=scale)
    assert contconv.explain(layer, (batch, 64, side, side)).strategy == "phases"
