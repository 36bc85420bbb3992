"""Run an experiment and keep what it found: numbers, pictures, and the report anew after each."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from contconv import files
from contconv.experiments import report
from contconv.experiments.record import Config, Figure, saved
from contconv.experiments.registry import EXPERIMENTS, command

DPI = 130
SURFACES = {
    "": {"ink": "#1c2330", "paper": "#ffffff"},
    "-dark": {"ink": "#dfe5ee", "paper": "#161a21"},
}
COLOURS = ["#3b76c4", "#d9772b", "#3f9a63", "#b0509a", "#8a7a3a", "#7a6bd0"]


def perform(name: str, config: Config) -> dict[str, Any]:
    """Run it, write `<out>/<name>.json`, its figures and the report; return the record."""
    experiment = EXPERIMENTS[name]
    config.out.mkdir(parents=True, exist_ok=True)  # before the work, so that a folder that cannot be is found at once
    with one_thread():
        start = time.perf_counter()
        result = experiment.run(config)
        seconds = time.perf_counter() - start
        for figure in result.figures:
            drawn(figure, config.out / "figures")
        said = statement(experiment.statement)
        record = saved(config.out, name, config, result, seconds, command(name, config), said)
    report.write(config.out)
    return record


@contextmanager
def one_thread() -> Iterator[None]:
    """These problems are small: threads would wait for each other longer than they work, most so on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def statement(docstring: str) -> str:
    """A docstring's paragraphs, each on one line."""
    paragraphs = re.split(r"\n\s*\n", docstring.strip())
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def drawn(figure: Figure, folder: Path) -> None:
    """The picture for light and for dark pages."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    for suffix, surface in SURFACES.items():
        with matplotlib.rc_context(style(surface["ink"], surface["paper"])):  # type: ignore[arg-type]
            picture = figure.draw()
            files.write(folder / f"{figure.name}{suffix}.png", lambda path, drawn=picture: drawn.savefig(path, dpi=DPI))  # type: ignore[misc]
            pyplot.close(picture)


def style(ink: str, paper: str) -> dict[str, Any]:
    """Matplotlib's settings for ink on paper."""
    from cycler import cycler

    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "grid.color")
    return {
        **dict.fromkeys(inked, ink),
        **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), paper),
        "axes.prop_cycle": cycler(color=COLOURS),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "font.size": 9,
    }
