"""The figures of `imitate`: kernels against iterations beside the truth, and the course of the fit."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from contconv.experiments.record import Figure

if TYPE_CHECKING:
    from contconv.experiments.imitate import Learned

COLUMNS = 5  # iterations shown


def figures(learned: "Sequence[Learned]") -> tuple[Figure, ...]:
    """Drawn when asked."""
    names = " and ".join(one.target.name for one in learned)
    return (
        Figure(
            "imitate-kernels",
            f"The kernel of one layer (InternalNet 16-16) while it learns to imitate {names} resizing from a single "
            "photo at a single scale, then the true kernel, and the one that a spline of two pieces per pixel "
            "finds in a single solve. Displacements in input pixels; blue is negative. All maps of a row share their "
            "colours.",
            lambda: kernels(learned),
        ),
        Figure(
            "imitate-course",
            "The loss at the photo, and how near the net's kernel is to the true one, over Levenberg-Marquardt steps.",
            lambda: course(learned),
        ),
    )


def kernels(learned: "Sequence[Learned]") -> Any:
    """One row per method: iterations, truth, spline."""
    from matplotlib import pyplot

    width = COLUMNS + 2
    figure, rows = pyplot.subplots(
        len(learned), width, figsize=(1.75 * width, 2.15 * len(learned)), layout="constrained", squeeze=False
    )
    for row, one in zip(rows, learned, strict=True):
        shown = chosen(sorted(one.course))
        panels = [(f"iteration {i}", one.course[i]) for i in shown]
        for place, (title, kernel) in zip(row, panels, strict=False):
            show(place, kernel, one, title)
        for place in row[len(panels) : COLUMNS]:
            place.set_axis_off()
        show(row[COLUMNS], one.true, one, f"true {one.target.name}")
        error = one.numbers["spline"]["relative_error"]
        show(row[COLUMNS + 1], one.spline, one, f"spline, error {error:.1g}")
        row[0].set_ylabel(one.target.name)
        correlation = one.numbers["internal"]["correlation"]
        row[len(panels) - 1].set_title(f"iteration {shown[-1]}, r = {correlation:.3f}", fontsize=8)
    return figure


def chosen(iterations: list[int]) -> list[int]:
    """A few of the iterations: the first, the last, and some between."""
    if len(iterations) <= COLUMNS:
        return iterations
    places = torch.linspace(0, len(iterations) - 1, COLUMNS).round().int().tolist()
    return [iterations[place] for place in places]


def show(place: Any, kernel: Tensor, one: "Learned", title: str) -> None:
    """One kernel in colours around zero."""
    half = one.target.kernel_size / 2
    top = float(one.true.abs().max())
    place.imshow(kernel.numpy(), cmap="RdBu_r", vmin=-top, vmax=top, extent=(-half, half, half, -half))
    place.set_title(title, fontsize=8)
    place.set_xticks([-half, 0, half])
    place.set_yticks([-half, 0, half])
    place.tick_params(labelsize=7)


def course(learned: "Sequence[Learned]") -> Any:
    """Loss and correlation against iterations."""
    from matplotlib import pyplot

    from contconv.experiments.imitate import measured

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.1), layout="constrained")
    for one in learned:
        left.plot(list(one.errors), list(one.errors.values()), label=one.target.name)
        points = [(i, measured(kernel, one.true)["correlation"]) for i, kernel in sorted(one.course.items())]
        right.plot(*zip(*points, strict=True), "o-", markersize=4, label=one.target.name)
    left.set_yscale("log")
    left.set_ylabel("mean squared error")
    right.set_ylabel("correlation with the true kernel")
    right.set_ylim(top=1.02)
    for place in (left, right):
        place.set_xlabel("iteration")
        place.grid(alpha=0.15)
        place.legend(frameon=False)
    return figure
