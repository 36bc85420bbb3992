"""The tables of the report, as rows of text."""

from typing import Any

from contconv.cifar.claims import ACCURACY, EQUIVARIANCE, accuracies, spoken
from contconv.cifar.cost import Timed
from contconv.cifar.groups import Group
from contconv.cifar.statistics import mean
from contconv.experiments.record import machine
from contconv.experiments.report_words import spoken_machine

Table = dict[str, Any]


def accuracy_table(found: list[Group]) -> Table:
    head = ["network", "parameters", "epochs", "seeds", "test accuracy", "the paper (400 epochs)"]
    rows = [
        [
            group.label, f"{group.first['parameters'] / 1e6:.2f} M", str(group.recipe.get("epochs", "?")),
            ", ".join(group.seeds), spoken(accuracies(group), " %"),
            f"{ACCURACY[group.model]} %" if group.model in ACCURACY else "-",
        ]
        for group in found
    ]  # fmt: skip
    images = found[0].first["results"]["images"]
    return {"caption": f"Accuracy on {images} test images, at the default scales.", "head": head, "rows": rows}


def equivariance_tables(found: list[Group]) -> list[Table]:
    """Similarities beside the paper's, after ReLU, centred and of other images, consistency of classes, and what other
    borders give."""
    measured = found[0].first["results"]["equivariance"]
    labels = [group.label for group in found]
    similar, after, centred, others, same, borders = (list[list[str]]() for _ in range(6))
    for inputs, rows in measured.items():
        for largest in rows:
            shift = [inputs, f"±{largest}"]
            similarity, relu, without_means, other, consistency = (
                [mean(group.equivariance(inputs, largest, figure)) for group in found]
                for figure in ("similarity", "after_relu", "centred", "others", "consistency")
            )
            row = [*shift, *(f"{value:.3f}" for value in similarity)]
            if inputs not in EQUIVARIANCE:
                borders.append(row)
                continue
            paper = EQUIVARIANCE[inputs].get(largest)
            similar.append([*row, "-" if paper is None else f"{paper[0]:.2f} -> {paper[1]:.2f}"])
            for table, values in ((after, relu), (centred, without_means), (others, other)):
                table.append([*shift, *(f"{value:.3f}" for value in values)])
            same.append([*shift, *(f"{value:.1f}" for value in consistency)])
    count = min(found[0].first["settings"]["images"], found[0].first["results"]["images"])
    return [
        {
            "caption": f"Cosine similarity of the last layer's output (mean over {count} images and seeds). Beyond the "
            "border of images lies their reflection, beyond that of noise more noise; the paper does not say what it "
            "took.",
            "head": ["input", "shift", *labels, "the paper: ConvNet -> CCNet"],
            "rows": similar,
        },
        *(
            {"caption": caption, "head": ["input", "shift", *labels], "rows": rows}
            for caption, rows in (
                ("The same of what its ReLU leaves.", after),
                (
                    "The same of the output without what it has in common for all images: the mean of each channel "
                    "over images and pixels is taken off before maps are compared.",
                    centred,
                ),
                (
                    "For comparison, the similarity of the outputs for two different images, which should not be "
                    "similar.",
                    others,
                ),
                ("Consistency: the percentage of images that keep their class when they are shifted.", same),
                (
                    "Cosine similarity with other content beyond the border: black pixels, as in the crops of "
                    "training, or the image around the corner.",
                    borders,
                ),
            )
        ),
    ]


def ensemble_table(found: list[Group]) -> list[Table]:
    """Accuracy and gains for each number of members, one line for each seed."""
    rows, images = [], 0
    for group in found:
        for seed, one in zip(group.seeds, group.evaluations, strict=True):
            curve = one["results"]["ensemble"]
            images = curve["images"] if curve else images
            for row in curve["members"] if curve else []:
                gains = [row[name] for name in ("over_one", "over_members", "over_default")]
                spoken_gains = [f"{gain['mean']:+.2f} (p = {gain['p']:.2g})" for gain in gains]
                accuracy = f"{row['mean']:.2f} ± {row['std']:.2f} %"
                rows.append([group.label, seed, str(row["k"]), accuracy, *spoken_gains, f"{curve['default']:.2f} %"])
    if not rows:
        return []
    caption = (
        f"Ensembles of k random sequences on {images} test images: accuracy over the draws, gains over the first of "
        "their sequences, over the mean of their members alone, and over the default sequence. p is that of a paired "
        "t-test over the draws, against no gain."
    )
    head = ["network", "seed", "k", "accuracy", "over one sequence", "over its members", "over the default", "default"]
    return [{"caption": caption, "head": head, "rows": rows}]


def cost_tables(found: list[Group], steps: list[Timed]) -> list[Table]:
    """Steps that were timed by turns, and the epochs of networks whose course is known."""
    base = next((step for step in steps if not step.agreeing and step.label in convnets(found)), None)
    timed = [
        [
            step.name, f"{1000 * step.seconds:.0f} ms", str(step.batch), step.precision,
            f"{step.seconds / step.batch / (base.seconds / base.batch):.2f}" if base else "-",
        ]
        for step in steps
    ]  # fmt: skip
    courses = [
        [name, f"{mean(seconds):.1f} s"]
        for group in found
        for name, agreeing in ((group.label, False), (f"{group.label}, with agreement", True))
        if (seconds := group.epoch_seconds(agreeing=agreeing))
    ]
    by_turns = (
        "The median step of training (augmentation, new scales, optimizers), networks by turns in one process, on "
        f"{spoken_machine(machine())}."
    )
    as_run = (
        "The median epoch of a run (mean over seeds), without tests and without pauses. Runs at other hours, on other "
        "machines or beside other work do not compare."
    )
    of_base = f"an image, times {base.label}'s" if base else "times ConvNet's"
    tables: list[Table] = [
        {"caption": by_turns, "head": ["network", "a step", "images", "precision", of_base], "rows": timed},
        {"caption": as_run, "head": ["network", "an epoch, as it was run"], "rows": courses},
    ]
    return [table for table in tables if table["rows"]]


def convnets(found: list[Group]) -> list[str]:
    return [group.label for group in found if group.model == "convnet"]
