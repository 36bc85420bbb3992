"""Whatever the call, it agrees with the oracle or says what is wrong; CONTCONV_FUZZ=long looks longer."""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, inf, nan, prod

import oracle
import pytest
import torch
from hypothesis import event, given
from hypothesis import strategies as st
from problems import (
    KERNEL_CASES,
    PADDING_MODES,
    STRATEGY_NAMES,
    TOLERANCE,
    KernelCase,
    Problem,
    assert_near,
    at_pixels,
    expected,
    layer_of,
    some_pixels,
)
from torch import nn

import contconv

WORK = 100_000  # at most so many output pixels times taps


@dataclass(frozen=True)
class Call:
    problem: Problem
    kernel: KernelCase
    batch: int
    dtype: torch.dtype
    layout: str
    strategy: str | None


def per_axis(values, axes):
    return values | st.tuples(*[values] * axes)


a_scale = (
    st.builds(Fraction, st.integers(1, 50), st.integers(1, 50))
    | st.floats(1 / 50, 50)
    | st.integers(1, 50)
    | st.integers(2, 50).map(lambda k: 1 / k)
    | st.floats(0.5, 2)
)
# Not so near to a pixel that the oracle's floats would call it the same.
a_center = st.just(0) | st.fractions(-3, 3, max_denominator=8) | st.floats(-3, 3).map(lambda c: round(c, 9))


@st.composite
def calls(draw):
    axes = draw(st.integers(1, 3))
    groups = draw(st.integers(1, 3))
    problem = Problem(
        in_size=draw(st.tuples(*[st.integers(1, 9 - 2 * axes)] * axes)),
        kernel_size=draw(st.tuples(*[st.integers(1, 6 - axes)] * axes)),
        scale=draw(st.none() | per_axis(a_scale, axes)),
        size=draw(st.none() | st.tuples(*[st.integers(1, 7)] * axes)),
        channels=(groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 2))),
        groups=groups,
        padding_mode=draw(st.sampled_from(PADDING_MODES)),
        antialias=draw(st.booleans()),
        center=draw(per_axis(a_center, axes)),
        bias=draw(st.booleans()),
    )
    kernel = draw(st.sampled_from(list(KERNEL_CASES.values())))
    return Call(
        affordable(kernel.fitted(problem)),
        kernel,
        batch=draw(st.integers(0, 2)),
        dtype=draw(st.sampled_from(list(TOLERANCE))),
        layout=draw(st.sampled_from(["contiguous", "channels-last", "strided"])),
        strategy=draw(st.none() | st.sampled_from(STRATEGY_NAMES)),
    )


def affordable(problem):
    """The same with scale 1 where nothing is given, few outputs where there would be millions, and no giant kernels."""
    values = {**vars(problem)}
    if problem.scale is None and problem.size is None:
        values["scale"] = 1
    scales, out_size = oracle.scale_and_sizes(problem.in_size, values["scale"], values["size"])
    shrink = [min(s, 1) if problem.antialias else 1 for s in scales]
    taps = prod(ceil(k / s) for k, s in zip(problem.kernel_size, shrink, strict=True))
    if taps > 3000:
        values["antialias"], taps = False, prod(problem.kernel_size)
    if prod(out_size) * taps > WORK:
        values["size"] = tuple(min(n, 3) for n in out_size)
    return Problem(**values)


def laid_out(x, layout):
    if layout == "channels-last":
        return x.movedim(1, -1).contiguous().movedim(-1, 1)
    return torch.stack([x, x], dim=-1)[..., 0] if layout == "strided" else x


