"""`contconv cifar table`: the report of evaluations."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from contconv.cifar import evaluated, report
from contconv.experiments.report import copy_figures


@dataclass(frozen=True)
class Table:
    """Put evaluations side by side and beside the paper's figures: report.html, and the same in Markdown and JSON."""

    evaluations: tyro.conf.Positional[tuple[Path, ...]]
    """JSON files of `contconv cifar evaluate`, or folders with some in them."""
    out: Path = Path("out/cifar/report.html")
    """The page; its Markdown, JSON and figures go beside it."""
    docs: Path | None = None
    """A Markdown file for the docs; its figures go to `images` beside it."""


def obey(command: Table) -> int:
    """Write them; the exit code is 1 if a claim fails."""
    if not command.evaluations:
        raise ValueError("give at least one evaluation, or a folder with some")
    found = report.records(evaluated.read(list(command.evaluations)))
    report.write(found, command.out)
    print(f"report: {command.out}")
    if command.docs is not None:
        copy_figures(found, command.out.parent, command.docs.parent / "images")
        report.write_docs(found, command.docs)
        print(f"docs: {command.docs}")
    return 0 if all(record["passed"] for record in found) else 1
