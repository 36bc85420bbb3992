"""Small networks of the kinds that people have."""

import torch
from torch import nn
from torch.nn import functional as F


class Residual(nn.Module):
    """A strided block beside a strided shortcut, twice; then a global mean."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.down1, self.same1, self.short1 = _block(8)
        self.down2, self.same2, self.short2 = _block(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = F.relu(self.stem(x))
        x = F.relu(self.same1(F.relu(self.down1(x))) + self.short1(x))
        x = F.relu(self.same2(F.relu(self.down2(x))) + self.short2(x))
        return self.head(x.mean((2, 3)))


def _block(channels):
    return (
        nn.Conv2d(channels, channels, 3, 2, 1),
        nn.Conv2d(channels, channels, 3, 1, 1),
        nn.Conv2d(channels, channels, 1, 2),
    )


class Sliced(nn.Module):
    """A shortcut that is a slice in the code."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.down = nn.Conv2d(8, 8, 3, 2, 1)

    def forward(self, x):
        x = self.stem(x)
        return self.down(x) + x[:, :, ::2, ::2]


class UNet(nn.Module):
    """Two levels down by convolution and pooling, two up by a transposed convolution and `nn.Upsample`."""

    def __init__(self):
        super().__init__()
        self.inside = nn.Conv2d(3, 4, 3, padding=1)
        self.down1 = nn.Conv2d(4, 8, 3, 2, 1)
        self.down2 = nn.MaxPool2d(2)
        self.middle = nn.Conv2d(8, 8, 3, padding=1)
        self.up2 = nn.ConvTranspose2d(8, 8, 2, 2)
        self.up1 = nn.Upsample(scale_factor=2, mode="bilinear")
        self.outside = nn.Conv2d(20, 2, 3, padding=1)

    def forward(self, x):
        a = F.relu(self.inside(x))
        b = F.relu(self.down1(a))
        c = F.relu(self.middle(self.down2(b)))
        b = torch.cat([b, self.up2(c)], 1)
        return self.outside(torch.cat([a, self.up1(b)], 1))


class Branches(nn.Module):
    """A convolution and a pooling whose outputs are concatenated, then a flattening that needs its size."""

    def __init__(self, flatten=True):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, 2, 1)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.last = nn.Conv2d(7, 4, 3, 2, 1)
        self.flatten = flatten
        self.head = nn.Linear(4 * 8 * 8, 5)

    def forward(self, x):
        x = self.last(torch.cat([self.conv(x), self.pool(x)], 1))
        return self.head(x.flatten(1)) if self.flatten else x


class Audio(nn.Module):
    """Strided, dilated and depthwise convolutions in one dimension."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Conv1d(1, 8, 16, 8)
        self.layers = nn.ModuleList(nn.Conv1d(8, 8, 3, padding=2**i, dilation=2**i, groups=8) for i in range(4))
        self.decode = nn.ConvTranspose1d(8, 1, 16, 8)

    def forward(self, x):
        y = self.encode(x)
        for layer in self.layers:
            y = y + F.relu(layer(y))
        return self.decode(y)


NETS = {"residual": Residual, "sliced": Sliced, "unet": UNet, "branches": Branches, "audio": Audio}


def input_of(name, batch=2):
    return torch.randn(batch, 1, 1000) if name == "audio" else torch.randn(batch, 3, 32, 32)
