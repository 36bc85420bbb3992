"""A call of `continuous_conv` while torch.export looks on: torch's own operations only, for a life without Python."""

from collections.abc import Sequence
from fractions import Fraction

import torch
from torch import Tensor

from contconv.kernels import Kernel, traits
from contconv.size import PerAxis, Size
from contconv.strategies import STRATEGIES, Problem, Strategy
from contconv.strategies.contraction import contracted
from contconv.tracing.flexible import flexible_axis, flexible_conv
from contconv.tracing.graph import ratio


def has_symbols(x: Tensor) -> bool:
    """Whether a spatial size of x is a symbol."""
    return any(isinstance(size, torch.SymInt) for size in x.shape[2:])


class Contracted:
    """`factored` in one piece."""

    run = staticmethod(contracted)


def exportable(problem: Problem) -> Strategy | type[Contracted]:
    """The first strategy that is made of torch's own operations."""
    for name in ("conv", "separable"):
        if not STRATEGIES[name].why_not(problem):
            return STRATEGIES[name]
    return STRATEGIES["reference"] if problem.per_tap else Contracted


def exported_flexibly(
    x: Tensor, kernel: Kernel, bias: Tensor | None, *, scale: PerAxis | None, size: Size | None, padding_mode: str,
    antialias: bool, center: Sequence[Fraction], kernel_size: Sequence[int],
) -> Tensor:  # fmt: skip
    """An input of any size, at a fixed scale."""
    axes = x.ndim - 2
    if scale is None:
        raise ValueError(
            "size= alone makes the scale depend on a dynamic input size: export with scale=, or fix the size"
        )
    if antialias and traits(kernel).per_tap:
        raise ValueError("antialias=True needs a kernel of the displacement; this kernel has one mixing per tap")
    scales = [Fraction(*ratio(s)) for s in (scale if isinstance(scale, Sequence) else (scale,) * axes)]
    sizes = [None] * axes if size is None else size if isinstance(size, Sequence) else [size] * axes
    plans = [
        flexible_axis(n, scaled(n, s) if out is None else out, s, k, c, antialias, padding_mode, x.device)
        for n, s, out, k, c in zip(x.shape[2:], scales, sizes, kernel_size, center, strict=True)
    ]
    return flexible_conv(x, kernel, bias, plans, kernel_size)


def scaled(in_size: int, scale: Fraction) -> int:
    """ceil(scale * in_size) without a negative number, whose division ONNX would round the other way."""
    return (in_size * scale.numerator + scale.denominator - 1) // scale.denominator
