"""Numbers as people type them: 0.61x1.37, 2/3, 300x400."""

import re
from fractions import Fraction
from typing import TypeVar

from contconv.size import exact_scale

T = TypeVar("T")


def scales(text: str, axes: int) -> tuple[Fraction, ...]:
    """One scale per axis, from "2/3" (all the same) or "0.61x1.37" (height x width).

    >>> scales("2/3", 2), scales("0.61x2", 2)
    ((Fraction(2, 3), Fraction(2, 3)), (Fraction(61, 100), Fraction(2, 1)))
    """
    parts = re.split(r"[x,]", text.lower())
    try:
        # A decimal of few digits is the fraction it says; a long one goes the way of a float in the library.
        given = [exact_scale(Fraction(part) if "/" in part else float(part)) for part in parts]
    except (ValueError, ZeroDivisionError) as error:
        raise ValueError(f"--scale must be positive numbers such as 0.5, 2/3 or 0.61x1.37, got {text!r}") from error
    return per_axis(tuple(given), axes, "--scale", text)


def sizes(text: str, axes: int | None, name: str) -> tuple[int, ...]:
    """Sizes in pixels, from "300x400" (height x width)."""
    parts = re.split(r"[x,]", text.lower())
    if not all(re.fullmatch(r"\d+", part) and int(part) > 0 for part in parts):
        raise ValueError(f"{name} must be sizes in pixels such as 300x400 (height x width), got {text!r}")
    given = tuple(int(part) for part in parts)
    return given if axes is None else per_axis(given, axes, name, text)


def per_axis(given: tuple[T, ...], axes: int, name: str, text: str) -> tuple[T, ...]:
    """One for all, or one for each."""
    if len(given) not in (1, axes):
        raise ValueError(f"{name} must have one number or {axes} (one per axis), got {text!r}")
    return given * axes if len(given) == 1 else given
