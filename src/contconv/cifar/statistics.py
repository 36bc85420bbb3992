"""Means, spreads and whether a gain is one: what a table needs, without another library."""

import math
from collections.abc import Sequence
from typing import NamedTuple


class Gain(NamedTuple):
    """Of paired differences: their mean, their standard deviation, and the two-sided p of Student's t-test."""

    mean: float
    std: float
    p: float


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def spread(values: Sequence[float]) -> float:
    """The standard deviation of a sample; of a single value zero."""
    middle = mean(values)
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / max(1, len(values) - 1))


def gain(differences: Sequence[float]) -> Gain:
    """Whether the mean of the differences is zero, by a t-test; one difference alone proves nothing.

    >>> round(gain([1.0, 2.0, 3.0]).p, 4)
    0.0742
    """
    middle, std = mean(differences), spread(differences)
    count = len(differences)
    if count < 2 or middle == 0:
        return Gain(middle, std, 1.0)
    if std == 0:
        return Gain(middle, std, 0.0)
    return Gain(middle, std, student_p(middle / std * math.sqrt(count), count - 1))


def student_p(t: float, freedom: int) -> float:
    """The probability that Student's t is at least |t| in size (finite sums: Abramowitz and Stegun 26.7.3-4)."""
    angle = math.atan(abs(t) / math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = 0.0 if freedom == 1 else term
    for power in range(2 + odd, freedom - 1, 2):
        term *= cosine**2 * (power - 1) / power
        total += term
    within = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return max(0.0, 1 - within)
