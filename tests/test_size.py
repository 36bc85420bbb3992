"""Output sizes are exact."""

import random
from fractions import Fraction

import pytest

import contconv
from contconv.size import scales_and_sizes


def out_size(in_size, scale):
    return scales_and_sizes((in_size,), scale, None)[1][0]


@pytest.mark.parametrize(
    ("in_size", "scale", "size"),
    [
        (50, 1.1, 55),
        (30, 0.1, 3),
        (10, 0.3, 3),
        (100, 1.15, 115),
        (3, 1 / 3, 1),
        (49, 1 / 49, 1),
        (7, 0.5, 4),
        (4, 1.4, 6),
    ],
)
def test_a_float_is_the_decimal_that_was_written(in_size, scale, size):
    assert out_size(in_size, scale) == size
    assert len(contconv.projected_grid(in_size, scale=scale)) == size


def test_fifty_thousand_simple_fractions_written_as_floats_have_exact_sizes():
    draw = random.Random(0)
    for _ in range(50_000):
        n, k, l = draw.randint(1, 5000), draw.randint(1, 5000), draw.randint(1, 1000)  # noqa: E741
        assert out_size(n, k / l) == -(-n * k // l), (n, k, l)


def test_fifty_thousand_other_floats_are_what_they_are():
    draw = random.Random(1)
    for _ in range(50_000):
        n, scale = draw.randint(1, 5000), draw.uniform(0.01, 50)
        simple = Fraction(scale).limit_denominator(1000)
        meant = simple if abs(simple - Fraction(scale)) <= Fraction(1, 10**9) else Fraction(scale)
        assert out_size(n, scale) == -(-n * meant.numerator // meant.denominator), (n, scale)


@pytest.mark.parametrize("scale", [Fraction(1001, 1000_000_007), Fraction(10**9 + 1, 10**9)])
def test_a_fraction_is_never_rounded(scale):
    assert scales_and_sizes((10**9,), scale, None) == ((scale,), (-(-(10**9) * scale.numerator // scale.denominator),))


@pytest.mark.parametrize("scale", [1e-12, 1e-10, 5e-10, 1e-9, 1e-300])
def test_a_tiny_scale_is_not_zero_and_leaves_one_pixel(scale):
    assert out_size(5, scale) == 1


def test_two_thirds_is_two_thirds():
    assert scales_and_sizes((9,), 2 / 3, None) == ((Fraction(2, 3),), (6,))


def test_size_alone_means_the_ratio_of_sizes():
    assert scales_and_sizes((50, 30), None, (20, 45)) == ((Fraction(2, 5), Fraction(3, 2)), (20, 45))


def test_scale_and_size_are_independent():
    assert scales_and_sizes((50, 30), (0.5, 2), (7, 11)) == ((Fraction(1, 2), 2), (7, 11))


def test_one_scale_serves_every_axis():
    assert scales_and_sizes((4, 5, 6), 0.5, None)[1] == (2, 3, 3)
