"""What the layers that nobody asked must do, so that maps that meet have one size."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from contconv.elastic.following import Meeting
from contconv.size import exact

Exponents = dict[str, Fraction]


@dataclass(frozen=True)
class Solution:
    """Which layers are free, and what the others are: a product of powers of the free ones."""

    dependent: Mapping[str, Exponents]

    @property
    def fixed(self) -> set[str]:
        """The layers that cannot have another scale than their own: they meet something that no layer can resize."""
        return {name for name, exponents in self.dependent.items() if not exponents}

    def ratios(self, given: Mapping[str, Fraction], names: Sequence[str]) -> dict[str, Fraction]:
        """The ratio of every layer: as given, as it follows, or 1."""
        ratios = {name: given.get(name, Fraction(1)) for name in names if name not in self.dependent}
        for name, exponents in self.dependent.items():
            ratios[name] = prod((_power(ratios[other], e) for other, e in exponents.items()), start=Fraction(1))
        return ratios


def solution(meetings: Sequence[Meeting], given: Mapping[str, Fraction], follow_first: Sequence[str]) -> Solution:
    """Solve for the layers that are not given; of several that could follow, the first of `follow_first` does.

    Each meeting says that a product of powers of ratios is 1: a linear equation for their logarithms, and so a matter
    of elimination with the exponents, in fractions.
    """
    dependent: dict[str, Exponents] = {}
    order = {name: number for number, name in enumerate(follow_first)}
    for meeting in meetings:
        rest = _substituted({name: Fraction(e) for name, e in meeting.product.items()}, dependent)
        unknown = [name for name in rest if name not in given]
        if not unknown:
            _check(rest, given, meeting)
            continue
        pivot = min(unknown, key=order.__getitem__)
        share = rest.pop(pivot)
        exponents = {name: -e / share for name, e in rest.items()}
        dependent = {name: _substituted(known, {pivot: exponents}) for name, known in dependent.items()}
        dependent[pivot] = exponents
    return Solution(dependent)


def _substituted(exponents: Exponents, dependent: Mapping[str, Exponents]) -> Exponents:
    total: Exponents = {}
    for name, e in exponents.items():
        for other, part in dependent.get(name, {name: Fraction(1)}).items():
            total[other] = total.get(other, Fraction(0)) + e * part
    return {name: e for name, e in total.items() if e}


def _check(exponents: Exponents, given: Mapping[str, Fraction], meeting: Meeting) -> None:
    """What is given alone must fit."""
    product = prod((_power(given[name], e) for name, e in exponents.items()), start=Fraction(1))
    if product == 1:
        return
    layers, factor = ", ".join(sorted(exponents)), f"a factor of {float(product):.4g} ({meeting.place})"
    if meeting.flattened:
        raise ValueError(
            f"scales: with {layers} at these scales, a map that is flattened or cut up would differ from its original "
            f"size by {factor}. Give scales that lead back to it, or pool before (nn.AdaptiveAvgPool2d)"
        )
    raise ValueError(
        f"scales: with {layers} at these scales, maps that meet would differ in size by {factor}, and no converted "
        f"layer between them can follow. Convert one there (of F.max_pool2d make an nn.MaxPool2d, of a slice "
        f"x[:, :, ::2, ::2] an nn.AvgPool2d(1, 2)), or give scales that fit"
    )


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    """Exact for whole exponents, which nearly all are."""
    if exponent.denominator == 1:
        return base**exponent.numerator
    return exact(float(base) ** float(exponent), "scale")
