"""A white cross under repeated 4x4 Gaussian blur drifts under a discrete convolution and stays under a continuous one.

The paper (Features, "Standard conv-layers often suffer from inherent misalignments"): at stride 1 a 4x4 convolution
shifts its result by half a pixel each time, a continuous convolution at scale 1 keeps it centred.

Claim: the centroid drifts by 0.5 pixels per blur under `F.conv2d`, and by less than 1e-6 pixels in all under the
continuous convolution. A second.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from contconv.experiments.record import Claim, Config, Figure, Result, check_positive
from contconv.functional import continuous_conv
from contconv.kernels import Gaussian

PAPER_CONV = "the standard layer shifts the result by half a pixel per iteration"
PAPER_CC = "the continuous layer's result remains centred"


@dataclass(frozen=True)
class Misalign(Config):
    """Blur a cross again and again, by discrete and by continuous convolution."""

    blurs: int = 60
    """How often."""
    kernel_size: int = 4
    """Of the Gaussian; an even one cannot be centred on a pixel."""
    sigma: float = 1.0
    """Of the Gaussian, in pixels."""


def run(config: Misalign) -> Result:
    """Blur, and follow the centroid."""
    check_positive(config, "blurs")
    check_positive(config, "kernel_size", least=2)
    if not 0.2 <= config.sigma <= 100:
        raise ValueError(f"--sigma must be between 0.2 and 100 pixels, got {config.sigma}")
    crosses = blurred(config)
    drifts = {name: [offset(image) for image in images] for name, images in crosses.items()}
    per_blur = drifts["conv"][-1] / config.blurs / 2**0.5  # along the diagonal, per axis
    expected = 0.5 if config.kernel_size % 2 == 0 else 0.0
    stays = drifts["continuous"][-1]
    claims = (
        Claim(
            "misalign: discrete convolution drifts", PAPER_CONV, f"{expected:g} pixels per blur and axis, to 0.01",
            f"{per_blur:.4f} pixels", abs(per_blur - expected) < 0.01, (per_blur,),
        ),
        Claim(
            "misalign: continuous convolution stays", PAPER_CC, "drift < 1e-6 pixels in all",
            f"{stays:.1e} pixels", stays < 1e-6, (stays,),
        ),
    )  # fmt: skip
    return Result(claims, {"drift": drifts}, figures(crosses, drifts))


def blurred(config: Misalign) -> dict[str, list[Tensor]]:
    """The cross before and after every blur, both ways. The field is wide enough to hold all of the drift."""
    size = 2 * (32 + config.blurs // 2 + int(5 * config.sigma * config.blurs**0.5))
    middle, arm = size // 2, 16
    cross = torch.zeros(1, 1, size, size, dtype=torch.float64)
    cross[..., middle - 1 : middle + 1, middle - arm : middle + arm] = 1
    cross[..., middle - arm : middle + arm, middle - 1 : middle + 1] = 1
    k = config.kernel_size
    line = torch.exp(-(((torch.arange(k, dtype=torch.float64) - (k - 1) / 2) / config.sigma) ** 2) / 2)
    taps = torch.outer(line, line)[None, None] / line.sum() ** 2
    # One more pixel on one side than on the other: the best that padding can do for an even kernel.
    before, after = (k - 1) // 2, k // 2
    kernel = Gaussian(config.sigma**2, kernel_size=k)
    images = {"conv": [cross], "continuous": [cross]}
    for _ in range(config.blurs):
        images["conv"].append(F.conv2d(F.pad(images["conv"][-1], (before, after, before, after)), taps))
        images["continuous"].append(continuous_conv(images["continuous"][-1], kernel, scale=1))
    return images


def offset(image: Tensor) -> float:
    """How far the centroid is from the middle, in pixels."""
    n = image.shape[-1]
    place = torch.arange(n, dtype=image.dtype) - (n - 1) / 2
    total = image.sum()
    rows = (image.sum((0, 1, 3)) * place).sum() / total
    columns = (image.sum((0, 1, 2)) * place).sum() / total
    return torch.hypot(rows, columns).item()


def figures(crosses: dict[str, list[Tensor]], drifts: dict[str, list[float]]) -> tuple[Figure, ...]:
    return (
        Figure(
            "misalign",
            "A white cross under repeated Gaussian blur: by discrete convolution (above) and by continuous convolution "
            "(below), with the middle of the field marked; and how far the centroid has moved.",
            lambda: strip(crosses, drifts),
        ),
    )


def strip(crosses: dict[str, list[Tensor]], drifts: dict[str, list[float]]) -> Any:
    """Two rows of pictures, and the curves beside them."""
    from matplotlib import pyplot

    blurs = len(crosses["conv"]) - 1
    shown = sorted({round(blurs * part) for part in (0, 0.15, 0.4, 1)})
    figure = pyplot.figure(figsize=(10.5, 3.9), layout="constrained")
    grid = figure.add_gridspec(2, len(shown) + 2)
    for row, (name, label) in enumerate((("conv", "nn.Conv2d"), ("continuous", "continuous"))):
        for column, count in enumerate(shown):
            place = figure.add_subplot(grid[row, column])
            image = crosses[name][count][0, 0]
            edge = len(image) // 2 - min(len(image) // 2, 24 + blurs // 2)  # the field's empty border is not shown
            image = image[edge : len(image) - edge, edge : len(image) - edge]
            place.imshow((image / image.max()).numpy(), cmap="gray", vmin=0, vmax=1)
            place.axhline((len(image) - 1) / 2, color="tab:orange", linewidth=0.7)
            place.axvline((len(image) - 1) / 2, color="tab:orange", linewidth=0.7)
            place.set_xticks([])
            place.set_yticks([])
            if row == 0:
                place.set_title(f"{count} blurs" if count else "the cross", fontsize=9)
            if column == 0:
                place.set_ylabel(label)
    curve = figure.add_subplot(grid[:, len(shown) :])
    curve.plot(drifts["conv"], label="discrete")
    curve.plot(drifts["continuous"], label="continuous")
    curve.set_xlabel("blurs")
    curve.set_ylabel("drift of the centroid (pixels)")
    curve.grid(alpha=0.15)
    curve.legend(frameon=False)
    return figure
