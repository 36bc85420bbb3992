"""The figures of `generalize`: errors over training, the kernels, and photos at scales never seen."""

from collections.abc import Sequence
from math import log10
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from contconv.experiments import targets
from contconv.experiments.record import Figure
from contconv.functional import continuous_conv
from contconv.kernels import InternalNet

if TYPE_CHECKING:
    from contconv.experiments.generalize import Trained

UNSEEN = ((0.37, 0.83), (0.9, 1.21), (1.13, 0.87))
FLOOR = 1e-12  # errors below are drawn here


def figures(image: Tensor, free: "Sequence[Trained]", half: "Sequence[Trained]") -> tuple[Figure, ...]:
    """Drawn when asked."""
    return (
        Figure(
            "generalize-curves",
            "Training and test errors (mean over seeds, the band is their range) from one random pair of scales "
            f"and from scale 1/2, and the kernels that came out. Errors below {FLOOR:g} are drawn there.",
            lambda: curves(free, half),
        ),
        Figure(
            "generalize-photos",
            "The photo at scales that the layer never saw: by bicubic interpolation, by the layer trained at "
            "one random pair of scales, and by the layer trained at 1/2.",
            lambda: photos(image, free[0], half[0]),
        ),
    )


def net_of(one: "Trained") -> InternalNet:
    """The trained kernel."""
    net = InternalNet(1, 1, (4, 4), dtype=torch.float64)
    net.load_state_dict(one.parameters)
    return net


def curves(free: "Sequence[Trained]", half: "Sequence[Trained]") -> Any:
    """Both pairs of curves, each with the first seed's kernel beside it."""
    from matplotlib import pyplot

    figure, places = pyplot.subplots(
        1, 4, figsize=(11, 3), layout="constrained", gridspec_kw={"width_ratios": [1.5, 1, 1.5, 1]}
    )
    shown = sorted({iteration for one in (*free, *half) for iteration in one.train})
    for number, (trainings, title) in enumerate(((free, "trained at one random scale pair"), (half, "trained at 1/2"))):
        place, beside = places[2 * number], places[2 * number + 1]
        for name, marker in (("train", "o-"), ("test", "s--")):
            iterations, low, mean, high = band([getattr(one, name) for one in trainings], shown)
            (line,) = place.plot(iterations, mean, marker, markersize=3, label=name)
            place.fill_between(iterations, low, high, alpha=0.2, color=line.get_color(), linewidth=0)
        place.set_yscale("log")
        place.set_title(title, fontsize=9)
        place.set_xlabel("iteration")
        place.grid(alpha=0.15)
        place.legend(frameon=False)
        kernel_map(beside, trainings[0])
        beside.set_title(f"its kernel (seed {trainings[0].seed})", fontsize=9)
    places[0].set_ylabel("mean squared error")
    return figure


def band(
    courses: Sequence[dict[int, float]], iterations: list[int]
) -> tuple[list[int], list[float], list[float], list[float]]:
    """Iterations, with the least, geometric mean and greatest error; a course that ended stays where it is."""
    columns = []
    for iteration in iterations:
        last = [course[max(i for i in course if i <= iteration)] for course in courses]
        columns.append([max(value, FLOOR) for value in last])
    means = [10 ** (sum(log10(v) for v in column) / len(column)) for column in columns]
    return iterations, [min(column) for column in columns], means, [max(column) for column in columns]


def kernel_map(place: Any, one: "Trained") -> None:
    from contconv import plot

    plot.kernel(net_of(one), ax=place, limit=1.0)
    place.set_xticks([-2, 0, 2])
    place.set_yticks([-2, 0, 2])


def photos(image: Tensor, free: "Trained", half: "Trained") -> Any:
    """Rows of unseen scales, columns of methods."""
    from matplotlib import pyplot

    height, width = image.shape[2:]
    top, left = height // 4, width // 3
    part = image[:, :, top : top + 130, left : left + 200]
    aspects = [part.shape[2] * tall / (part.shape[3] * wide) for tall, wide in UNSEEN]
    figure, rows = pyplot.subplots(
        len(UNSEEN), 3, figsize=(9, 3 * sum(aspects) + 0.9), layout="constrained", height_ratios=aspects
    )
    for row, scale in zip(rows, UNSEEN, strict=True):
        pair = targets.BICUBIC.applied(part, scale)
        named = f"{scale[0]:g} x {scale[1]:g}"
        show(row[0], pair.y, f"bicubic, scale {named}")
        for place, one, label in ((row[1], free, "random scale"), (row[2], half, "1/2")):
            with torch.no_grad():
                made = continuous_conv(
                    pair.x, net_of(one), scale=pair.scale, size=pair.size, center=pair.center, padding_mode="replicate"
                )
            error = (made - pair.y).square().mean().item()
            show(place, made, f"trained at {label}: {-10 * log10(max(error, 1e-20)):.0f} dB")
    return figure


def show(place: Any, image: Tensor, title: str) -> None:
    """[C, 1, H, W] as a picture."""
    shown = image[:, 0].movedim(0, -1).clamp(0, 1).numpy()
    place.imshow(shown if shown.shape[-1] == 3 else shown[..., 0], cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    place.set_title(title, fontsize=8)
    place.set_xticks([])
    place.set_yticks([])
