"""Training for equivariance: each image in two crops, and what their maps differ by once one is moved onto the other.

The difference is measured as `equivariance` measures it, before the ReLU and after it: before it alone, a map can be
made similar to any other by a large negative offset, which the ReLU takes away again.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from contconv.cifar.augment import PADDING, Draws
from contconv.cifar.equivariance import similarities

LARGEST = 6  # pixels between two crops of an image, along each axis


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


class WithResponses(nn.Module):
    """A network that returns its last map, before the ReLU, beside the logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, *scales: object) -> tuple[Tensor, Tensor]:
        """[N, 3, 32, 32] -> [N, classes], [N, 64, 8, 8]."""
        responses = self.model.responses(x, *scales)  # type: ignore[operator]
        return self.model.head(responses.relu()), responses  # type: ignore[operator]


def inconsistency(responses: Tensor, shift: Tensor) -> Tensor:
    """What two mean similarities lack of 1: those of the maps [2 B, C, h, w] of first and second crops, the second ones
    moved back, before and after the ReLU."""
    shifts = shift.expand(len(responses) // 2, 2)
    similar = []
    for maps in (responses, responses.relu()):
        first, second = maps.chunk(2)
        similar.append(similarities(first, second, shifts).mean())
    return 2 - similar[0] - similar[1]
