"""The measurements as tables."""

from typing import Any

from contconv.cifar.elastic.tuning import Kind

Row = dict[str, Any]
Table = dict[str, Any]
WAYS = ("early", "middle", "late", "even")
LABELS: dict[tuple[Kind, bool], str] = {
    ("resized", False): "ResNet, as trained (converted: the same)",
    ("elastic", True): "converted, fine-tuned with random scales inside",
    ("resized", True): "ResNet, fine-tuned on resized images",
    ("blurpool", False): "ResNet with BlurPool, not fine-tuned",
    ("blurpool", True): "ResNet with BlurPool, fine-tuned",
}


def identity_table(found: Row) -> Table:
    row = [
        str(found["images"]), f"{found['original']:.2f} %", f"{found['converted']:.2f} %",
        f"{found['identical']} of {found['images']}",
    ]  # fmt: skip
    head = ["test images", "accuracy, original", "accuracy, converted", "images with identical logits"]
    return {"caption": "The converted network at its own scales.", "head": head, "rows": [row]}


def budget_table(found: Row) -> Table:
    """A line for each budget and way: what it costs, and the accuracy before and after fine-tuning."""
    states = list(found["budgets"])
    rows = []
    for number, first in enumerate(found["budgets"][states[0]]):
        key = f"{first['budget']:g}/{first['way']}"
        times = [f"{of[key]:.2f}" for of in found["latency"].values()]
        accuracies = [f"{found['budgets'][state][number]['accuracy']:.2f}" for state in states]
        rows.append([f"{first['budget']:g}", spoken_way(first), f"{first['share']:.2f}", *times, *accuracies])
    batches = [f"time, batch {batch}" for batch in found["latency"]]
    caption = (
        f"Accuracy [%] on all {found['identity']['images']} test images within shares of the original's multiply-adds; "
        "times over the original's, medians of runs by turns."
    )
    return {"caption": caption, "head": ["budget", "way", "multiply-adds", *batches, *states], "rows": rows}


def spoken_way(row: Row) -> str:
    if row["side"] is not None:
        return f"image {row['side']}x{row['side']}"
    sizes = " ".join(str(size[0]) for size in row["sizes"].values())
    return f"inside, {row['way']} ({sizes})" if sizes else "as it is"


def scales_table(found: Row) -> Table:
    """A line for each factor, a column for each way and state."""
    states = found["scales"]
    one = {state: next(row["accuracy"] for row in rows if row["way"] == "original") for state, rows in states.items()}
    by = {
        (state, row["way"], row["factor"]): f"{row['accuracy']:.1f} ({row['share']:.2f})"
        for state, rows in states.items()
        for row in rows
    }
    factors = sorted({row["factor"] for rows in states.values() for row in rows if row["way"] != "original"})
    rows = [[f"{f:g}", state, *(by[state, way, f] for way in WAYS)] for f in factors for state in states]
    own = ", ".join(f"{state} {value:.1f}" for state, value in one.items())
    caption = (
        f"Accuracy [%] on {found['images']} test images (multiply-adds in brackets) with the scale of one layer, or of "
        f"all three, multiplied by a factor. At the original scales: {own}."
    )
    return {"caption": caption, "head": ["factor", "", *WAYS], "rows": rows}


def ensemble_table(found: Row) -> Table:
    rows = []
    for state, one in found["ensembles"].items():
        for random, joined in zip(one["random"], one["with the original"], strict=True):
            rows.append([state, str(random["k"]), *(cell for row in (random, joined) for cell in gained(row))])
    defaults = ", ".join(f"{state} {one['default']:.2f} %" for state, one in found["ensembles"].items())
    caption = (
        f"Ensembles of k passes on {found['images']} test images, each pass with other random scales inside, or the "
        "first of them with the original ones; mean and deviation over draws, gains over the original scales alone "
        f"({defaults})."
    )
    head = ["", "k", "random scales", "gain", "with the original ones", "gain"]
    return {"caption": caption, "head": head, "rows": rows}


def gained(row: Row) -> tuple[str, str]:
    gain = row["over_default"]
    return f"{row['mean']:.2f} ± {row['std']:.2f} %", f"{gain['mean']:+.2f} (p = {gain['p']:.2g})"


def consistency_table(found: Row) -> Table:
    shifts = list(next(iter(found["consistency"].values()))["consistency"])
    rows = [
        [label, f"{one['accuracy']:.2f} %", *(f"{one['consistency'][shift]:.1f} %" for shift in shifts)]
        for label, one in found["consistency"].items()
    ]
    caption = (
        f"How many of {found['images']} test images keep their class when they are shifted by up to so many pixels "
        "along each axis (reflected at the border)."
    )
    return {"caption": caption, "head": ["network", "accuracy", *(f"±{shift}" for shift in shifts)], "rows": rows}


def tables(found: Row) -> dict[str, Table]:
    """All that there are measurements for."""
    makers = {
        "identity": identity_table, "scales": scales_table, "ensembles": ensemble_table, "budgets": budget_table,
        "consistency": consistency_table,
    }  # fmt: skip
    return {
        name: make(found["identity"] if name == "identity" else found)
        for name, make in makers.items()
        if found.get(name)
    }
