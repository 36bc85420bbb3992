"""Sequences of scales for networks of several continuous layers: drawing them, and the sizes they lead to."""

from collections.abc import Sequence
from fractions import Fraction
from math import prod

import torch

from contconv.size import Number, Size, exact, exact_scale, exact_sizes
from contconv.tracing import ratio

Scales = tuple[tuple[Fraction, ...], ...]


def sample_scales(
    n: int,
    target: Number,
    *,
    axes: int = 2,
    std: float = 0.1,
    max_denominator: int = 10,
    generator: torch.Generator | None = None,
) -> Scales:
    """n random scales per axis whose product is exactly `target`: one tuple per layer, one scale per axis in it.

    As in the paper's appendix: each is drawn from a normal distribution around target^(1/n) and moved to the nearest
    fraction of denominator <= max_denominator; then one layer, drawn at random, takes what is left. The axes are
    independent. The appendix gives a standard deviation of 0.01, but its own examples (2/3 and 9/10 around 0.82) need
    about 0.1, which is a *variance* of 0.01: hence the default.

    >>> scales = sample_scales(7, 1 / 4, generator=torch.Generator().manual_seed(0))
    >>> prod(height for height, width in scales)
    Fraction(1, 4)
    """
    exact_sizes(n, 1, "n")
    exact_sizes(axes, 1, "axes")
    exact_sizes(max_denominator, 1, "max_denominator")
    whole = exact_scale(target, "target")
    if exact(std, "std") < 0:
        raise ValueError(f"std must be at least 0, got {std!r}")
    mean = float(whole) ** (1 / n)
    columns = []
    for _ in range(axes):
        draws = (mean + std * torch.randn(n, generator=generator, dtype=torch.float64)).tolist()
        column = [
            max(Fraction(draw).limit_denominator(max_denominator), Fraction(1, max_denominator)) for draw in draws
        ]
        free = int(torch.randint(n, (), generator=generator))
        column[free] = whole / prod(column[:free] + column[free + 1 :])
        columns.append(column)
    return tuple(zip(*columns, strict=True))


def output_sizes(in_size: Size, scales: Sequence[Sequence[Number]]) -> tuple[tuple[int, ...], ...]:
    """The size after every layer: ceil(in * product of the scales so far), exactly; one tuple per layer.

    Every layer's size comes from the input, not from the layer before, so that roundings do not pile up; pass both to
    the layer: `layer(x, scale=scale, size=size)`.

    >>> output_sizes((32, 32), [(Fraction(5, 6), Fraction(7, 9)), (Fraction(5, 6), Fraction(4, 5))])
    ((27, 25), (23, 20))
    """
    if not all(isinstance(layer, Sequence) for layer in scales):
        raise TypeError(f"scales must be a sequence of layers, each with one scale per axis, got {scales!r}")
    if len({len(layer) for layer in scales}) != 1:
        raise ValueError(f"scales must have at least one layer, and as many axes in each, got {scales!r}")
    axes = len(scales[0])
    traced = torch.compiler.is_compiling() and isinstance(in_size, Sequence)
    sizes = tuple(in_size) if traced else exact_sizes(in_size, axes, "in_size")  # type: ignore[arg-type]
    products = [(1, 1)] * axes
    shapes = []
    for layer in scales:
        ratios = [ratio(s) for s in layer]
        products = [(n * r[0], d * r[1]) for (n, d), r in zip(products, ratios, strict=True)]
        shapes.append(tuple(-((-size * n) // d) for size, (n, d) in zip(sizes, products, strict=True)))
    return tuple(shapes)
