"""`contconv report`: the report of results that are there."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from contconv import files
from contconv.experiments import report


@dataclass(frozen=True)
class Report:
    """Write the report of a folder of results anew, and the table of docs/reproducing.md from it."""

    folder: tyro.conf.Positional[Path]
    """What --out was in `contconv experiment`."""
    docs: Path | None = None
    """A Markdown file for the table: claim, paper, ours, command, time; its figures go to `images` beside it."""


def obey(command: Report) -> int:
    """Write them."""
    print(f"report: {report.write(command.folder)}")
    if command.docs is not None:
        made_by = f"contconv report {command.folder} --docs {command.docs}"
        found = report.records(command.folder)
        report.copy_figures(found, command.folder, command.docs.parent / "images")
        files.write_text(command.docs, report.reproducing(found, made_by))
        print(f"table: {command.docs}")
    return 0
