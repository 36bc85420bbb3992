"""ConvNet with antialiased strides, after R. Zhang, "Making Convolutional Networks Shift-Invariant Again" (2019)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contconv.models.architecture import Head, PaddingMode, check_padding_mode, layers
from contconv.size import exact_size


class BlurPool(nn.Module):
    """A binomial blur of every channel, then every second pixel: [N, C, H, W] -> [N, C, ceil(H/2), ceil(W/2)].

    >>> BlurPool()(torch.ones(1, 1, 31, 31)).shape
    torch.Size([1, 1, 16, 16])
    """

    taps: Tensor

    def __init__(self, size: int = 3) -> None:
        super().__init__()
        if exact_size(size, "size") % 2 == 0:
            raise ValueError(f"size must be odd, so that the blur stays centred, got {size}")
        self.size = size
        self.register_buffer("taps", binomial(size), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        channels, reach = x.shape[1], self.size // 2
        square = torch.outer(self.taps, self.taps).to(x.dtype)
        padded = F.pad(x, (reach,) * 4, mode="reflect")
        return F.conv2d(padded, square.expand(channels, 1, -1, -1), stride=2, groups=channels)

    def extra_repr(self) -> str:
        return f"size={self.size}"


def binomial(size: int) -> Tensor:
    """A row of Pascal's triangle, with sum one.

    >>> binomial(3)
    tensor([0.2500, 0.5000, 0.2500])
    """
    row = torch.ones(1)
    for _ in range(size - 1):
        row = F.pad(row, (1, 0)) + F.pad(row, (0, 1))
    return row / row.sum()


class BlurPoolNet(nn.Module):
    """ConvNet whose two strided convolutions are dense ones, ReLU, and a binomial blur with stride 2.

    A dense 4x4 convolution of padding 1 makes 31 pixels of 32, half a pixel off; every second of them, from the first,
    is where the strided one looks, so both networks have the same maps in the same places. The blur has no parameters:
    a ConvNet's state fits a BlurPoolNet. It reflects the map at the border, as its author's does.

    >>> BlurPoolNet()(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        in_channels: int = 3,
        classes: int = 10,
        *,
        width: int = 32,
        hidden: int = 512,
        padding_mode: PaddingMode = "zeros",
        blur: int = 3,
    ) -> None:
        super().__init__()
        check_padding_mode(padding_mode)
        table = layers(in_channels, width)
        self.convs = nn.ModuleList(nn.Conv2d(i, o, k, padding=1, padding_mode=padding_mode) for i, o, k, _ in table)
        self.blurs = nn.ModuleList(BlurPool(blur) if stride > 1 else nn.Identity() for *_, stride in table)
        self.head = Head(2 * width, hidden, classes)

    def responses(self, x: Tensor) -> Tensor:
        """The last map, blurred and subsampled after its ReLU: [N, Cin, H, W] -> [N, 64, H/4, W/4]."""
        for conv, blur in zip(self.convs, self.blurs, strict=True):
            x = blur(conv(x).relu())
        return x

    def features(self, x: Tensor) -> Tensor:
        """The same: a blur of what is not negative is not."""
        return self.responses(x)

    def forward(self, x: Tensor) -> Tensor:
        """[N, Cin, 32, 32] -> [N, classes]."""
        return self.head(self.features(x))
