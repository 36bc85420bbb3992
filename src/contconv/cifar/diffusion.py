"""Filters that level out from tap to tap while they learn, as heat does: smooth ones let less through that aliases.

Diffusion is to the slope of a filter what weight decay is to its size. Weight decay steps down the energy of the taps,
diffusion down that of the differences between neighbours: a constant filter stays, one that alternates fades first.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from contconv.kernels import SplineKernel, TapKernel, support
from contconv.kernels.spline import control_points
from contconv.modules import ContinuousConv2d


@dataclass(frozen=True)
class Filters:
    """A parameter that holds taps, [Cout, Cin, *points], or control points, [all points, Cout, Cin]."""

    parameter: Tensor
    points: tuple[int, int]
    """So many along each axis."""
    density: int = 1
    """So many points on a pixel."""

    @torch.no_grad()
    def diffuse(self, time: float) -> None:
        """Let every filter level out for so long, in which what alternates from pixel to pixel shrinks by exp(-4 time).

        >>> filters = Filters(nn.Parameter(torch.tensor([[[[0.0, 3.0, 0.0]]]])), (1, 3))
        >>> filters.diffuse(100)
        >>> filters.parameter.flatten()
        tensor([1.0000, 1.0000, 1.0000], grad_fn=<ViewBackward0>)
        """
        values: Tensor = self.parameter
        if values.ndim == 3:
            values = values.movedim(0, -1).unflatten(-1, self.points)
        for axis, count in enumerate(self.points, start=2):
            mixed = values.movedim(axis, -1) @ leveling(count, time * self.density**2).to(values)
            values.copy_(mixed.movedim(-1, axis))


def leveling(count: int, time: float) -> Tensor:
    """[count, count]: what so many numbers in a row become in that time, with nothing lost at the ends.

    >>> leveling(2, 0.5) @ torch.tensor([1.0, -1.0])  # by exp(-1)
    tensor([ 0.3679, -0.3679])
    """
    difference = torch.diff(torch.eye(count), dim=0)  # [count - 1, count]
    return torch.linalg.matrix_exp(-time * difference.mT @ difference)


def filters_of(model: nn.Module) -> list[Filters]:
    """Those of all convolutional layers; refuses a kernel whose parameters are no points of the filter."""
    found = []
    for name, module in model.named_modules():
        if not isinstance(module, nn.Conv2d | ContinuousConv2d):
            continue
        kernel = module.kernel if isinstance(module, ContinuousConv2d) else module
        if isinstance(kernel, nn.Conv2d | TapKernel):
            height, width = kernel.weight.shape[2:]
            found.append(Filters(kernel.weight, (height, width)))
        elif isinstance(kernel, SplineKernel):
            height, width = (len(control_points(size, kernel.density)) for size in support(kernel, 2))
            found.append(Filters(kernel.mixing, (height, width), kernel.density or 1))
        else:
            raise ValueError(
                f"diffusion is for kernels made of taps or of control points (taps, spline), got {name} with {kernel!r}"
            )
    return found


def diffusing(model: nn.Module, rates: Sequence[float]) -> list[tuple[Filters, float]]:
    """The filters that level out, and how fast: `rates` has one number for all layers, one for each, or none."""
    if not any(rates):
        return []
    found = filters_of(model)
    if len(rates) not in (1, len(found)):
        raise ValueError(
            f"diffusion must be one number, or {len(found)}, one for each convolutional layer; got {len(rates)}"
        )
    each = rates if len(rates) > 1 else [*rates] * len(found)
    return [(filters, rate) for filters, rate in zip(found, each, strict=True) if rate > 0]
