"""Shift-equivariance as the paper measures it ("Verifying Shift-Equivariance", after R. Zhang, 2019).

(i) Each image is fed twice: as it is, and shifted by a whole number of pixels, drawn uniformly up to a largest one
along each axis. (ii) The output of the last convolutional layer is 4 times smaller, so the shifted image's map is
shifted back by a quarter of the shift, with cubic interpolation. (iii) Two pixels are cut off from each side of both
maps, and their cosine similarity is taken, image by image, and averaged.

In the paper's words each layer "is followed by a ReLU activation", so its output is what comes before that; what comes
after it is measured as well. Maps that have much in common whatever they show, a large offset of a channel, say, are
similar whether they move with the image or not: so they are also compared with the channels' means taken off, and with
the maps of other images. The paper leaves open what a shift brings in from beyond the border. Here both images are
windows of one larger canvas: of noise, which is drawn that large; or of an image continued by reflection (or by black,
or around, for comparison).
"""

from fractions import Fraction
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from contconv.cifar.accuracy import Outputs
from contconv.functional import continuous_conv
from contconv.kernels import Cubic

SHRINK = 4  # from the image to the map of the last convolutional layer
CUT = 2  # pixels of the map, on each side
CUBIC = Cubic(-0.5)  # Keys' own choice, and MATLAB's
BORDERS = {"reflect": "reflect", "zeros": "constant", "circular": "circular"}  # as F.pad calls them


class Equivariance(NamedTuple):
    """Of one set of images and one largest shift: means over the images, and the standard error of the first."""

    similarity: float  # of the last convolutional layer's output
    error: float
    after_relu: float  # the similarity of what ReLU leaves of it
    centred: float  # the similarity without the mean of each channel over all images
    others: float  # the similarity of maps of different images: what all have in common
    consistency: float  # the percentage of images that are given the same class before and after the shift


def drawn_shifts(count: int, largest: int, seed: int) -> Tensor:
    """[count, 2] ints, uniform in -largest ... largest along each axis; the same for every model."""
    generator = torch.Generator().manual_seed(1000 * seed + largest)
    return torch.randint(-largest, largest + 1, (count, 2), generator=generator)


def canvas_of_images(images: Tensor, margin: int, border: str) -> Tensor:
    """Images [N, C, H, W] continued by `margin` pixels on each side."""
    if border not in BORDERS:
        raise ValueError(f"border must be one of {', '.join(BORDERS)}, got {border!r}")
    return F.pad(images.float(), (margin,) * 4, mode=BORDERS[border])


def canvas_of_noise(count: int, channels: int, size: int, margin: int, seed: int) -> Tensor:
    """Standard Gaussian noise [count, channels, size + 2 margin, size + 2 margin]."""
    generator = torch.Generator().manual_seed(seed)
    side = size + 2 * margin
    return torch.randn(count, channels, side, side, generator=generator)


def windows(canvas: Tensor, margin: int, shifts: Tensor | None = None) -> Tensor:
    """The middle [N, C, H, W] of canvases with `margin` pixels more on each side, moved down and right by shifts."""
    count, _, height, width = canvas.shape
    moved = torch.zeros(count, 2, dtype=torch.long) if shifts is None else shifts
    if int(moved.abs().max()) > margin:
        raise ValueError(f"shifts must be at most the margin of {margin} pixels, got {int(moved.abs().max())}")
    rows = margin + torch.arange(height - 2 * margin) - moved[:, :1]  # pixel p shows what was at p - shift
    columns = margin + torch.arange(width - 2 * margin) - moved[:, 1:]
    picked = canvas[torch.arange(count)[:, None, None], :, rows[:, :, None], columns[:, None, :]]  # [N, H, W, C]
    return picked.permute(0, 3, 1, 2)


def shifted_back(maps: Tensor, shifts: Tensor, shrink: int = SHRINK) -> Tensor:
    """Maps [N, C, h, w] of images whose content was moved by shifts [N, 2], moved back by shift / shrink.

    With the content moved down by s, pixel q of the map shows what belongs at q - s/4; so q takes what is at q + s/4: a
    continuous convolution at scale 1 whose `center` is s/4. Beyond the map's border its last pixels are repeated; after
    the cut that matters only for shifts of more than 4, and only with the small outer tap of the cubic kernel.
    """
    back = torch.empty_like(maps)
    for shift in shifts.unique(dim=0):
        chosen = (shifts == shift).all(1)
        center = tuple(Fraction(int(pixels), shrink) for pixels in shift)
        back[chosen] = continuous_conv(maps[chosen], CUBIC, scale=1, center=center, padding_mode="replicate")
    return back


def similarities(maps: Tensor, moved: Tensor, shifts: Tensor, *, cut: int = CUT) -> Tensor:
    """[N] cosine similarities of the maps with those of the shifted images, which are shifted back first."""
    return cosines(maps, shifted_back(moved, shifts), cut=cut)


def cosines(maps: Tensor, others: Tensor, *, cut: int = CUT) -> Tensor:
    """[N] cosine similarities of maps [N, C, h, w], without the pixels at their borders."""
    if 2 * cut >= min(maps.shape[-2:]):
        raise ValueError(f"cut must leave something of maps of {tuple(maps.shape[-2:])} pixels, got {cut}")
    inner = (..., slice(cut, maps.shape[-2] - cut), slice(cut, maps.shape[-1] - cut))
    return F.cosine_similarity(maps[inner].flatten(1), others[inner].flatten(1))


def compared(still: Outputs, moved: Outputs, shifts: Tensor, *, cut: int = CUT) -> Equivariance:
    """What the shift did to features and classes."""
    maps, back = still.responses, shifted_back(moved.responses, shifts)
    means = maps.mean((0, 2, 3), keepdim=True)
    similar = cosines(maps, back, cut=cut).double()
    same = still.logits.argmax(1) == moved.logits.argmax(1)
    return Equivariance(
        similarity=similar.mean().item(),
        error=similar.std().item() / len(similar) ** 0.5 if len(similar) > 1 else 0.0,
        after_relu=similarities(maps.relu(), moved.responses.relu(), shifts, cut=cut).double().mean().item(),
        centred=cosines(maps - means, back - means, cut=cut).double().mean().item(),
        others=cosines(maps, back.roll(1, 0), cut=cut).double().mean().item(),
        consistency=100 * same.double().mean().item(),
    )
