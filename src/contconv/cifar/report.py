"""The report of evaluations, like that of the single-layer experiments: claims, tables, figures, numbers."""

import json
from pathlib import Path
from typing import Any

from contconv import files
from contconv.cifar import claims, equivariance, figures, tables
from contconv.cifar.evaluated import Record
from contconv.cifar.groups import Group, groups
from contconv.experiments.drawing import drawn
from contconv.experiments.record import Claim, Figure, plain
from contconv.experiments.report import markdown
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


class Sheet(dict[str, Any]):
    """A record as the report takes it, with the figures that are still to be drawn."""

    pictures: tuple[Figure, ...] = ()


def records(evaluations: list[Record]) -> list[Sheet]:
    """One record per subject: accuracy, equivariance, ensembles, cost."""
    found = groups(evaluations)
    common = {"settings": found[0].first["settings"]}
    trained = sum(row.get("seconds") or 0 for one in evaluations for row in one["course"])
    return [
        sheet(
            "accuracy", found, claims.accuracy_claims(found), [tables.accuracy_table(found)],
            (*figures.training_curves(found), *figures.filters(found)), spent(evaluations, "accuracy"),
            {**common, "configs": {group.label: group.first["config"] for group in found}},
        ),
        sheet(
            "equivariance", found, claims.equivariance_claims(found), tables.equivariance_tables(found),
            figures.equivariance_curves(found), spent(evaluations, "equivariance"), common,
        ),
        sheet(
            "ensembles", found, claims.ensemble_claims(found), tables.ensemble_table(found),
            figures.ensemble_curves(found), spent(evaluations, "ensemble"), common,
        ),
        sheet("cost", found, claims.cost_claims(found), tables.cost_table(found), (), trained, common),
    ]  # fmt: skip


def sheet(
    name: str,
    found: list[Group],
    claimed: list[Claim],
    rows: list[tables.Table],
    pictures: tuple[Figure, ...],
    seconds: float,
    config: dict[str, Any],
) -> Sheet:
    """A record in the form of `experiments.record.saved`, with tables."""
    first = found[0].first
    made = Sheet(
        experiment=name,
        statement=statement(STATEMENTS[name]),
        command="; ".join(one["command"] for group in found for one in group.evaluations),
        config={"seed": first["settings"]["seed"], **config},
        claims=[plain(claim) for claim in claimed],
        passed=all(claim.passed for claim in claimed),
        numbers={one["source"]: numbers(one, name) for group in found for one in group.evaluations},
        tables=rows,
        figures=[{"name": figure.name, "caption": figure.caption} for figure in pictures],
        versions=first["versions"],
        machine=first["machine"],
        seconds=round(seconds, 2),
    )
    made.pictures = pictures
    return made


def numbers(one: Record, name: str) -> Any:
    """What an evaluation has on a subject."""
    results = one["results"]
    by_name = {"accuracy": results["accuracy"], "equivariance": results["equivariance"]}
    return {**by_name, "ensembles": results["ensemble"], "cost": one["course"]}[name]


def spent(evaluations: list[Record], name: str) -> float:
    """The seconds of a part of all evaluations."""
    return sum(one["results"]["seconds"].get(name, 0) for one in evaluations)


def write(found: list[Sheet], out: Path) -> None:
    """The page at `out`, and beside it the same in Markdown and JSON, and the figures."""
    for figure in (figure for one in found for figure in one.pictures):
        drawn(figure, out.parent / "figures")
    whole = {"passed": all(one["passed"] for one in found), "results": found}
    files.write_text(out.with_suffix(".json"), json.dumps(whole, allow_nan=False))
    files.write_text(out.with_suffix(".md"), markdown(list(found), SUBJECT))
    files.write_text(out, html(list(found), out.parent, SUBJECT))


def write_docs(found: list[Sheet], path: Path) -> None:
    """The Markdown for the docs, whose figures are in `images`."""
    files.write_text(path, markdown(list(found), SUBJECT, figures="images"))
