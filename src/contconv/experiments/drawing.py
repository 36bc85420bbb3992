"""Figures as files, in light and in dark."""

from pathlib import Path
from typing import Any

from contconv import files
from contconv.experiments.record import Figure

DPI = 130
SURFACES = {
    "": {"ink": "#1c2330", "paper": "#ffffff"},
    "-dark": {"ink": "#dfe5ee", "paper": "#161a21"},
}
COLOURS = ["#3b76c4", "#d9772b", "#3f9a63", "#b0509a", "#8a7a3a", "#7a6bd0"]


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
