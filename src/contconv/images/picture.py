"""Image files as tensors and back: upright, premultiplied; grey, 16-bit and palette images as what they are."""

import os
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from contconv import files

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

PHOTO = Path(__file__).parent.parent / "photos" / "chelsea.png"
MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
ORIENTATION = 0x0112  # in EXIF
BITS_PER_SAMPLE = 258  # in TIFF
DEEP = ("I", "I;16", "I;16L", "I;16B", "I;16N")
DEEP_FORMATS = ("PNG", "TIFF", "JPEG2000")
NO_ALPHA = ("JPEG", "BMP", "PPM", "PDF")


class ImageError(ValueError):
    """A file that cannot be read or written as an image, said in one line."""


@dataclass(frozen=True)
class Picture:
    """pixels: [C, H, W] in [0, 1], C = 1 (grey), 2 (grey, alpha), 3 (colours) or 4 (colours, alpha), premultiplied.

    `depth` is 8 or 16 bits or, for floating-point greys, 32; these are kept as they are, in their own range.
    """

    pixels: Tensor
    depth: int = 8
    profile: bytes | None = None

    @property
    def has_alpha(self) -> bool:
        return self.pixels.shape[0] in (2, 4)


def read(path: Path) -> Picture:
    """The picture in a file, its first frame if there are several, turned the way its EXIF data say."""
    pillow, numpy = _libraries()
    from PIL import ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pillow.DecompressionBombWarning)
            with pillow.open(path) as opened:
                deep = opened.format == "PNG" and _deep_png().is_deep(path)
                shallow = not deep and _loses_bits(opened, path)
                orientation = opened.getexif().get(ORIENTATION, 1)
                image = ImageOps.exif_transpose(opened)
                assert image is not None
                image.load()
                profile = opened.info.get("icc_profile")
                foreign = opened.mode in ("CMYK", "LAB", "YCbCr")
    except FileNotFoundError as error:
        raise ImageError(f"{path}: no such file") from error
    except IsADirectoryError as error:
        raise ImageError(f"{path}: is a folder, not an image") from error
    except pillow.UnidentifiedImageError as error:
        raise ImageError(f"{path}: not an image, or of a kind that Pillow does not read") from error
    except (OSError, SyntaxError, ValueError, EOFError, pillow.DecompressionBombError) as error:
        raise ImageError(f"{path}: cannot be read as an image ({error})") from error
    if shallow:
        raise ImageError(
            f"{path}: colours of 16 bits are read from PNG files without interlacing only; convert it first"
        )
    values, depth = _values(image, numpy) if not deep else (_turned(path, orientation), 16)
    # A profile describes the colours of the file's own colour space; it is not that of the converted one.
    return Picture(_premultiplied(values), depth, None if foreign else profile)


def _values(image: "Image.Image", numpy: Any) -> tuple[Tensor, int]:
    """[C, H, W] straight from the file, and its depth."""
    if image.mode == "F" or image.mode in DEEP:
        values = torch.from_numpy(numpy.array(image).astype(numpy.float64))[None]
        beyond = image.mode == "F" or values.min() < 0 or values.max() > 65535
        return (values, 32) if beyond else (values / 65535, 16)
    pixels = numpy.array(image.convert(_plain_mode(image)))
    return torch.from_numpy(pixels.reshape(*pixels.shape[:2], -1)).movedim(-1, 0).double() / 255, 8


def _loses_bits(opened: "Image.Image", path: Path) -> bool:
    """Whether Pillow would silently make 8 bits of the file's 16."""
    if opened.format == "PNG":
        found = _deep_png().header(path)
        return found is not None and found[2] == 16 and len(opened.getbands()) > 1
    bits = getattr(opened, "tag_v2", {}).get(BITS_PER_SAMPLE, (8,))
    return len(opened.getbands()) > 1 and max(bits) > 8


def _turned(path: Path, orientation: int) -> Tensor:
    """[C, H, W] of a PNG of 16 bits per colour, upright."""
    values = torch.from_numpy(_deep_png().read(path).astype("float64")).movedim(-1, 0) / 65535
    if orientation in (5, 6, 7, 8):
        values = values.mT
    flipped = {2: [2], 3: [1, 2], 4: [1], 6: [2], 7: [1, 2], 8: [1]}.get(orientation, [])
    return values.flip(flipped)


def _deep_png() -> Any:
    """Imported late, for its NumPy."""
    from contconv.images import deep_png

    return deep_png


