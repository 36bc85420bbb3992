"""The pictures of the report: training curves, filters, equivariance, ensembles."""

import textwrap
from typing import Any

import torch

from contconv.cifar.claims import EQUIVARIANCE
from contconv.cifar.groups import Group
from contconv.cifar.statistics import mean
from contconv.experiments.record import Figure

PAPER_COLUMNS = {"convnet": 0, "ccnet": 1}


def in_lines(label: str) -> str:
    """For a legend, which a long label would make wider than the plot."""
    return textwrap.fill(label, 40)


def training_curves(found: list[Group]) -> tuple[Figure, ...]:
    """Losses and accuracies over epochs, if any course is known."""
    if not any(one["course"] for group in found for one in group.evaluations):
        return ()
    caption = "Training: the loss and the test accuracy after each epoch that was tested, one line for each seed."
    return (Figure("cifar-training", caption, lambda: draw_training(found)),)


def draw_training(found: list[Group]) -> Any:
    from matplotlib import pyplot

    figure, places = pyplot.subplots(1, 2, figsize=(10.5, 3.9), layout="constrained")
    for number, group in enumerate(found):
        for seed, one in enumerate(group.evaluations):
            style = {"color": f"C{number}", "label": None if seed else in_lines(group.label), "linewidth": 1.2}
            for place, name, factor in ((places[0], "loss", 1), (places[1], "test_accuracy", 100)):
                rows = [row for row in one["course"] if row.get(name) is not None]
                marker = "o" if name == "test_accuracy" else ""
                heights = [factor * row[name] for row in rows]
                place.plot([row["epoch"] for row in rows], heights, marker=marker, markersize=3, **style)
    for place, name in zip(places, ("training loss", "test accuracy (%)"), strict=True):
        place.set_xlabel("epoch")
        place.xaxis.get_major_locator().set_params(integer=True)
        place.set_ylabel(name)
        place.grid(alpha=0.15)
    places[0].legend(frameon=False)
    return figure


def filters(found: list[Group]) -> tuple[Figure, ...]:
    caption = (
        "The strongest filters of the first layer, in colours: the three taps by three of a convolution, and the "
        "continuous filters over the same support. Grey is zero."
    )
    return (Figure("cifar-filters", caption, lambda: draw_filters(found)),)


def draw_filters(found: list[Group]) -> Any:
    from matplotlib import pyplot

    columns = max(len(group.first["first_kernels"]["filters"]) for group in found)
    figure = pyplot.figure(figsize=(10.5, 1.3 * len(found)), layout="constrained")
    for part, group in zip(figure.subfigures(len(found), 1, squeeze=False)[:, 0], found, strict=True):
        part.suptitle(group.label, fontsize=9, x=0.004, horizontalalignment="left")
        row = part.subplots(1, columns, squeeze=False)[0]
        taps = torch.tensor(group.first["first_kernels"]["filters"])  # [filters, 3, K, K]
        for place in row:
            place.axis("off")
        for place, one in zip(row, taps, strict=False):
            coloured = 0.5 + 0.5 * one / one.abs().max().clamp(min=1e-12)
            place.imshow(coloured.permute(1, 2, 0).numpy())
    return figure


def equivariance_curves(found: list[Group]) -> tuple[Figure, ...]:
    caption = (
        "Cosine similarity of the last convolutional layer's maps of an image and of the shifted image, shifted back, "
        "over the largest shift; dotted, the paper's figures."
    )
    return (Figure("cifar-equivariance", caption, lambda: draw_equivariance(found)),)


def draw_equivariance(found: list[Group]) -> Any:
    from matplotlib import pyplot

    figure, places = pyplot.subplots(1, 2, figsize=(10.5, 3.9), sharey=True, layout="constrained")
    for place, (inputs, paper) in zip(places, EQUIVARIANCE.items(), strict=True):
        for number, group in enumerate(found):
            shifts = list(group.first["results"]["equivariance"][inputs])
            heights = [mean(group.equivariance(inputs, largest)) for largest in shifts]
            place.plot([int(n) for n in shifts], heights, marker="o", color=f"C{number}", label=in_lines(group.label))
            place.set_xticks([int(n) for n in shifts])
        for model, column in PAPER_COLUMNS.items():
            heights = [row[column] for row in paper.values()]
            marker = "x" if model == "convnet" else "+"
            label = f"the paper's {'baseline' if model == 'convnet' else 'CC-net'}"
            place.plot([int(n) for n in paper], heights, ":", marker=marker, color="gray", label=label)
        place.set_title("CIFAR-10 images" if inputs == "images" else "Gaussian noise", fontsize=9)
        place.set_xlabel("largest shift (pixels)")
        place.grid(alpha=0.15)
    places[0].set_ylabel("cosine similarity")
    places[0].legend(frameon=False, fontsize=8)
    return figure


def ensemble_curves(found: list[Group]) -> tuple[Figure, ...]:
    """Accuracy over members, if there is a network that takes scales."""
    if not any(group.first["results"]["ensemble"] for group in found):
        return ()
    caption = (
        "The accuracy of ensembles over their number of random sequences of scales (mean and standard deviation over "
        "draws, one line for each seed); dashed, the default sequence alone."
    )
    return (Figure("cifar-ensembles", caption, lambda: draw_ensembles(found)),)


def draw_ensembles(found: list[Group]) -> Any:
    from matplotlib import pyplot

    figure, place = pyplot.subplots(figsize=(7, 3.9), layout="constrained")
    for number, group in enumerate(found):
        for seed, one in enumerate(group.evaluations):
            curve = one["results"]["ensemble"]
            if curve is None:
                continue
            rows = curve["members"]
            style: dict[str, Any] = {"color": f"C{number}", "label": None if seed else in_lines(group.label)}
            means, stds = ([row[name] for row in rows] for name in ("mean", "std"))
            place.errorbar([row["k"] for row in rows], means, stds, marker="o", markersize=4, capsize=3, **style)
            place.set_xticks([row["k"] for row in rows])
            place.axhline(curve["default"], linestyle="--", linewidth=0.9, color=f"C{number}")
    place.set_xlabel("sequences in the ensemble")
    place.set_ylabel("test accuracy (%)")
    place.grid(alpha=0.15)
    place.legend(frameon=False)
    return figure
