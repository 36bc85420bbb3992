"""Continuous convolution once more, as plain loops: what the package must agree with.

Nothing here is shared with the package. Positions are exact fractions, sums are loops over output pixels and their
neighbours, and a kernel is a function `weight(d, j)` of the displacement `d` and the place `j` of the neighbour in its
window (one number per axis each), which returns an array [Cout, Cin/groups], or a number where channels stay apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from math import ceil, exp, pi, prod, sin

import numpy as np


class Refused(ValueError):
    """The formula has no answer here."""


# Sizes and positions


def meant(value) -> Fraction:
    """The fraction that a number means: a float this close to a simple fraction is that fraction, but never zero."""
    exact = Fraction(value)
    simple = exact.limit_denominator(1000)
    near = isinstance(value, float) and simple != 0 and abs(simple - exact) <= Fraction(1, 10**9)
    return simple if near else exact


def scale_and_size(in_size: int, scale=None, size=None) -> tuple[Fraction, int]:
    """Scale alone: out = ceil(s in). Size alone: s = out / in. Both: both."""
    s = Fraction(size, in_size) if scale is None else meant(scale)
    return s, ceil(s * in_size) if size is None else size


def scale_and_sizes(in_size: tuple[int, ...], scale=None, size=None) -> tuple[tuple[Fraction, ...], tuple[int, ...]]:
    """One scale and one size per axis."""
    each = zip(in_size, per_axis(scale, len(in_size)), per_axis(size, len(in_size)), strict=True)
    return tuple(zip(*(scale_and_size(*axis) for axis in each), strict=True))


def per_axis(value, axes: int) -> tuple:
    return value if isinstance(value, tuple) else (value,) * axes


def projected_grid(in_size: int, scale=None, size=None) -> list[Fraction]:
    """g(i) = i / s + (in - 1) / 2 - (out - 1) / (2 s)"""
    s, out = scale_and_size(in_size, scale, size)
    return [i / s + Fraction(in_size - 1, 2) - (out - 1) / (2 * s) for i in range(out)]


@dataclass
class Axis:
    in_size: int
    kernel_size: int
    grid: list[Fraction]
    stretch: Fraction  # what displacements and weights are multiplied by: s where antialiasing shrinks, else 1

    def neighbours(self, i: int) -> range:
        """Every pixel m with -K/2 < stretch (g - m) <= K/2; these are ceil(g - K/2) and the next where stretch is 1."""
        half = Fraction(self.kernel_size, 2) / self.stretch
        return range(ceil(self.grid[i] - half), ceil(self.grid[i] + half))

    def displacement(self, i: int, m: int) -> Fraction:
        return (self.grid[i] - m) * self.stretch

    def taps(self, padding_mode: str) -> list[list[tuple[int, float, int | None]]]:
        """For each output, of each neighbour: its place in the window, its displacement, the pixel it is read from."""
        return [
            [
                (j, float(self.displacement(i, m)), pixel(m, self.in_size, padding_mode))
                for j, m in enumerate(self.neighbours(i))
            ]
            for i in range(len(self.grid))
        ]


def axis(in_size, kernel_size, scale=None, size=None, antialias=False, center=0) -> Axis:
    s, _ = scale_and_size(in_size, scale, size)
    grid = [g + meant(center) for g in projected_grid(in_size, scale, size)]
    return Axis(in_size, kernel_size, grid, s if antialias and s < 1 else Fraction(1))


def pixel(m: int, in_size: int, padding_mode: str) -> int | None:
    """Where in the image the value at position m comes from; None is a zero."""
    if 0 <= m < in_size:
        return m
    if padding_mode == "zeros":
        return None
    if padding_mode == "replicate":
        return 0 if m < 0 else in_size - 1
    if padding_mode == "circular":
        return m % in_size
    reflected = -m if m < 0 else 2 * (in_size - 1) - m
    if not 0 <= reflected < in_size:
        raise Refused(f"reflecting {m} in {in_size} pixels")
    return reflected


# The four blocks of the paper


def continuous_conv(
    x: np.ndarray,
    weight,
    kernel_size: tuple[int, ...],
    bias: np.ndarray | None = None,
    *,
    scale=None,
    size=None,
    groups: int = 1,
    padding_mode: str = "zeros",
    antialias: bool = False,
    center=0,
    normalize: bool = False,
    pixels: list[tuple[int, ...]] | None = None,
) -> np.ndarray:
    """x [N, Cin, *in] -> [N, Cout, *out], or [N, Cout, len(pixels)] where only some output pixels are asked for."""
    d = len(kernel_size)
    options = zip(x.shape[2:], kernel_size, *(per_axis(v, d) for v in (scale, size, antialias, center)), strict=True)
    axes = [axis(*option) for option in options]
    weight = cache(weight)  # at k/l the same displacements come again and again
    gain = float(prod(a.stretch for a in axes))
    taps = [a.taps(padding_mode) for a in axes]
    chosen = list(product(*map(range, map(len, taps)))) if pixels is None else pixels
    windows = ([along[i] for along, i in zip(taps, n, strict=True)] for n in chosen)
    y = np.stack([output_pixel(x, weight, window, gain, groups, normalize) for window in windows], axis=-1)
    if bias is not None:
        y = y + bias[:, None]
    return y.reshape(*y.shape[:2], *map(len, taps)) if pixels is None else y


def output_pixel(x, weight, window, gain, groups, normalize) -> np.ndarray:
    """[N, Cout]: the sum over the neighbours of an output pixel, one list of taps per axis, of input times weight."""
    total, weights = 0.0, 0.0
    for neighbour in product(*window):
        j, d, source = zip(*neighbour, strict=True)
        w = weight(d, j) * gain
        value = np.zeros(x.shape[:2]) if None in source else x[(..., *source)]
        weights += w
        total = total + times(value, w, groups)
    return total / weights if normalize else total


def times(value: np.ndarray, w, groups: int) -> np.ndarray:
    """[N, Cin] by [Cout, Cin/groups] -> [N, Cout]; each channel by itself where w is a number."""
    if np.ndim(w) == 0:
        return value * w
    out_channels, per_group = w.shape
    value = value.reshape(len(value), groups, per_group)
    products = np.einsum("ngi,goi->ngo", value, w.reshape(groups, out_channels // groups, per_group))
    return products.reshape(len(value), out_channels)


# Learned kernels, from the arrays of a state_dict


def hidden(parameters: dict[str, np.ndarray], d) -> np.ndarray:
    """The internal net up to its last linear layer, and a one for the last bias: [17]."""
    h, k = np.array(d), 0
    while f"layers.{k}.weight" in parameters:
        h = parameters[f"layers.{k}.weight"] @ h + parameters[f"layers.{k}.bias"]
        h, k = np.where(h > 0, h, 0.01 * h), k + 1
    return np.append(h, 1.0)


def internal(parameters, kernel_size):
    """2 -> 16 -> 16 -> Cout Cin, from the displacement."""
    return lambda d, j: np.tensordot(hidden(parameters, d), parameters["mixing"], 1)


def internal_per_tap(parameters, kernel_size):
    """2 -> 16 -> 16 -> Cout Cin K, from where the grid point lies in its window; the taps row by row."""

    def weight(d, j):
        u = [di + ji - (k - 1) / 2 for di, ji, k in zip(d, j, kernel_size, strict=True)]
        tap = np.ravel_multi_index(j, kernel_size)
        return np.tensordot(hidden(parameters, u), parameters["mixing"][tap], 1)

    return weight


def beta3(t: float) -> float:
    """The centred cubic B-spline."""
    t = abs(t)
    if t < 1:
        return 2 / 3 - t**2 + t**3 / 2
    return (2 - t) ** 3 / 6 if t < 2 else 0.0


def spline(parameters, kernel_size):
    """A cubic B-spline with a control point wherever the taps of a convolution would be."""
    return tensor_product_spline(parameters, kernel_size, lambda t, place, k: beta3(t - place))


def folded_spline(parameters, kernel_size):
    """The same, where the first and last taps also have what a basis function has on the two taps beyond them."""

    def basis(t, place, k):
        first, last = t > k / 2 - 1, t <= 1 - k / 2
        taps = [t, *([t + 1, t + 2] if first else []), *([t - 1, t - 2] if last else [])]
        return sum(beta3(tap - place) for tap in taps)

    return tensor_product_spline(parameters, kernel_size, basis)


def tensor_product_spline(parameters, kernel_size, basis):
    def weight(d, j):
        total = 0.0
        for r, control in enumerate(product(*map(range, kernel_size))):
            places = [(k - 1) / 2 - c for k, c in zip(kernel_size, control, strict=True)]
            value = prod(basis(t, place, k) for t, place, k in zip(d, places, kernel_size, strict=True))
            total = total + value * parameters["mixing"][r]
        return total

    return weight


LEARNED = {"internal": internal, "internal-per-tap": internal_per_tap, "spline": spline}


# Fixed kernels


def separable(profile, half: float):
    """The product over axes of a function of one displacement that is zero from half the support on."""
    return lambda d, j: prod(profile(abs(t)) if abs(t) < half else 0.0 for t in d)


def linear():
    return separable(lambda t: 1 - t, half=1)


def cubic(a: float):
    """Keys 1981."""

    def profile(t):
        if t <= 1:
            return (a + 2) * t**3 - (a + 3) * t**2 + 1
        return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a

    return separable(profile, half=2)


def lanczos(n: int):
    def sinc(t):
        return sin(pi * t) / (pi * t) if t else 1.0

    return separable(lambda t: sinc(t) * sinc(t / n), half=n)


def gaussian(covariance: np.ndarray, kernel_size):
    precision = np.linalg.inv(covariance)

    def weight(d, j):
        if any(abs(t) >= k / 2 for t, k in zip(d, kernel_size, strict=True)):
            return 0.0
        return exp(-np.array(d) @ precision @ np.array(d) / 2)

    return weight


def table(taps: np.ndarray):
    """[*K], or a convolution's [Cout, Cin/groups, *K]: each neighbour has its tap, wherever in the window g lies."""
    return lambda d, j: taps[(..., *j)]


FIXED = {"linear": linear, "cubic": cubic, "lanczos": lanczos, "gaussian": gaussian}
