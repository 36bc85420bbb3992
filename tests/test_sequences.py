"""Sequences of scales are the appendix's."""

from fractions import Fraction
from math import prod

import pytest
import torch

from contconv.sequences import output_sizes, sample_scales

F = Fraction

# The paper's table of examples: scale [H, W] and output shape after each of the eight layers, from 32 x 32.
EXAMPLES = {
    "example 1": [
        ((F(1), F(1)), (32, 32)),
        ((F(5, 6), F(7, 9)), (27, 25)),
        ((F(5, 6), F(4, 5)), (23, 20)),
        ((F(8, 9), F(5, 6)), (20, 17)),
        ((F(189, 250), F(3, 4)), (15, 13)),
        ((F(6, 7), F(6, 7)), (13, 11)),
        ((F(5, 6), F(7, 8)), (11, 10)),
        ((F(3, 4), F(6, 7)), (8, 8)),
    ],
    "example 2": [
        ((F(1), F(1)), (32, 32)),
        ((F(75, 98), F(7, 8)), (25, 28)),
        ((F(4, 5), F(2, 3)), (20, 19)),
        ((F(4, 5), F(3, 4)), (16, 14)),
        ((F(7, 8), F(5, 6)), (14, 12)),
        ((F(5, 6), F(5, 6)), (12, 10)),
        ((F(7, 9), F(864, 875)), (9, 10)),
        ((F(9, 10), F(5, 6)), (8, 8)),
    ],
}


def drawn(n=7, target=0.25, seed=0, **options):
    return sample_scales(n, target, generator=torch.Generator().manual_seed(seed), **options)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_papers_examples_have_the_papers_shapes(example):
    scales, shapes = zip(*EXAMPLES[example], strict=True)
    assert output_sizes((32, 32), scales) == shapes


@pytest.mark.parametrize("target", [1 / 4, F(1, 3), 1, 2, 0.61, F(7, 5)])
@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_the_product_is_exactly_the_target_on_every_axis(n, target, axes):
    for seed in range(20):
        scales = drawn(n, target, seed, axes=axes)
        assert len(scales) == n
        exact = Fraction(target).limit_denominator(1000)
        assert [prod(column) for column in zip(*scales, strict=True)] == [exact] * axes


def test_scales_are_positive_fractions_with_small_denominators_but_for_one_layer_per_axis():
    for seed in range(200):
        for column in zip(*drawn(seed=seed), strict=True):
            assert all(isinstance(s, Fraction) and s > 0 for s in column)
            assert sum(s.denominator > 10 for s in column) <= 1


def test_the_denominator_can_be_chosen():
    for seed in range(50):
        for column in zip(*drawn(seed=seed, max_denominator=3), strict=True):
            assert sum(s.denominator > 3 for s in column) <= 1


def test_without_spread_all_scales_but_one_are_the_fraction_nearest_to_the_root():
    nearest = min({F(k, n) for n in range(1, 11) for k in range(1, n + 1)}, key=lambda s: abs(s - 0.25 ** (1 / 7)))
    for seed in range(10):
        for column in zip(*drawn(std=0, seed=seed), strict=True):
            assert sum(s == nearest for s in column) >= 6


def test_scales_scatter_around_the_root_with_the_given_deviation():
    root = 0.25 ** (1 / 7)
    draws = [
        float(s) for seed in range(400) for layer in drawn(seed=seed, std=0.05, max_denominator=1000) for s in layer
    ]
    deviations = torch.tensor(draws).sub(root).abs().sort().values
    # The median of |normal| is 0.6745 deviations, whatever the one layer in seven that is not normal does to the tail.
    assert deviations[len(draws) // 2].item() == pytest.approx(0.6745 * 0.05, rel=0.2)


def test_every_layer_takes_its_turn_to_fix_the_product():
    fixed = {
        layer for seed in range(300) for layer, (height, _) in enumerate(drawn(seed=seed)) if height.denominator > 10
    }
    assert fixed == set(range(7))


def test_axes_are_drawn_independently():
    assert any(height != width for height, width in drawn())


def test_the_same_generator_draws_the_same_scales():
    assert drawn(seed=5) == drawn(seed=5)
    assert drawn(seed=5) != drawn(seed=6)


def test_a_generator_leaves_the_global_randomness_alone():
    before = torch.get_rng_state()
    drawn()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("in_size", [30, 49, 100])
def test_every_size_is_the_exact_ceil_of_the_product_so_far(in_size):
    for l in range(1, 51):  # noqa: E741
        for k in range(1, 51):
            scales = [(F(k, 7),), (F(7, l),)]
            assert output_sizes(in_size, scales) == ((-(-in_size * k // 7),), (-(-in_size * k // l),))


def test_the_last_size_is_exactly_the_target_however_the_scales_were_drawn():
    for seed in range(100):
        assert output_sizes((32, 64), drawn(seed=seed))[-1] == (8, 16)
