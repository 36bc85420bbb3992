"""The report of evaluations, like that of the single-layer experiments: claims, tables, figures, numbers."""

import json
from pathlib import Path
from typing import Any

from contconv import files
from contconv.cifar import claims, equivariance, figures, tables
from contconv.cifar.cost import Timed, of_groups
from contconv.cifar.evaluated import Record
from contconv.cifar.groups import Group, groups
from contconv.experiments.drawing import drawn
from contconv.experiments.record import Claim, Figure, plain
from contconv.experiments.report import copy_figures, markdown
from contconv.experiments.report_html import html
from contconv.experiments.report_words import statement

SUBJECT = "the paper's CIFAR-10 networks"
STATEMENTS = {
    "accuracy": "A network of continuous layers that shrinks in small steps is as accurate as the same network with "
    "two strided convolutions.\n\nBoth have eight convolutional layers and three fully connected ones (the paper's "
    "appendix), and are trained by the same recipe; the continuous one with other internal scales at each step.",
    "equivariance": equivariance.__doc__ or "",
    "ensembles": "One trained network, applied with several sequences of internal scales, is better than with one.\n\n"
    "The logits of k passes are averaged, each pass with a random sequence of seven scales whose product is 1/4.",
    "cost": "An epoch of the continuous network takes little longer than one of the strided network.",
}


def pictures(found: list[Group]) -> dict[str, tuple[Figure, ...]]:
    """The figures of each subject."""
    return {
        "accuracy": (*figures.training_curves(found), *figures.filters(found)),
        "equivariance": figures.equivariance_curves(found),
        "ensembles": figures.ensemble_curves(found),
        "cost": (),
    }


def records(found: list[Group], steps: list[Timed]) -> list[Record]:
    """One record per subject, in the form of `experiments.record.saved`, with tables. steps: timed by turns."""
    evaluations = [one for group in found for one in group.evaluations]
    trained = sum(row.get("seconds") or 0 for one in evaluations for row in one["course"])
    subjects: dict[str, tuple[list[Claim], list[tables.Table], float]] = {
        "accuracy": (claims.accuracy_claims(found), [tables.accuracy_table(found)], spent(evaluations, "accuracy")),
        "equivariance": (
            claims.equivariance_claims(found), tables.equivariance_tables(found), spent(evaluations, "equivariance"),
        ),
        "ensembles": (claims.ensemble_claims(found), tables.ensemble_table(found), spent(evaluations, "ensemble")),
        "cost": (claims.cost_claims(found, steps), tables.cost_tables(found, steps), trained),
    }  # fmt: skip
    drawings = pictures(found)
    first = found[0].first
    return [
        {
            "experiment": name,
            "statement": statement(STATEMENTS[name]),
            "command": "; ".join(dict.fromkeys(one["command"].replace(one["source"], "RUN") for one in evaluations)),
            "config": {**first["settings"], "networks": {group.label: group.first["config"] for group in found}},
            "claims": [plain(claim) for claim in claimed],
            "passed": all(claim.passed for claim in claimed),
            "numbers": {one["source"]: numbers(one, name) for one in evaluations},
            "tables": rows,
            "figures": [{"name": figure.name, "caption": figure.caption} for figure in drawings[name]],
            "versions": first["versions"],
            "machine": first["machine"],
            "seconds": round(seconds, 2),
        }
        for name, (claimed, rows, seconds) in subjects.items()
    ]


def numbers(one: Record, name: str) -> Any:
    """What an evaluation has on a subject."""
    results = one["results"]
    by_name = {"accuracy": results["accuracy"], "equivariance": results["equivariance"]}
    return {**by_name, "ensembles": results["ensemble"], "cost": one["course"]}[name]


def spent(evaluations: list[Record], name: str) -> float:
    """The seconds of a part of all evaluations."""
    return sum(one["results"]["seconds"].get(name, 0) for one in evaluations)


def write(evaluations: list[Record], out: Path, rounds: int) -> list[Record]:
    """The page at `out`, beside it the same in Markdown and JSON, and the figures; return the records.

    rounds: so many steps of each network are timed.
    """
    by_network = groups(evaluations)
    found = records(by_network, of_groups(by_network, rounds) if rounds else [])
    for figure in (figure for some in pictures(by_network).values() for figure in some):
        drawn(figure, out.parent / "figures")
    whole = {"passed": all(one["passed"] for one in found), "results": found}
    files.write_text(out.with_suffix(".json"), json.dumps(whole, allow_nan=False))
    files.write_text(out.with_suffix(".md"), markdown(found, SUBJECT))
    files.write_text(out, html(found, out.parent, SUBJECT))
    return found


def write_docs(found: list[Record], path: Path, folder: Path) -> None:
    """The Markdown for the docs, and the figures of the report in `folder` to `images` beside it."""
    copy_figures(found, folder, path.parent / "images")
    files.write_text(path, markdown(found, SUBJECT, figures="images"))
