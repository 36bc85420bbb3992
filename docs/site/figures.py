"""Draws the figures of docs/concepts.md and docs/choosing.md, with the package itself: `make docs-figures`."""

from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import torch
from matplotlib import pyplot
from matplotlib.figure import Figure

from contconv import ContinuousConv1d, ContinuousConv2d, Cubic, Gaussian, Lanczos, Linear, plot, projected_grid

IMAGES = Path(__file__).parent.parent / "images"


def grid() -> Figure:
    """Twelve input pixels, and where the output pixels of three scales lie among them."""
    figure, axes = pyplot.subplots(3, 1, figsize=(8, 3.6), sharex=True, layout="constrained")
    for ax, scale, name in zip(axes, (1 / 2, 2 / 3, 3 / 2), ("1/2", "2/3", "3/2"), strict=True):
        centres = [float(g) for g in projected_grid(12, scale=scale)]
        ax.hlines(0, -0.5, 11.5, color="lightgray", linewidth=8)
        ax.plot(range(12), [0] * 12, "s", color="gray", markersize=5, label="input pixels")
        ax.plot(centres, [0.5] * len(centres), "v", color="tab:red", label="output pixels")
        ax.vlines(centres, 0, 0.5, color="tab:red", linewidth=0.8)
        ax.set(yticks=[], ylim=(-0.4, 0.9), title=f"scale {name}: {len(centres)} output pixels")
        ax.spines[:].set_visible(False)
    axes[0].legend(loc="upper right", frameon=False, ncols=2, bbox_to_anchor=(1, 1.9))
    axes[-1].set_xlabel("position in the input")
    return figure


def phases() -> Figure:
    """The displacements at which three scales sample one kernel."""
    figure, axes = pyplot.subplots(1, 3, figsize=(10, 2.8), sharey=True, layout="constrained")
    for ax, scale, name in zip(axes, (1 / 2, 2 / 3, 0.7123), ("1/2", "2/3", "0.7123"), strict=True):
        plot.kernel(Cubic(), axes=1, scale=scale, ax=ax, title=f"scale {name}")
    return figure


def basis() -> Figure:
    """A kernel is a weighted sum of basis functions."""
    torch.manual_seed(6)
    figure, axes = pyplot.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
    for ax, name in zip(axes, ("spline", "internal"), strict=True):
        layer = ContinuousConv1d(1, 1, 5, kernel=name)
        d = torch.linspace(-2.5, 2.5, 400)[:, None]
        with torch.no_grad():
            terms = layer.kernel.basis(d) * layer.kernel.mixing[:, 0, 0]
        ax.plot(d, terms, linewidth=0.8)
        ax.plot(d, terms.sum(-1), color="black", linewidth=2)
        ax.set(title=f'"{name}": {terms.shape[-1]} functions, and their sum', xlabel="displacement (input pixels)")
    return figure


def kernels() -> Figure:
    """Kernels of two axes, as they are before any training."""
    torch.manual_seed(0)
    shown = {
        "Linear()": Linear(),
        "Cubic()": Cubic(),
        "Lanczos(3)": Lanczos(3),
        "Gaussian(rotated)": Gaussian([[2.0, 1.2], [1.2, 1.0]], kernel_size=7),
        '"internal"': ContinuousConv2d(1, 1, 3),
        '"spline"': ContinuousConv2d(1, 1, 3, kernel="spline"),
    }
    figure, axes = pyplot.subplots(2, 3, figsize=(9, 6), layout="constrained")
    for ax, (name, kernel) in zip(axes.flat, shown.items(), strict=True):
        plot.kernel(kernel, ax=ax, title=name)
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "concept-grid": grid,
    "concept-phases": phases,
    "concept-basis": basis,
    "choosing-kernels": kernels,
}

if __name__ == "__main__":
    for name, draw in FIGURES.items():
        draw().savefig(IMAGES / f"{name}.png", dpi=90)
