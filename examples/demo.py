"""One continuous layer, one photo, any scale: what `make demo` draws.

Row 1: the photo, resized by a fixed cubic kernel. Row 2: the edges of the photo, by one learned-style layer (a B-spline
through the taps of a Sobel filter) at the same scales: one function, sampled wherever the grid falls. Row 3: a white
cross under repeated 4x4 Gaussian blur, by a discrete convolution, which drifts half a pixel each time, and by a
continuous one, which stays. Takes a few seconds.
"""

import argparse
from fractions import Fraction
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

import contconv

PHOTO = Path(contconv.__file__).parent / "photos" / "chelsea.png"
SCALES = ((0.3, 0.3), (0.61, 1.0), (1, 1), (Fraction(4, 3), 0.9))
BLURS = 50


def photo(path: Path) -> Tensor:
    """[1, 3, H, W] in [0, 1]."""
    pixels = np.array(Image.open(path).convert("RGB"))
    return torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 255


def edge_layer() -> contconv.ContinuousConv2d:
    """Two Sobel filters on the mean of the colours, as one continuous layer 3 -> 2."""
    sobel = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]]) / 8
    taps = torch.stack([sobel, sobel.T])[:, None].expand(2, 3, 3, 3) / 3
    kernel = contconv.SplineKernel.from_taps(taps)
    return contconv.ContinuousConv2d(3, 2, 3, kernel=kernel, bias=False, padding_mode="replicate")


def blurred_crosses() -> tuple[Tensor, Tensor]:
    """A cross after the same number of blurs: by `F.conv2d` and by a continuous layer."""
    cross = torch.zeros(1, 1, 64, 64)
    cross[..., 31:33, 16:48] = cross[..., 16:48, 31:33] = 1
    taps = torch.exp(-torch.tensor([-1.5, -0.5, 0.5, 1.5]).square() / 2)
    taps = torch.outer(taps, taps)[None, None] / taps.sum() ** 2
    kernel = contconv.Gaussian(1.0, kernel_size=4)
    discrete, continuous = cross, cross
    for _ in range(BLURS):
        discrete = F.conv2d(F.pad(discrete, (1, 2, 1, 2)), taps)
        continuous = contconv.continuous_conv(continuous, kernel, scale=1)
    return discrete, continuous


def show(axis: Axes, image: Tensor, title: str, **options: object) -> None:
    axis.imshow(image.squeeze(0).permute(1, 2, 0).clamp(0, 1).numpy(), interpolation="nearest", **options)
    axis.set_title(title, fontsize=9)
    axis.set_xticks([])
    axis.set_yticks([])


def draw(image: Tensor, out: Path) -> None:
    figure, rows = plt.subplots(3, len(SCALES), figsize=(12, 7.6), layout="constrained")
    edges = edge_layer()
    for column, scale in enumerate(SCALES):
        resized = contconv.continuous_conv(
            image, contconv.Cubic(), scale=scale, padding_mode="replicate", antialias=True
        )
        size = " x ".join(str(n) for n in resized.shape[2:])
        named = " x ".join(str(s) for s in scale)
        show(rows[0, column], resized, f"Cubic, scale {named}: {size}")
        with torch.no_grad():
            magnitude = edges(image, scale=scale).square().sum(1, keepdim=True).sqrt() * 6
        show(rows[1, column], magnitude, f"one edge layer, scale {named}", cmap="gray", vmin=0, vmax=1)
    discrete, continuous = blurred_crosses()
    for axis, cross, title in (
        (rows[2, 0], discrete, f"4x4 conv2d, {BLURS} times: drifts"),
        (rows[2, 1], continuous, f"4x4 continuous, {BLURS} times: stays"),
    ):
        show(axis, cross / cross.max(), title, cmap="gray")
        axis.axhline(31.5, color="tab:orange", linewidth=0.6)
        axis.axvline(31.5, color="tab:orange", linewidth=0.6)
    d = torch.stack(torch.meshgrid(*[torch.linspace(-1.5, 1.5, 200)] * 2, indexing="ij"), -1)
    for axis, channel in ((rows[2, 2], 0), (rows[2, 3], 1)):
        with torch.no_grad():
            values = edges.kernel(d)[..., channel, 0].numpy()
        axis.imshow(values, cmap="RdBu", extent=(-1.5, 1.5, 1.5, -1.5))
        axis.set_title(f"edge kernel {channel} over the displacement", fontsize=9)
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f"{out.stem}.part{out.suffix}")
    figure.savefig(partial, dpi=110)
    partial.replace(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photo", type=Path, default=PHOTO)
    parser.add_argument("--out", type=Path, default=Path("out/demo.png"))
    arguments = parser.parse_args()
    draw(photo(arguments.photo), arguments.out)
    print(f"wrote {arguments.out}")
