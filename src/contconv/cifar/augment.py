"""Whole batches of bytes -> normalised floats in channels_last, with a random crop and flip for training."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

# Of the training images, per channel, with values in 0 to 1.
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2470, 0.2435, 0.2616)
PADDING = 4


class Draws(NamedTuple):
    """What is random about each image of a batch."""

    top: Tensor  # [B] int64: the first row of the crop in the padded image
    left: Tensor  # [B] int64: its first column
    flip: Tensor  # [B] bool: whether left becomes right

    def part(self, which: slice) -> "Draws":
        """Those of some of the images."""
        return Draws(self.top[which], self.left[which], self.flip[which])


def draws(count: int, generator: torch.Generator) -> Draws:
    """A crop and a flip for each of `count` images."""
    corner = torch.randint(2 * PADDING + 1, (2, count), generator=generator)
    return Draws(corner[0], corner[1], torch.randint(2, (count,), generator=generator).bool())


def cropped(pixels: Tensor, draws: Draws) -> Tensor:
    """Pad by 4 black pixels on each side, cut out the original size, flip: [B, C, H, W] -> the same, channels_last."""
    images = pixels.permute(0, 2, 3, 1)  # [B, H, W, C]
    count, height, width, _ = images.shape
    padded = F.pad(images, (0, 0, PADDING, PADDING, PADDING, PADDING))
    top, left, flip = (draw.to(pixels.device) for draw in draws)
    rows = top[:, None] + torch.arange(height, device=pixels.device)  # [B, H]
    columns = left[:, None] + torch.arange(width, device=pixels.device)  # [B, W]
    columns = torch.where(flip[:, None], columns.flip(1), columns)
    which = torch.arange(count, device=pixels.device)[:, None, None]
    return padded[which, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def normalized(pixels: Tensor) -> Tensor:
    """Bytes -> zero mean and unit variance over the training images: [B, 3, H, W] uint8 -> float, channels_last."""
    images = pixels.permute(0, 2, 3, 1)  # [B, H, W, C]
    count, height, width, channels = images.shape
    # A whole line of pixels at a time: three channels alone are too few for vector instructions.
    mean, std = (255 * torch.tensor(values, device=pixels.device).repeat(width) for values in (MEAN, STD))
    lines = images.reshape(count, height, width * channels).float().sub_(mean).div_(std)
    return lines.reshape(count, height, width, channels).permute(0, 3, 1, 2)


def augmented(pixels: Tensor, draws: Draws) -> Tensor:
    """A batch as training sees it: cropped, flipped, normalised."""
    return normalized(cropped(pixels, draws))
