"""The projected grid is the paper's, in fractions, and so are the neighbours."""

from fractions import Fraction
from math import sqrt

import oracle
import pytest

import contconv
from contconv.grid import axis_plan
from contconv.size import scales_and_sizes

CALLS = [
    {"scale": 1},
    {"scale": 0.5},
    {"scale": Fraction(1, 3)},
    {"scale": 2 / 3},
    {"scale": 1.5},
    {"scale": 7},
    {"scale": sqrt(0.5)},
    {"scale": 0.02},
    {"size": 4},
    {"size": 19},
    {"scale": 0.5, "size": 9},
    {"scale": 2, "size": 1},
]
SIZES = [1, 2, 5, 6, 30]


@pytest.mark.parametrize("call", CALLS, ids=str)
@pytest.mark.parametrize("in_size", SIZES)
def test_the_grid_is_the_formulas(in_size, call):
    assert list(contconv.projected_grid(in_size, **call)) == oracle.projected_grid(in_size, **call)


@pytest.mark.parametrize("call", CALLS, ids=str)
@pytest.mark.parametrize("in_size", SIZES)
def test_the_grid_is_centred_on_the_input(in_size, call):
    grid = contconv.projected_grid(in_size, **call)
    assert grid[0] + grid[-1] == in_size - 1


def test_half_scale_falls_between_pixels_and_a_third_falls_on_them():
    assert contconv.projected_grid(6, scale=0.5) == (Fraction(1, 2), Fraction(5, 2), Fraction(9, 2))
    assert contconv.projected_grid(9, scale=1 / 3) == (1, 4, 7)


def test_positions_are_fractions():
    assert all(isinstance(g, Fraction) for g in contconv.projected_grid(5, scale=0.61))


def test_a_tuple_of_sizes_gives_a_grid_per_axis():
    one, other = contconv.projected_grid((5, 8), scale=(2, 0.5))
    assert one == contconv.projected_grid(5, scale=2)
    assert other == contconv.projected_grid(8, scale=0.5)


@pytest.mark.parametrize(("k", "l"), [(1, 1), (2, 3), (3, 2), (5, 7), (4, 1)])
def test_at_scale_k_over_l_the_grid_repeats_after_k_outputs(k, l):  # noqa: E741
    grid = contconv.projected_grid(23, scale=Fraction(k, l))
    assert all(later - g == l for g, later in zip(grid, grid[k:], strict=False))


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("center", [0, Fraction(-1, 2), Fraction(7, 3)])
@pytest.mark.parametrize("kernel_size", [1, 2, 3, 4])
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_a_plan_has_the_oracles_neighbours_and_displacements(call, kernel_size, center, antialias):
    (scale,), (out,) = scales_and_sizes((6,), call.get("scale"), call.get("size"))
    plan = axis_plan(6, out, scale, kernel_size, Fraction(center), antialias)
    axis = oracle.axis(6, kernel_size, call.get("scale"), call.get("size"), antialias, center)
    for i in range(out):
        row, inside = plan.offset[plan.phase[i]], plan.inside[plan.phase[i]]
        got = {plan.first[i] + j: d for j, d in enumerate(row) if inside[j]}
        assert got == {m: axis.displacement(i, m) for m in axis.neighbours(i)}


@pytest.mark.parametrize("k", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("kernel_size", [1, 2, 3, 4])
def test_scale_one_over_k_has_one_phase_whatever_the_sizes(k, kernel_size):
    for in_size in range(1, 20):
        for out in range(1, 9):
            assert axis_plan(in_size, out, Fraction(1, k), kernel_size).phases == 1


@pytest.mark.parametrize(("k", "l"), [(2, 3), (3, 2), (5, 7), (4, 1)])
def test_scale_k_over_l_has_k_phases(k, l):  # noqa: E741
    assert axis_plan(40, 20, Fraction(k, l), 3).phases == k


def test_a_plan_is_made_once():
    assert axis_plan(6, 3, Fraction(1, 2), 3) is axis_plan(6, 3, Fraction(1, 2), 3)
