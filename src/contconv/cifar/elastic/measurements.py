"""What is measured on a study's networks: each function returns rows for tables, and repeats nothing."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from contconv.cifar import draws, scale_ensembles
from contconv.cifar.accuracy import accuracy, logits
from contconv.cifar.elastic.consistency import consistencies
from contconv.cifar.elastic.latency import latency_ratios
from contconv.cifar.elastic.study import BATCH, Study
from contconv.cifar.elastic.tuning import Kind
from contconv.cifar.elastic.ways import ORIGINAL, Way, drawn

Row = dict[str, Any]
LATENCY_BATCHES = (1, 100)


def identity(study: Study) -> Row:
    """The original and the converted network on all test images, bit for bit."""

    def measure() -> Row:
        one, other = (logits(model, study.all_images, batch=BATCH) for model in (study.original, study.model))
        return {
            "images": len(one),
            "identical": int((one == other).all(1).sum()),
            "original": accuracy(one, study.test.labels),
            "converted": accuracy(other, study.test.labels),
        }

    return study.store.once("identity", measure)


def measured(study: Study, kind: Kind, after: bool, way: Way, *, every: bool = False, calibrate: bool = False) -> float:
    """The accuracy in one way, on some of the test images or on all."""
    images = study.test if every else study.some
    x = study.all_images[: len(images)]
    return accuracy(study.logits(kind, after, way, x, calibrate=calibrate), images.labels)


def over_scales(study: Study, after: bool, calibrate: bool) -> list[Row]:
    """Accuracies at the original scales, and with one layer or all of them at others."""
    rows = []
    for factor, way in study.turned_ways:
        name = f"scales/{study.label(after)}/{told(calibrate)}/{way.name}/{factor:g}"
        measure = partial(measured, study, "elastic", after, way, calibrate=calibrate)
        rows.append({"factor": factor, **way.described(), "accuracy": study.store.once(name, measure)})
    return rows


def ensembles(study: Study, after: bool, calibrate: bool) -> Row:
    """Ensembles of random scales around the original ones: of these alone, and with the original ones among them."""
    return study.store.once(f"ensembles/{study.label(after)}", partial(_ensembles, study, after, calibrate))


def _ensembles(study: Study, after: bool, calibrate: bool) -> Row:
    settings, labels = study.settings, study.some.labels
    said = partial(study.logits, "elastic", after, x=study.some_images, calibrate=calibrate)
    default = said(ORIGINAL)
    alone: list[list[float]] = []
    joint: dict[str, list[list[float]]] = {"random": [], "with the original": []}
    for draw in range(settings.draws):
        source = draws.generator(settings.seed, "ensembles", draw)
        ways = [
            drawn(study.model, 1 / (1 + settings.spread), 1 + settings.spread, source)
            for _ in range(max(settings.members))
        ]
        passes = [said(way) for way in ways]
        alone.append([accuracy(one, labels) for one in passes])
        joint["random"].append(_joint(passes, labels, settings.members))
        joint["with the original"].append(_joint([default, *passes], labels, settings.members))
    plain = accuracy(default, labels)
    return {
        "default": plain,
        **{
            name: [
                scale_ensembles.row(k, [of[n] for of in found], alone, plain) for n, k in enumerate(settings.members)
            ]
            for name, found in joint.items()
        },
    }


def _joint(passes: list[Tensor], labels: Tensor, members: tuple[int, ...]) -> list[float]:
    sums = torch.stack(passes).cumsum(0)
    return [accuracy(sums[k - 1], labels) for k in members]


def over_budgets(study: Study, after: bool, calibrate: bool) -> list[Row]:
    """Accuracies on all test images for shares of the multiply-adds; resized images go to the original network."""
    rows = []
    for budget, way in study.budget_ways:
        kind: Kind = "resized" if way.side is not None else "elastic"
        name = f"budgets/{study.label(after)}/{told(calibrate)}/{budget:g}/{way.name}"
        measure = partial(measured, study, kind, after, way, every=True, calibrate=calibrate)
        rows.append({"budget": budget, **way.described(), "accuracy": study.store.once(name, measure)})
    return rows


def latencies(study: Study) -> dict[str, dict[str, float]]:
    """By batch size and way: the time over the original network's."""
    ways = {f"{budget:g}/{way.name}": way for budget, way in study.budget_ways}
    measure = partial(latency_ratios, study.original, study.model, ways)
    return {
        str(batch): study.store.once(
            f"latency/{batch}", partial(measure, study.all_images[:batch], study.settings.rounds)
        )
        for batch in LATENCY_BATCHES
    }


def consistency(study: Study, kind: Kind, after: bool, calibrate: bool) -> Row:
    """The accuracy on some images, and the percentage of them that keep their class when shifted."""

    def measure() -> Row:
        kept = consistencies(classes, study.some.pixels, study.settings.shifts, study.settings.seed)
        return {"accuracy": measured(study, kind, after, ORIGINAL, calibrate=calibrate), "consistency": kept}

    def classes(x: Tensor) -> Tensor:
        return study.logits(kind, after, ORIGINAL, x, calibrate=calibrate).argmax(1)

    return study.store.once(f"consistency/{study.label(after)}/{kind}", measure)


def told(calibrate: bool) -> str:
    return "calibrated" if calibrate else "own"
