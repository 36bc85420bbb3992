"""The native kernel computes what the float64 einsum computes, in every form, algorithm and instruction set."""

from dataclasses import replace

import pytest
import torch
from cases import CASES, Case, Problem, expected, problem, relative_error

from contconv.native import ops

EVERY = [pytest.param(case, name, id=f"{case}-{name}") for case in CASES for name in case.algorithms()]


def native_y(p: Problem, algorithm: str, leaves: list[torch.Tensor] | None = None) -> torch.Tensor:
    x, weights, *mixing, bias = p.leaves() if leaves is None else leaves
    mixing = mixing[0] if mixing else None
    return ops.convolve(x, p.tables, weights, mixing, bias, groups=p.groups, algorithm=algorithm)


def native_gradients(p: Problem, algorithm: str) -> tuple[torch.Tensor, ...]:
    leaves = [leaf.clone().requires_grad_() for leaf in p.leaves()]
    return torch.autograd.grad(native_y(p, algorithm, leaves), leaves, p.grad_y)


def float64_y(p: Problem, leaves: list[torch.Tensor]) -> torch.Tensor:
    x, weights, *mixing, bias = leaves
    return expected(x, p.tables, weights, mixing[0] if mixing else None, bias, p.groups)


@pytest.mark.parametrize(("case", "algorithm"), EVERY)
def test_output_and_gradients_are_those_of_the_einsum(isa: str, case: Case, algorithm: str) -> None:
    p = problem(case)
    leaves = [leaf.double().requires_grad_() for leaf in p.leaves()]
    want = float64_y(p, leaves)
    assert relative_error(native_y(p, algorithm), want.detach()) < 2e-6
    for got, wanted in zip(
        native_gradients(p, algorithm), torch.autograd.grad(want, leaves, p.grad_y.double()), strict=True
    ):
        assert relative_error(got, wanted) < 1e-5


@pytest.mark.parametrize(("case", "algorithm"), EVERY)
def test_results_depend_neither_on_threads_nor_on_the_run(isa: str, threads: None, case: Case, algorithm: str) -> None:
    p = problem(case)
    results = []
    for count in (1, 2, 2):
        torch.set_num_threads(count)
        results.append((native_y(p, algorithm), *native_gradients(p, algorithm)[:-1]))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("algorithm", ops.ALGORITHMS)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_and_inf_reach_every_output_that_reads_them(isa: str, algorithm: str, value: float) -> None:
    p = problem(Case(2, (1, 7, 9), (1, 5, 8), (1, 3, 3), (1, 2, 3), (5, 7)))
    p.x[1, 0, 3, 4, 2] = value
    want = float64_y(p, [leaf.double() for leaf in p.leaves()])
    got = native_y(p, algorithm)
    assert not want.isfinite().all()
    assert torch.equal(got.isfinite(), want.isfinite())


@pytest.mark.parametrize("algorithm", ops.ALGORITHMS)
def test_a_zero_basis_does_not_hide_a_nan(isa: str, algorithm: str) -> None:
    p = problem(Case(1, (1, 4, 4), (1, 4, 4), (1, 1, 1), (1, 1, 1), (3, 3)))
    p.x.fill_(float("nan"))
    p.weights.zero_()
    reads_input = (p.tables[1][:, 1] >= 0)[:, None] & (p.tables[2][:, 1] >= 0)[None]
    assert torch.equal(native_y(p, algorithm)[0, 0, :, :, 0].isnan(), reads_input)


@pytest.mark.parametrize("algorithm", ops.ALGORITHMS)
def test_non_contiguous_input_gives_the_same(isa: str, algorithm: str) -> None:
    p = problem(CASES[0])
    scattered = p.x.permute(4, 3, 2, 1, 0).contiguous().permute(4, 3, 2, 1, 0)
    assert not scattered.is_contiguous()
    assert torch.equal(native_y(p, algorithm), native_y(p, algorithm, [scattered, *p.leaves()[1:]]))


@pytest.mark.parametrize(
    ("rank", "algorithm", "out_channels"),
    [(0, "filters", 8), (0, "filters", 64), (17, "factored-output", 8), (17, "factored-input", 8)],
)
def test_a_long_sum_stays_accurate(isa: str, rank: int, algorithm: str, out_channels: int) -> None:
    p = problem(Case(1, (1, 9, 9), (1, 4, 4), (1, 7, 7), (1, 1, 1), (256, out_channels), rank=rank))
    want = float64_y(p, [leaf.double() for leaf in p.leaves()])
    assert relative_error(native_y(p, algorithm), want) < 2e-6


@pytest.mark.parametrize("algorithm", ["factored-output", "factored-input"])
def test_classes_that_come_again_in_another_band_are_added_up(isa: str, threads: None, algorithm: str) -> None:
    """As many phases as outputs, of which only the first is used: bands must not be worked on at the same time."""
    size = 128
    windows = torch.arange(size)[:, None] + torch.arange(-1, 2)
    table = ops.axis_table(windows.where(windows < size, -1).clamp_min(-1), torch.zeros(size, dtype=torch.long))
    p = problem(Case(1, (1, size, 9), (1, size, 9), (1, 3, 1), (1, size, 1), (16, 8), rank=5))
    p = replace(p, tables=(p.tables[0], table, p.tables[2]))
    torch.set_num_threads(1)
    alone = native_gradients(p, algorithm)
    torch.set_num_threads(8)
    for _ in range(5):
        again = native_gradients(p, algorithm)
        assert all(torch.equal(a, b) for a, b in zip(alone[:-1], again[:-1], strict=True))
