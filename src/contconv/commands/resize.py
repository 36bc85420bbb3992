"""`contconv resize`: an image file, resized by any real factors."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import tyro

from contconv import images
from contconv.commands.parsing import scales, sizes
from contconv.functional import continuous_conv
from contconv.kernels.fixed import Cubic, FixedKernel, Lanczos, Linear
from contconv.size import scales_and_sizes

FLOAT_BYTES = 8
COPIES = 5  # of the output or input that are in memory at once, at worst


@dataclass(frozen=True)
class Resize:
    """Resize a picture by any real factors.

    For example: contconv resize photo.jpg --scale 0.61x1.37 --kernel cubic out.png

    EXIF orientation is applied, colours are premultiplied by alpha, grey stays grey, 16-bit greys stay 16-bit, palettes
    become colours. Sizes and scales are height x width, as everywhere in the library.
    """

    photo: tyro.conf.Positional[Path]
    """The picture."""
    out: tyro.conf.Positional[Path]
    """Where to write; the suffix says the format."""
    scale: str | None = None
    """For example 0.5, 2/3 or 0.61x1.37 (height x width)."""
    size: str | None = None
    """In pixels, for example 300x400 (height x width)."""
    kernel: Literal["linear", "cubic", "lanczos"] = "cubic"
    """The interpolation kernel; lanczos has three lobes."""
    a: float = -0.5
    """Of the cubic kernel: -0.5 as in Pillow, -0.75 as in PyTorch and OpenCV."""
    antialias: bool = True
    """Widen the kernel on axes that shrink, so that fine patterns do not turn into coarse ones."""


def obey(command: Resize) -> int:
    """Read, resize, write."""
    if (command.scale is None) == (command.size is None):
        raise ValueError("give either --scale or --size")
    scale = None if command.scale is None else scales(command.scale, 2)
    size = None if command.size is None else sizes(command.size, 2, "--size")
    picture = images.read(command.photo)
    height, width = picture.pixels.shape[1:]
    _, out_size = scales_and_sizes((height, width), scale, size)
    check_memory(picture.pixels.shape[0], (height, width), out_size)
    with torch.inference_mode():
        resized = continuous_conv(
            picture.pixels[None], kernel_of(command), scale=scale, size=size, padding_mode="replicate",
            antialias=command.antialias,
        )  # fmt: skip
    images.write(command.out, images.with_pixels(picture, resized[0]))
    print(f"{command.out}: {height}x{width} -> {out_size[0]}x{out_size[1]}")
    return 0


def kernel_of(command: Resize) -> FixedKernel:
    """The kernel of that name."""
    if command.kernel == "cubic":
        return Cubic(command.a)
    return {"linear": Linear(), "lanczos": Lanczos(3)}[command.kernel]


def check_memory(channels: int, in_size: tuple[int, ...], out_size: tuple[int, ...]) -> None:
    """Refuse an output that would not fit, before anything is computed."""
    between = out_size[0] * in_size[1]  # one axis done, the other not
    wanted = COPIES * FLOAT_BYTES * channels * max(out_size[0] * out_size[1], between, in_size[0] * out_size[1])
    free = images.memory_free()
    if free is not None and wanted > free:
        raise ValueError(
            f"an output of {out_size[0]}x{out_size[1]} needs about {wanted / 2**30:.1f} GiB of memory, "
            f"and {free / 2**30:.1f} GiB are free; ask for a smaller --scale or --size"
        )