@given(calls())
def test_any_call_agrees_with_the_oracle_or_says_what_is_wrong(call):
    problem, kernel = call.problem, call.kernel
    x = laid_out(torch.randn(call.batch, problem.channels[0], *problem.in_size, dtype=call.dtype), call.layout)
    if kernel.per_tap and problem.antialias:
        event("a kernel of taps cannot be stretched")
        with pytest.raises(ValueError, match="antialias"):
            layer_of(problem, kernel, dtype=call.dtype)
        return
    plain = layer_of(problem, kernel, dtype=call.dtype)
    out_size = oracle.scale_and_sizes(problem.in_size, problem.scale, problem.size)[1]
    pixels = some_pixels(out_size, count=8)[:16]
    try:
        want = expected(problem, kernel, plain, x, pixels)
    except oracle.Refused:
        event("reflected too far")
        with pytest.raises(ValueError, match="padding_mode"):
            plain(x, **problem.call)
        return
    layer = layer_of(problem, kernel, strategy=call.strategy, dtype=call.dtype)
    if call.strategy and contconv.explain(plain, x, **problem.call).reasons[call.strategy]:
        event("a strategy with reasons against it")
        with pytest.raises(ValueError, match=f"{call.strategy}.*cannot run"):
            layer(x, **problem.call)
        return
    event("agrees")
    x.requires_grad_()
    y = layer(x, **problem.call)
    assert y.dtype == call.dtype
    assert y.shape == (call.batch, problem.channels[1], *out_size)
    assert_near(at_pixels(y, pixels), want)
    y.mean().backward()
    assert all(t.grad.isfinite().all() for t in (x, *layer.parameters()) if y.numel())


# Arguments, right and wrong. A wrong one is paired with True.


def good(*values):
    return st.sampled_from(values).map(lambda value: (value, False))


def bad(*values):
    return st.sampled_from(values).map(lambda value: (value, True))


def mostly(right, wrong):
    return st.integers(0, 7).flatmap(lambda n: wrong if n == 0 else right)


KERNEL = contconv.SplineKernel(4, 6, (3, 2))
ARGUMENTS = {
    "x": mostly(
        good(
            torch.ones(2, 4, 5, 6), torch.ones(0, 4, 2, 3), torch.ones(1, 4, 1, 1), torch.ones(2, 6, 5, 4).mT.mT[:, :4]
        ),
        bad(
            *(
                torch.ones(shape)
                for shape in [(), (4,), (4, 5, 6), (1, 4, 5, 5, 5), (1, 3, 5, 6), (1, 4, 0, 6), (1, 0, 5, 6)]
            ),
            *(
                torch.ones(1, 4, 5, 6, dtype=dtype)
                for dtype in [torch.int32, torch.bool, torch.complex64, torch.float64]
            ),
            torch.ones(1, 4, 5, 6, device="meta"),
            None,
            [[[[1.0]]]],
            "x",
        ),
    ),
    "kernel": mostly(
        good(KERNEL, contconv.SplineKernel(4, 6, (1, 5))), bad(None, "spline", 3, nn.Linear(2, 2), torch.ones(3))
    ),
    "bias": mostly(
        good(None, torch.ones(6)), bad(torch.ones(5), torch.ones(6).double(), torch.ones(6, 1), 1.0, "bias", [1])
    ),
    "scale": mostly(
        good(1, 0.5, Fraction(2, 3), (1.3, 0.1), [2, 3], 0.02, 17.5),
        bad(
            0,
            -1,
            nan,
            inf,
            -inf,
            "2",
            1j,
            True,
            (1,),
            (1, 2, 3),
            (),
            [],
            torch.tensor(1.0),
            torch.ones(2),
            (1, None),
            {},
        ),
    ),
    "size": mostly(
        good(None, 4, (3, 5), [1, 1], (20, 1)),
        bad(0, -1, 2.5, nan, "3", True, (1,), (1, 2, 3), (), torch.tensor(3), (4, 0), (4, None), {}),
    ),
    "padding_mode": mostly(good("zeros", "replicate", "circular"), bad("same", "", None, 3, ("zeros",), ["zeros"], {})),
    "antialias": good(True, False),
    "center": mostly(
        good(0, 0.3, Fraction(-5, 2), (1, -1.5)), bad(nan, inf, "0", None, 1j, (1,), (1, 2, 3), torch.tensor(0.0))
    ),
    "strategy": mostly(good(None, "reference"), bad("fast", "", 3, ["reference"], {})),
}


@given(st.fixed_dictionaries(ARGUMENTS))
def test_a_wrong_argument_is_named_and_right_ones_give_finite_numbers(drawn):
    arguments = {name: value for name, (value, _) in drawn.items()}
    wrong = [name for name, (_, is_wrong) in drawn.items() if is_wrong]
    if not wrong:
        y = contconv.continuous_conv(**arguments)
        assert y.shape[:2] == (len(arguments["x"]), 6)
        assert y.isfinite().all()
        return
    with pytest.raises((ValueError, TypeError)) as error:
        contconv.continuous_conv(**arguments)
    assert any(name in str(error.value) for name in wrong), error.value
