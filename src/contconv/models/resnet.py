"""The residual networks for CIFAR-10 of He et al. 2015 (section 4.2), with shortcuts that have no parameters."""

import copy
import re
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contconv.conversion import load_weights
from contconv.models.blurpool import BlurPool
from contconv.models.networks import read_tensors

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # what published weights expect of the input's channels


class Shortcut(nn.Module):
    """Every second pixel, and zeros for the channels that are new (option A of the paper).

    The pixels are picked by a pooling of one pixel, a layer that `contconv.convert` knows: at other scales it takes the
    size of the convolution beside it, which a slice in the code could not.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.pick: nn.Module = nn.AvgPool2d(1, stride)
        self.new_channels = out_channels - in_channels

    def forward(self, x: Tensor) -> Tensor:
        before = self.new_channels // 2
        return F.pad(self.pick(x), (0, 0, 0, 0, before, self.new_channels - before))


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.blur: nn.Module = nn.Identity()
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        same = stride == 1 and in_channels == out_channels
        self.shortcut = nn.Identity() if same else Shortcut(in_channels, out_channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.blur(F.relu(self.bn1(self.conv1(x))))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """[N, 3, H, W] -> [N, classes]: three stages of 16, 32 and 64 channels, each of `blocks` blocks.

    >>> ResNet(blocks=3)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(self, blocks: int, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, blocks, stride=1)
        self.layer2 = _stage(16, 32, blocks, stride=2)
        self.layer3 = _stage(32, 64, blocks, stride=2)
        self.linear = nn.Linear(64, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(x.mean((2, 3)))


def _stage(in_channels: int, out_channels: int, blocks: int, stride: int) -> nn.Sequential:
    first = Block(in_channels, out_channels, stride)
    return nn.Sequential(first, *(Block(out_channels, out_channels, 1) for _ in range(blocks - 1)))


def resnet20(weights: Path | str | None = None) -> ResNet:
    """20 layers, 0.27 M parameters; `weights` is a safetensors file."""
    return _loaded(ResNet(blocks=3), weights)


def resnet56(weights: Path | str | None = None) -> ResNet:
    """56 layers, 0.85 M parameters; `weights` is a safetensors file."""
    return _loaded(ResNet(blocks=9), weights)


def resnet(weights: Path | str) -> ResNet:
    """As many blocks as a safetensors file has weights for."""
    tensors, _ = read_tensors(Path(weights))
    numbers = [int(found[1]) for name in tensors if (found := re.match(r"layer1\.(\d+)\.", name))]
    if not numbers:
        raise ValueError(f"weights: {weights} is not a ResNet for CIFAR-10: it has no layer1")
    return _loaded(ResNet(blocks=max(numbers) + 1), weights)


def antialiased(model: ResNet) -> ResNet:
    """A copy whose blocks of stride 2 have BlurPool instead (R. Zhang, 2019), with the same weights in the same places.

    The convolution is dense, and after its ReLU comes the blur that takes every second pixel; so it does in the
    shortcut.
    """
    smooth = copy.deepcopy(model)
    for block in smooth.modules():
        if isinstance(block, Block) and block.conv1.stride != (1, 1):
            assert isinstance(block.shortcut, Shortcut)
            block.conv1.stride = (1, 1)
            block.blur = BlurPool()
            block.shortcut.pick = BlurPool()
    return smooth


def _loaded(model: ResNet, weights: Path | str | None) -> ResNet:
    """The model with the weights of a file, in evaluation mode; as it is without one."""
    if weights is None:
        return model
    load_weights(model, weights)
    return model.eval()


def normalized(images: Tensor) -> Tensor:
    """[N, 3, H, W] in 0 ... 1 -> what the published weights expect."""
    mean, std = (torch.tensor(values, dtype=images.dtype, device=images.device) for values in (MEAN, STD))
    return (images - mean[:, None, None]) / std[:, None, None]
