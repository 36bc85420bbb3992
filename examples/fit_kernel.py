"""Find the kernel behind somebody else's resizing, from one photo at one scale, and look at it.

Here the somebody is Pillow, whose bicubic filter nobody told us: a spline is solved for in a second, drawn with the
phases of scale 2/3 marked, and then resizes by a factor that it never saw.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from contconv import SplineKernel, continuous_conv, plot
from contconv.fitting import fit
from contconv.images import PHOTO


def enlarged(photo: Image.Image, size: tuple[int, int]) -> torch.Tensor:
    """[1, 1, H, W] the photo by Pillow, in floating point: 8 bits would hide the kernel's details."""
    values = Image.fromarray(np.array(photo.convert("L"), np.float32))
    return torch.from_numpy(np.array(values.resize(size[::-1], Image.Resampling.BICUBIC)))[None, None] / 255


def main(path: Path, out: Path) -> None:
    photo = Image.open(path)
    x = torch.from_numpy(np.array(photo.convert("L"), np.float32))[None, None] / 255
    size = (round(x.shape[2] * 1.07) + 1, round(x.shape[3] * 1.13) + 1)
    kernel = SplineKernel(1, 1, (4, 4), density=2, dtype=torch.float64)
    # Pillow cuts its kernel off at the border, where a layer pads: there the two differ, and the fit averages over it.
    found = fit(kernel, x, enlarged(photo, size), size=size, padding_mode="replicate")
    print(f"mean squared error of the fit: {found.mse:.1e}")

    unseen = (x.shape[2] * 2, x.shape[3] * 3 // 2)
    with torch.no_grad():
        made = continuous_conv(x.double(), kernel, size=unseen, padding_mode="replicate")
    inside = np.s_[..., 8:-8, 8:-8]
    error = (made - enlarged(photo, unseen))[inside].abs().max().item()
    print(f"largest error at a scale it never saw, away from the border: {error:.1e}")

    figure = plot.kernel(kernel, scale=2 / 3, title="Pillow's bicubic kernel, as learned")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)
    print(f"wrote {out}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photo", type=Path, default=PHOTO)
    parser.add_argument("--out", type=Path, default=Path("out/fit_kernel.png"))
    arguments = parser.parse_args()
    main(arguments.photo, arguments.out)
