"""`contconv cifar table`: the report of evaluations."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from contconv.cifar import evaluated, report


@dataclass(frozen=True)
class Table:
    """Put evaluations side by side and beside the paper's figures: report.html, and the same in Markdown and JSON."""

    evaluations: tyro.conf.Positional[tuple[Path, ...]]
    """JSON files of `contconv cifar evaluate`, or folders with some in them."""
    out: Path = Path("out/cifar/report.html")
    """The page, or a folder for report.html; its Markdown, JSON and figures go beside it."""
    docs: Path | None = None
    """A Markdown file for the docs; its figures go to `images` beside it."""
    rounds: int = 10
    """Steps of training of each network that are timed, by turns, for what it costs; 0 leaves that out."""


def page_of(out: Path) -> Path:
    """The HTML file to write."""
    page = out if out.suffix and not out.is_dir() else out / "report.html"
    if page.suffix != ".html":
        raise ValueError(f"out must be an .html file or a folder, got {out}")
    return page


def obey(command: Table) -> int:
    """Write them; the exit code is 1 if a claim fails."""
    if not command.evaluations:
        raise ValueError("give at least one evaluation, or a folder with some")
    if command.rounds < 0:
        raise ValueError(f"rounds must be at least 0, got {command.rounds}")
    page = page_of(command.out)
    found = report.write(evaluated.read(list(command.evaluations)), page, command.rounds)
    print(f"report: {page}")
    if command.docs is not None:
        report.write_docs(found, command.docs, page.parent)
        print(f"docs: {command.docs}")
    return 0 if all(record["passed"] for record in found) else 1
