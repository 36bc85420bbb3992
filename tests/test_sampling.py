"""Kernels on plans: axes are sampled apart where they can be, and nothing large is kept."""

from fractions import Fraction

import pytest
import torch

from contconv.grid import axis_plan
from contconv.kernels import SplineKernel, TapKernel, sampling

CPU = torch.device("cpu")
SCALE = Fraction(6789, 10000)
PRODUCTS = {
    "spline": lambda size: SplineKernel(2, 3, size),
    "folded": lambda size: SplineKernel(2, 3, size, fold=True),
    "dense": lambda size: SplineKernel(2, 3, size, density=2),
    "taps": lambda size: TapKernel(2, 3, size),
    "nearest": lambda size: TapKernel(2, 3, size, interpolation="nearest"),
}


def plan(*sizes, in_size=40, antialias=False):
    out_size = int(in_size * SCALE)
    return tuple(axis_plan(in_size, out_size, SCALE, size, Fraction(0), antialias) for size in sizes)


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("sizes", [(4,), (3, 4), (2, 3, 2)], ids=str)
@pytest.mark.parametrize("kernel", PRODUCTS.values(), ids=PRODUCTS)
def test_axes_sampled_apart_are_the_basis_to_the_last_bit(kernel, sizes, antialias, monkeypatch):
    kernel, axes = kernel(sizes), plan(*sizes, in_size=24, antialias=antialias)
    apart = sampling.sampled_basis(kernel, axes, CPU)
    monkeypatch.setattr(sampling, "is_product", lambda kernel: False)
    assert torch.equal(apart, sampling.sampled_basis(kernel, axes, CPU))


def test_axes_are_sampled_apart_unless_a_basis_was_overridden(monkeypatch):
    asked = []

    class Doubled(SplineKernel):
        def basis(self, d):
            asked.append(d.shape)
            return 2 * super().basis(d)

    axes = plan(3, 3)
    plain, doubled = SplineKernel(2, 3, (3, 3)), Doubled(2, 3, (3, 3))
    want = 2 * sampling.sampled_basis(plain, axes, CPU)
    assert torch.equal(sampling.sampled_basis(doubled, axes, CPU), want)
    assert len(asked) == 1
    monkeypatch.setattr(plain, "basis", lambda d: 2 * SplineKernel.basis(plain, d))
    assert torch.equal(sampling.sampled_basis(plain.train(), axes, CPU), want)


def test_displacements_are_kept_where_they_are_small():
    small, large = plan(3, 3, in_size=12), plan(3, 3, in_size=160)
    for axes, is_kept in ((small, True), (large, False)):
        first, second = (sampling._displacements(axes, torch.float32, CPU) for _ in range(2))
        assert torch.equal(first, second)
        assert (first.data_ptr() == second.data_ptr()) == is_kept
