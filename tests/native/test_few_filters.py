"""Windows as plans make them: cells, bands, patches with padding; the gradient of x, gathered or scattered."""

from fractions import Fraction

import pytest
import torch
from cases import layer_gradients, relative_error

import contconv
from contconv.native import library
from contconv.strategies import engine

SCALES = [
    (Fraction(2, 3), Fraction(2, 3)),  # gathered: two outputs send to every input pixel, along each axis
    (Fraction(3, 4), Fraction(1, 3)),
    (Fraction(5, 6), Fraction(4, 5)),
    (2, Fraction(3, 2)),
    (Fraction(2, 9), Fraction(1, 5)),  # pixels between the windows, to which nothing is sent
]


@pytest.mark.parametrize("padding_mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("scale", SCALES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize(
    ("batch", "channels", "groups", "kernel_size", "size"),
    [
        (1, (3, 32), 1, 3, (61, 40)),
        (5, (17, 23), 1, 4, (23, 26)),
        (2, (36, 40), 2, 3, (20, 33)),
        (40, (8, 8), 1, 5, (9, 7)),
        (24, (3, 20), 1, 3, (31, 17)),  # few input channels: all gradients in one pass
        (24, (9, 40), 1, 3, (31, 17)),
        (2, (64, 64), 1, 3, (20, 22)),  # filters larger than the images
    ],
)
def test_all_gradients_are_those_of_float64(isa, padding_mode, scale, batch, channels, groups, kernel_size, size):
    torch.manual_seed(0)
    layer = contconv.ContinuousConv2d(*channels, kernel_size, groups=groups, padding_mode=padding_mode, kernel="spline")
    x = torch.randn(batch, channels[0], *size)
    results = []
    for dtype in (torch.float32, torch.float64):
        layer.to(dtype)
        leaves = [x.to(dtype).requires_grad_(), *layer.parameters()]
        y = layer(leaves[0], scale=scale)
        sent = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
        results.append([y, *torch.autograd.grad(y, leaves, sent)])
    have, want = results
    assert relative_error(have[0], want[0]) < 2e-6
    assert max(relative_error(*pair) for pair in zip(have[1:], want[1:], strict=True)) < 1e-5


@pytest.mark.parametrize("channels", [(3, 20), (9, 40)], ids=["all windows in a strip", "one"])
def test_gradients_depend_neither_on_threads_nor_on_what_else_is_wanted(isa, threads, channels):
    torch.manual_seed(0)
    layer, x = contconv.ContinuousConv2d(*channels, 3), torch.randn(24, channels[0], 31, 29)

    torch.set_num_threads(1)
    want = layer_gradients(layer, x, Fraction(2, 3))
    torch.set_num_threads(2)
    for wanted in ("", "x", "mixing"):
        for name, gradient in layer_gradients(layer, x, Fraction(2, 3), wanted).items():
            assert torch.equal(gradient, want[name]), (wanted, name)


def test_what_one_call_leaves_behind_does_not_show_in_the_next(isa):
    """Scratch memory is used again, and never cleared as a whole."""
    assert library.available()
    layer = contconv.ContinuousConv2d(5, 7, 3, kernel="spline")
    x = torch.randn(3, 5, 30, 31, requires_grad=True)
    spoiled = torch.full((3, 5, 41, 37), float("nan"), requires_grad=True)

    def results(of, scale):
        y = layer(of, scale=scale)
        return [y, *torch.autograd.grad(y.sum(), [of, *layer.parameters()])]

    for scale in ((Fraction(2, 3), Fraction(2, 3)), (Fraction(5, 6), Fraction(3, 4)), (0.6789, 0.7123)):
        before = results(x, scale)
        results(spoiled, scale)
        assert all(torch.equal(a, b) for a, b in zip(before, results(x, scale), strict=True))


@pytest.mark.parametrize(
    ("batch", "scale", "made"),
    [
        (50, (Fraction(7, 8), Fraction(6, 7)), True),
        (4, (Fraction(7, 8), Fraction(6, 7)), False),  # the filters are larger than the images
        (50, (Fraction(12, 13), Fraction(13, 14)), False),  # there are too many
    ],
)
def test_filters_are_made_before_the_call_where_they_are_small_beside_the_batch(batch, scale, made):
    layer = contconv.ContinuousConv2d(32, 32, 3)
    problem = contconv.explain(layer, torch.zeros(batch, 32, 64, 64), scale=scale).problem
    assert engine.plan_of(problem, "filters").filters == made
