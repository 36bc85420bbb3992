"""The native kernel as operations of torch: registration, derivatives of derivatives, refusals."""

import pytest
import torch
from cases import CASES, Case, Problem, expected, problem, relative_error

from contconv import native
from contconv.native import library, ops

SMALL = Case(2, (1, 4, 5), (1, 3, 4), (1, 2, 3), (1, 2, 1), (3, 4), rank=2)
SMALL_FILTERS = Case(2, (1, 4, 5), (1, 3, 4), (1, 2, 3), (1, 2, 1), (3, 4), rank=0)
SMALL_PER_TAP = Case(2, (1, 4, 5), (1, 3, 4), (1, 2, 3), (1, 2, 1), (4, 4), groups=2, rank=2, per_tap=True)
EVERY = [
    pytest.param(case, name, id=f"{case}-{name}")
    for case in (SMALL, SMALL_FILTERS, SMALL_PER_TAP)
    for name in case.algorithms()
]


@pytest.mark.parametrize(("case", "algorithm"), EVERY)
def test_opcheck(built: None, case: Case, algorithm: str) -> None:
    p = problem(case)
    x, weights, *mixing, bias = (leaf.clone().requires_grad_() for leaf in p.leaves())
    shared = (*p.tables, weights, mixing[0] if mixing else None)
    code = ops.ALGORITHMS[algorithm]
    torch.library.opcheck(torch.ops.contconv.forward, (x, *shared, bias, p.groups, code))
    grad_y = p.grad_y.clone().requires_grad_()
    for needs in ((True, True, bool(mixing)), (True, False, False)):
        torch.library.opcheck(torch.ops.contconv.backward, (x, grad_y, *shared, p.groups, code, *needs))


def second_derivatives(y: torch.Tensor, leaves: list[torch.Tensor], grad_y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Of a function that bends: of the squares of the first derivatives, and of y itself."""
    first = torch.autograd.grad(y, leaves, grad_y, create_graph=True)
    bent = sum((grad**2).sum() for grad in first[:-1]) + (y**2).sum()
    return torch.autograd.grad(bent, [*leaves, grad_y])


@pytest.mark.parametrize(("case", "algorithm"), EVERY)
def test_double_backward(isa: str, case: Case, algorithm: str) -> None:
    p = problem(case)
    single = [leaf.clone().requires_grad_() for leaf in p.leaves()]
    double = [leaf.double().requires_grad_() for leaf in p.leaves()]

    def split(leaves: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor]:
        return leaves[0], leaves[1], leaves[2] if len(leaves) == 4 else None, leaves[-1]

    x, weights, mixing, bias = split(single)
    y = ops.convolve(x, p.tables, weights, mixing, bias, groups=p.groups, algorithm=algorithm)
    got = second_derivatives(y, single, p.grad_y.clone().requires_grad_())
    x, weights, mixing, bias = split(double)
    y = expected(x, p.tables, weights, mixing, bias, p.groups)
    want = second_derivatives(y, double, p.grad_y.double().requires_grad_())
    for a, b in zip(got, want, strict=True):
        assert relative_error(a, b) < 1e-5


def test_only_the_wanted_gradients_are_computed(isa: str) -> None:
    p = problem(SMALL)
    needs = {"x": p.x, "weights": p.weights, "mixing": p.mixing}
    for wanted in needs:
        flags = [name == wanted for name in needs]
        grads = torch.ops.contconv.backward(p.x, p.grad_y, *p.tables, p.weights, p.mixing, 1, 0, *flags)
        assert [grad.numel() > 0 for grad in grads] == flags


def changed(p: Problem, **changes: object) -> Problem:
    return Problem(**{**p.__dict__, **changes})


def wrong_table(p: Problem, axis: int, entry: tuple[int, int], value: int) -> Problem:
    tables = [table.clone() for table in p.tables]
    tables[axis][entry] = value
    return changed(p, tables=tuple(tables))


REFUSED = {
    "a source beyond the input": (lambda p: wrong_table(p, 1, (2, 1), 4), "outside of the input"),
    "a source below -1": (lambda p: wrong_table(p, 2, (0, 3), -2), "outside of the input"),
    "a phase that is not there": (lambda p: wrong_table(p, 1, (0, 0), 2), "names a phase"),
    "a negative phase": (lambda p: wrong_table(p, 0, (0, 0), -1), "names a phase"),
    "a table of int64": (lambda p: changed(p, tables=tuple(t.long() for t in p.tables)), "table0 must be .* int32"),
    "a double x": (lambda p: changed(p, x=p.x.double()), "x must be float32"),
    "an x of four axes": (lambda p: changed(p, x=p.x[0]), r"x must be \[N, D, H, W, Cin\]"),
    "too many channels": (lambda p: changed(p, x=torch.cat([p.x, p.x], -1)), "does not fit x"),
    "groups that do not divide": (lambda p: changed(p, groups=2), "multiple of groups=2"),
    "a basis of other taps": (lambda p: changed(p, weights=p.weights[:, :, :, 1:]), "weights must be"),
    "a mixing of another rank": (lambda p: changed(p, mixing=p.mixing[1:]), "mixing must be"),
    "a short bias": (lambda p: changed(p, bias=p.bias[1:]), r"bias must be float32 \[4\]"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_fit_is_refused(built: None, what: str) -> None:
    change, message = REFUSED[what]
    p = change(problem(SMALL))
    with pytest.raises(ValueError, match=message):
        ops.convolve(p.x, p.tables, p.weights, p.mixing, p.bias, groups=p.groups)


def test_the_factored_algorithms_refuse_filters(built: None) -> None:
    p = problem(SMALL_FILTERS)
    with pytest.raises(ValueError, match="need a basis"):
        ops.convolve(p.x, p.tables, p.weights, algorithm="factored-output")
    p = problem(next(case for case in CASES if case.groups == 2 and case.rank > 0 and not case.per_tap))
    with pytest.raises(ValueError, match="few-outputs wants one group, not 2"):
        ops.convolve(p.x, p.tables, p.weights, p.mixing, groups=2, algorithm="few-outputs")
    with pytest.raises(ValueError, match="'fast' is not one of filters, "):
        ops.convolve(p.x, p.tables, p.weights, algorithm="fast")


@pytest.mark.parametrize("algorithm", ops.ALGORITHMS)
def test_a_basis_of_no_functions_is_refused(built: None, algorithm: str) -> None:
    p = problem(SMALL)
    with pytest.raises(ValueError, match="weights must have at least one basis function"):
        ops.convolve(p.x, p.tables, p.weights[..., :0], p.mixing[:0], algorithm=algorithm)


def test_a_gradient_of_another_shape_is_refused(built: None) -> None:
    p = problem(SMALL)
    with pytest.raises(ValueError, match="grad_y must be"):
        torch.ops.contconv.backward(p.x, p.grad_y[:1], *p.tables, p.weights, p.mixing, 1, 0, True, True, True)


def test_status_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    assert native.status().endswith(".")
    monkeypatch.setattr(library, "library", lambda: "it was not built")
    assert not native.available()
    assert native.status() == "The native CPU kernel is not available: it was not built."
    p = problem(CASES[0])
    with pytest.raises(RuntimeError, match="is not available: it was not built"):
        ops.convolve(p.x, p.tables, p.weights, p.mixing)
