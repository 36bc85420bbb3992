"""Scale and/or size -> exact scale factors and exact output sizes.

No float survives this room: a float scale becomes the fraction it means, and sizes follow in integer arithmetic,
so that 50 x 1.1 is 55 pixels and 30 x 0.1 is 3.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from numbers import Integral, Rational, Real

Number = float | Fraction
PerAxis = Number | Sequence[Number]
Size = int | Sequence[int]

MEANT_DENOMINATOR = 1000
MEANT_TOLERANCE = Fraction(1, 10**9)


def exact(value: Number, name: str) -> Fraction:
    """The fraction that a number means: 2/3 is 2/3, and a float near no simple fraction is exactly what it is.

    >>> exact(1.1, "scale"), exact(2 / 3, "scale")
    (Fraction(11, 10), Fraction(2, 3))
    """
    if type(value) is Fraction:
        return value
    if type(value) is float and math.isfinite(value):
        return _meant(value)
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a float, an int or a Fraction, got {value!r}")
    if isinstance(value, Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value!r}")
    return _meant(float(value))


@lru_cache(maxsize=4096)
def _meant(value: float) -> Fraction:
    written = Fraction(value)
    simple = written.limit_denominator(MEANT_DENOMINATOR)
    is_meant = abs(simple - written) <= MEANT_TOLERANCE and (simple != 0 or written == 0)
    return simple if is_meant else written


def exact_scale(value: Number, name: str = "scale") -> Fraction:
    """`exact`, and positive.

    >>> exact_scale(0.61)
    Fraction(61, 100)
    """
    scale = exact(value, name)
    if scale.numerator <= 0:
        raise ValueError(f"{name} must be positive, got {value!r}")
    return scale


def plain(value: Number) -> str:
    """A number as a person would write it, in Python that `exact` turns back into the same fraction.

    >>> plain(Fraction(2)), plain(Fraction(1, 2)), plain(Fraction(2, 3)), plain(0.71234)
    ('2', '0.5', '2/3', '0.71234')
    """
    fraction = Fraction(value)
    if fraction.denominator == 1:
        return str(fraction)
    decimal = repr(float(fraction))
    if _meant(float(fraction)) != fraction:
        return repr(fraction)
    return decimal if len(decimal) < 10 or fraction.denominator > MEANT_DENOMINATOR else str(fraction)


def exact_size(value: int, name: str = "size") -> int:
    """A size in pixels: an int of at least one."""
    if type(value) is not int and (isinstance(value, bool) or not isinstance(value, Integral)):
        raise TypeError(f"{name} must be an int, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value!r}")
    return int(value)


def per_axis(value: object, axes: int, name: str) -> tuple[object, ...]:
    """One value for each axis: a sequence as it is, a single value repeated.

    >>> per_axis(3, 2, "kernel_size")
    (3, 3)
    """
    if type(value) is not tuple and (isinstance(value, str | bytes) or not isinstance(value, Sequence)):
        return (value,) * axes
    if len(value) != axes:
        raise ValueError(f"{name} must be one value or {axes} (one per spatial axis), got {len(value)}: {value!r}")
    return tuple(value)


def exact_scales(scale: PerAxis, axes: int) -> tuple[Fraction, ...]:
    """One exact scale per axis."""
    return tuple([exact_scale(s) for s in per_axis(scale, axes, "scale")])  # type: ignore[arg-type]


def exact_sizes(size: Size, axes: int, name: str = "size") -> tuple[int, ...]:
    """One size in pixels per axis."""
    return tuple([exact_size(s, name) for s in per_axis(size, axes, name)])  # type: ignore[arg-type]


def scaled_size(in_size: int, scale: Fraction) -> int:
    """ceil(scale * in_size), exactly.

    >>> scaled_size(50, exact_scale(1.1))
    55
    """
    return -((-in_size * scale.numerator) // scale.denominator)


def scales_and_sizes(
    in_size: Sequence[int], scale: PerAxis | None, size: Size | None
) -> tuple[tuple[Fraction, ...], tuple[int, ...]]:
    """The exact scale and output size of every axis, from either or both of them.

    `scale` alone gives out = ceil(scale * in); `size` alone gives scale = out / in; both are taken as they are.

    >>> scales_and_sizes((50, 30), 1.1, None)
    ((Fraction(11, 10), Fraction(11, 10)), (55, 33))
    """
    axes = len(in_size)
    if scale is None and size is None:
        raise ValueError("scale and size are both None: give scale=, size=, or both")
    if size is None:
        assert scale is not None
        scales = exact_scales(scale, axes)
        return scales, tuple([scaled_size(n, s) for n, s in zip(in_size, scales, strict=True)])
    sizes = exact_sizes(size, axes)
    if scale is None:
        return tuple(Fraction(out, n) for out, n in zip(sizes, in_size, strict=True)), sizes
    return exact_scales(scale, axes), sizes