def _plain_mode(image: "Image.Image") -> str:
    """The mode of 8-bit channels that holds all there is in the image."""
    see_through = "transparency" in image.info or image.mode in ("LA", "La", "PA", "RGBA", "RGBa")
    if image.mode in ("1", "L", "LA", "La"):
        return "LA" if see_through else "L"
    return "RGBA" if see_through else "RGB"


def _premultiplied(values: Tensor) -> Tensor:
    """Colours times alpha: so that the colour of what cannot be seen does not bleed into what can."""
    if values.shape[0] in (1, 3):
        return values
    return torch.cat([values[:-1] * values[-1:], values[-1:]])


def write(path: Path, picture: Picture) -> None:
    """Save in the format of the path's suffix, whole or not at all."""
    pillow, numpy = _libraries()
    pillow.init()
    kind = pillow.EXTENSION.get(path.suffix.lower())
    if kind is None or kind not in pillow.SAVE:
        raise ImageError(f"{path}: unknown image format {path.suffix!r}; use .png, .jpg, .tif or .webp")
    if (picture.depth == 16 and kind not in DEEP_FORMATS) or (picture.depth == 32 and kind != "TIFF"):
        fitting = ".png or .tif" if picture.depth == 16 else ".tif"
        raise ImageError(f"{path}: {kind} cannot hold {picture.depth}-bit greys; use {fitting}")
    if picture.has_alpha and kind in NO_ALPHA:
        raise ImageError(f"{path}: {kind} has no transparency, and this picture has; use .png or .webp")
    array = _stored(picture, numpy)
    if picture.depth == 16 and array.ndim == 3:
        if kind != "PNG":
            raise ImageError(f"{path}: colours of 16 bits can only be written as .png")
        files.write(path, lambda partial: _deep_png().write(partial, array, picture.profile))
        return
    image = pillow.fromarray(array)
    options: dict[str, Any] = {"quality": 95, "subsampling": 0} if kind == "JPEG" else {}
    if kind == "WEBP":
        options = {"lossless": True}
    if picture.profile:
        options["icc_profile"] = picture.profile
    try:
        files.write(path, lambda partial: image.save(partial, format=kind, **options))
    except OSError as error:
        raise ImageError(f"{path}: cannot be written ({error})") from error


def _stored(picture: Picture, numpy: Any) -> "np.ndarray[Any, Any]":
    """[H, W] or [H, W, C] integers as files hold them."""
    values = picture.pixels.double()
    if picture.depth == 32:
        return values[0].numpy().astype(numpy.float32)
    if picture.has_alpha:
        alpha = values[-1:]
        values = torch.cat([torch.where(alpha > 0, values[:-1] / alpha.clamp_min(1e-12), 0), alpha])
    whole = (values.clamp(0, 1) * (2**picture.depth - 1)).round()
    kind = numpy.uint8 if picture.depth == 8 else numpy.uint16
    array = whole.movedim(0, -1).numpy().astype(kind)
    return array[..., 0] if array.shape[-1] == 1 else array


def with_pixels(picture: Picture, pixels: Tensor) -> Picture:
    """Another picture of the same kind."""
    return replace(picture, pixels=pixels)


def photo(path: Path | None, most_pixels: int = 240 * 360) -> Tensor:
    """[C, 1, H, W] float64: the middle of a photo, each colour an image of its own, for experiments."""
    pixels = read(PHOTO if path is None else path).pixels
    colours = pixels[:-1] if pixels.shape[0] in (2, 4) else pixels
    height, width = colours.shape[1:]
    if height * width > most_pixels:
        shrink = (most_pixels / (height * width)) ** 0.5
        rows, columns = max(1, int(height * shrink)), max(1, int(width * shrink))
        top, left = (height - rows) // 2, (width - columns) // 2
        colours = colours[:, top : top + rows, left : left + columns]
    if min(colours.shape[1:]) < 64:
        raise ImageError(f"{path}: {height}x{width} pixels are too few to learn from; 64x64 would do")
    return colours[:, None].contiguous()


def memory_free() -> int | None:
    """Bytes that a new picture may take, where the system says."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None


def _libraries() -> tuple[Any, Any]:
    """Pillow and NumPy, which only this room needs."""
    try:
        import numpy
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "images need Pillow and NumPy, which are not installed: pip install 'contconv[cli]'"
        ) from error
    return Image, numpy
