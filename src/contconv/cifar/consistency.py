"""Training for equivariance: maps that must be the same are compared, and the loss counts what they differ by.

Either of two crops of each image, once one is moved onto the other; or of one crop, with two sequences of internal
scales, whose grids lie elsewhere in every layer but the last: a map that does not depend on them has no aliasing.

What is compared are the differences between maps of two images. Maps themselves can be made similar by something that
they all have in common, a large offset of a channel, say, and a network soon finds that out. Both are compared before
the ReLU and after it: the ReLU may leave little of what they are similar in.

Scales are compared on noise as well, if wanted, which stands for some of the images: aliasing is what happens to high
frequencies, and images have few of them.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contconv.cifar.augment import PADDING, Draws
from contconv.cifar.equivariance import similarities

LARGEST = 6  # pixels between two crops of an image, along each axis
OF_EVERY = 8  # so many images, where noise is compared too,
IMAGES, NOISE = slice(0, 6), slice(6, 8)  # these stay, and noise stands for those, side by side, as they are compared


class Pairs(NamedTuple):
    """Two crops of each image. The second shows the content of the first, moved down and right by the shift."""

    first: Draws
    second: Draws
    shift: Tensor  # [2] int64, one for the whole batch: its maps are moved back by one convolution


def pairs(count: int, generator: torch.Generator) -> Pairs:
    """A shift, and two crops that far apart of each of `count` images, both among those that `augment.draws` draws."""
    shift = torch.randint(-LARGEST, LARGEST + 1, (2,), generator=generator)
    flip = torch.randint(2, (count,), generator=generator).bool()
    down = shift[0].expand(count)
    right = torch.where(flip, -shift[1], shift[1])  # of the image before it is flipped
    corners = [_corners(way, generator) for way in (down, right)]
    first, second = (Draws(corners[0][i], corners[1][i], flip) for i in (0, 1))
    return Pairs(first, second, shift)


def _corners(way: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Where two crops begin along an axis, the second `way` pixels [B] before the first."""
    room = 2 * PADDING - way.abs()
    low = (torch.rand(len(way), generator=generator) * (room + 1)).long().minimum(room)
    first = low + way.clamp_min(0)
    return first, first - way


def part_of(batch: Tensor, which: slice) -> Tensor:
    """The images, or the noise that stands for some, of a batch, or of what each sequence of scales made of it.

    >>> part_of(torch.arange(16), NOISE).tolist()
    [6, 7, 14, 15]
    """
    return batch.unflatten(0, (-1, OF_EVERY))[:, which].flatten(0, 1)


class WithResponses(nn.Module):
    """A network that returns its last map, before the ReLU, beside the logits: of each sequence of scales in turn.

    one_sided: the second sequence has a map only, and no gradient goes through that. Both sequences are drawn alike, so
        either one's part of the gradient of what they differ by has the same mean.
    """

    def __init__(self, model: nn.Module, *, one_sided: bool = False) -> None:
        super().__init__()
        self.model = model
        self.one_sided = one_sided

    def forward(self, x: Tensor, *sequences: object) -> tuple[Tensor, Tensor]:
        """[N, 3, 32, 32] -> [N, classes], [N, 64, 8, 8], N for each sequence."""
        maps = [self._map(x, *sequences[:1])]
        for scales in sequences[1:]:
            with torch.set_grad_enabled(torch.is_grad_enabled() and not self.one_sided):
                maps.append(self._map(x, scales))
        trained = maps[0] if self.one_sided else torch.cat(maps)
        return self.model.head(trained.relu()), torch.cat(maps)  # type: ignore[operator]

    def _map(self, x: Tensor, *scales: object) -> Tensor:
        response: Tensor = self.model.responses(x, *scales)  # type: ignore[operator]
        return response


def inconsistency(responses: Tensor, shift: Tensor) -> Tensor:
    """What two mean similarities lack of 1: those of the maps [2 B, C, h, w] of first and second crops, the second ones
    moved back, before and after the ReLU."""
    shifts = shift.expand(len(responses) // 4, 2)
    return _lacking(responses, lambda first, second: similarities(first, second, shifts))


def disagreement(responses: Tensor) -> Tensor:
    """What two mean similarities lack of 1: those of the whole maps [2 B, C, h, w] that two sequences of scales make of
    the same images, before and after the ReLU."""
    return _lacking(responses, lambda first, second: F.cosine_similarity(first.flatten(1), second.flatten(1)))


def _lacking(responses: Tensor, similarity: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    differences = (maps[0::2] - maps[1::2] for maps in (responses, responses.relu()))  # of images side by side
    before, after = (similarity(*both.chunk(2)).mean() for both in differences)
    return 2 - before - after
