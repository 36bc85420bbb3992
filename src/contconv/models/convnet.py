"""The paper's baseline: an ordinary convolutional network that shrinks by 4 in two strided layers."""

from torch import Tensor, nn

from contconv.models.architecture import Head, PaddingMode, check_padding_mode, layers


class ConvNet(nn.Module):
    """Eight convolutions (3x3 of stride 1; the second and the last 4x4 of stride 2), then FC 512-512-classes.

    Every layer but the last is followed by ReLU. All layers have padding 1, so 32x32 -> 16x16 -> 8x8. The
    fully connected layers need images of 32x32; `features` takes any size. `width` and `hidden` make smaller ones.

    >>> ConvNet()(torch.zeros(2, 3, 32, 32)).shape
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
    ) -> None:
        super().__init__()
        check_padding_mode(padding_mode)
        self.convs = nn.ModuleList(
            nn.Conv2d(i, o, k, stride, padding=1, padding_mode=padding_mode)
            for i, o, k, stride in layers(in_channels, width)
        )
        self.head = Head(2 * width, hidden, classes)

    def responses(self, x: Tensor) -> Tensor:
        """The last convolution's map, before its ReLU: [N, Cin, H, W] -> [N, 64, H/4, W/4]."""
        *convs, last = self.convs
        for conv in convs:
            x = conv(x).relu()
        return last(x)

    def features(self, x: Tensor) -> Tensor:
        """The same, after its ReLU."""
        return self.responses(x).relu()

    def forward(self, x: Tensor) -> Tensor:
        """[N, Cin, 32, 32] -> [N, classes]."""
        return self.head(self.features(x))
