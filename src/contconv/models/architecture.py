"""What all networks here share: the paper's table of convolutional layers, and the fully connected ones after them."""

from typing import Literal, NamedTuple

from torch import Tensor, nn

from contconv.grid import PADDING_MODES
from contconv.size import exact_size

PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]

INPUT_SIZE = 32  # of CIFAR images, which is what the fully connected layers are made for
SHRINK = 4  # from the input to the last map, along each axis
MAP_SIZE = INPUT_SIZE // SHRINK


class Layer(NamedTuple):
    """One line of the table."""

    in_channels: int
    out_channels: int
    kernel_size: int
    stride: int


def layers(in_channels: int, width: int) -> list[Layer]:
    """The paper's eight layers, at width 32: `width` channels in the first two, twice as many in the others."""
    exact_size(in_channels, "in_channels")
    exact_size(width, "width")
    wide = 2 * width
    return [
        Layer(in_channels, width, 3, 1),
        Layer(width, width, 4, 2),
        Layer(width, wide, 3, 1),
        *[Layer(wide, wide, 3, 1)] * 4,
        Layer(wide, wide, 4, 2),
    ]


class Head(nn.Module):
    """A map of 8x8 -> FC 512 -> FC 512 -> FC classes, with ReLU in between."""

    def __init__(self, channels: int, hidden: int, classes: int) -> None:
        super().__init__()
        exact_size(hidden, "hidden")
        exact_size(classes, "classes")
        self.first = nn.Linear(channels * MAP_SIZE**2, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.last = nn.Linear(hidden, classes)

    def forward(self, features: Tensor) -> Tensor:
        """[N, C, 8, 8] -> [N, classes]."""
        if features.shape[-2:] != (MAP_SIZE, MAP_SIZE):
            height, width = features.shape[-2:]
            raise ValueError(
                f"the fully connected layers need a last map of {MAP_SIZE}x{MAP_SIZE}, got {height}x{width}: give "
                f"images of {INPUT_SIZE}x{INPUT_SIZE} and, if any, scales whose product is 1/{SHRINK}; "
                f"features() takes any size"
            )
        hidden = self.first(features.flatten(1)).relu()
        return self.last(self.second(hidden).relu())


def check_padding_mode(padding_mode: str) -> None:
    """Refuse what no layer knows."""
    if padding_mode not in PADDING_MODES:
        raise ValueError(f"padding_mode must be one of {', '.join(PADDING_MODES)}, got {padding_mode!r}")
