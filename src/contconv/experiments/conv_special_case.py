"""At scale 1/k, with k and the kernel size of one parity, a continuous convolution is `nn.Conv2d`, also in training.

The paper (Features, "A standard Conv-layer is a special case of the CC-Layer"): when s = 1/k and k has the parity of
the kernel's support, all output points share one set of weights, which is a standard convolution.

Claim: with any kernel, the outputs agree to 1e-12 of the largest; with the same taps to begin with, the losses of a
training agree to 1e-9 at every step. Some seconds.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from contconv.experiments.progress import Bar
from contconv.experiments.record import Config, Figure, Result, at_most, check_positive
from contconv.images import photo
from contconv.kernels import KERNELS, Table
from contconv.modules import ContinuousConv2d

PAPER = "for scale 1/k and matching parity the continuous layer reduces to a standard convolution"
CASES = ((1, 3), (1, 5), (2, 2), (2, 4), (3, 3), (4, 4))  # stride, kernel size


@dataclass(frozen=True)
class ConvSpecialCase(Config):
    """Compare a continuous layer at scale 1/k with nn.Conv2d: pictures and training."""

    steps: int = 60
    """Of Adam, in the training that is compared."""
    channels: int = 8
    """Output channels of both layers."""


def run(config: ConvSpecialCase) -> Result:
    """Compare outputs for every kernel, then trainings."""
    check_positive(config, "steps", "channels")
    torch.manual_seed(config.seed)
    image = photo(config.photo)[:, 0][None]
    height, width = (n // 12 * 12 for n in image.shape[2:])  # divisible by every k
    image = image[:, :, : min(height, 240), : min(width, 240)].contiguous()
    pictures = {
        f"{name}, k={k}, {size}x{size}": difference(image, name, k, size, config.channels)
        for name in KERNELS
        for k, size in CASES
    }
    crop = image[:, :, :96, :96].contiguous()
    with Bar(len(CASES) * config.steps, "conv-special-case") as bar:
        losses = {f"k={k}, {size}x{size}": trainings(crop, k, size, config, bar) for k, size in CASES}
    gaps = {name: max(abs(a - b) / abs(a) for a, b in zip(*both, strict=True)) for name, both in losses.items()}
    apart, gap = [max(pictures.values())], [max(gaps.values())]
    claims = (
        at_most("conv special case: same picture", PAPER, apart, 1e-12, "largest relative difference"),
        at_most("conv special case: same training", PAPER, gap, 1e-9, "largest relative gap of losses"),
    )
    numbers = {"difference": pictures, "loss_gap": gaps, "losses": losses}
    return Result(claims, numbers, figures(image, losses, config))


def layers(channels: int, out: int, k: int, size: int, kernel: str | nn.Module) -> tuple[ContinuousConv2d, nn.Conv2d]:
    """A continuous layer at scale 1/k and the convolution that should equal it."""
    continuous = ContinuousConv2d(channels, out, size, 1 / k, kernel=kernel, dtype=torch.float64)
    discrete = nn.Conv2d(channels, out, size, stride=k, padding=(size - k) // 2, dtype=torch.float64)
    return continuous, discrete


@torch.no_grad()
def difference(image: Tensor, kernel: str, k: int, size: int, out: int) -> float:
    """The largest difference of the outputs, relative to the largest output, when both have the same taps."""
    continuous, discrete = layers(image.shape[1], out, k, size, kernel)
    discrete.weight.copy_(taps(continuous, size))
    copy_bias(continuous, discrete)
    wanted = discrete(image)
    return ((continuous(image) - wanted).abs().max() / wanted.abs().max()).item()


def copy_bias(source: ContinuousConv2d | nn.Conv2d, target: ContinuousConv2d | nn.Conv2d) -> None:
    assert source.bias is not None
    assert target.bias is not None
    target.bias.copy_(source.bias)


def taps(layer: ContinuousConv2d, size: int) -> Tensor:
    """[Cout, Cin, K, K] the layer's kernel where a centred window of pixels looks at it."""
    line = (size - 1) / 2 - torch.arange(size, dtype=torch.float64)
    d = torch.stack(torch.meshgrid(line, line, indexing="ij"), -1)
    return layer.kernel(d).movedim((0, 1), (2, 3))


def trainings(image: Tensor, k: int, size: int, config: ConvSpecialCase, bar: Bar) -> tuple[list[float], list[float]]:
    """The losses of both layers while they learn the same thing from the same start."""
    torch.manual_seed(config.seed)
    teacher = nn.Conv2d(image.shape[1], config.channels, size, stride=k, padding=(size - k) // 2, dtype=torch.float64)
    _, discrete = layers(image.shape[1], config.channels, k, size, "internal")
    with torch.no_grad():
        wanted = torch.tanh(3 * teacher(image))
    table = Table(nn.Parameter(discrete.weight.detach().clone()))
    continuous, _ = layers(image.shape[1], config.channels, k, size, table)
    with torch.no_grad():
        copy_bias(discrete, continuous)
    return (
        losses_of(discrete, image, wanted, config.steps, None),
        losses_of(continuous, image, wanted, config.steps, bar),
    )


def losses_of(layer: nn.Module, image: Tensor, wanted: Tensor, steps: int, bar: Bar | None) -> list[float]:
    """The loss before every step of Adam."""
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (layer(image) - wanted).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if bar is not None:
            bar.step(losses[-1])
    return losses


def figures(
    image: Tensor, losses: dict[str, tuple[list[float], list[float]]], config: ConvSpecialCase
) -> tuple[Figure, ...]:
    return (
        Figure(
            "conv-special-case",
            "An edge filter of 4x4 taps at scale 1/2, by nn.Conv2d with stride 2 and by the continuous layer: the same "
            "picture. Right: the losses of both while they train from the same start, at every stride; lines are "
            "nn.Conv2d, dots the continuous layer.",
            lambda: pictures_and_losses(image, losses),
        ),
    )


@torch.no_grad()
def pictures_and_losses(image: Tensor, losses: dict[str, tuple[list[float], list[float]]]) -> Any:
    """Two pictures of the same filter, their difference, and two sets of losses."""
    from matplotlib import pyplot

    slope = torch.tensor([-1.0, -1.0, 1.0, 1.0], dtype=torch.float64)
    filter_ = torch.outer(torch.ones(4, dtype=torch.float64), slope)[None, None].expand(1, image.shape[1], 4, 4)
    continuous, discrete = layers(image.shape[1], 1, 2, 4, Table(filter_.contiguous()))
    discrete.weight.copy_(filter_)
    for layer in (continuous, discrete):
        assert layer.bias is not None
        layer.bias.zero_()
    figure, places = pyplot.subplots(1, 3, figsize=(10.5, 3.1), layout="constrained", width_ratios=[1, 1, 1.5])
    for place, layer, title in ((places[0], discrete, "nn.Conv2d"), (places[1], continuous, "continuous")):
        place.imshow(layer(image)[0, 0].abs().numpy(), cmap="gray", vmin=0, vmax=4)
        place.set_title(title, fontsize=9)
        place.set_xticks([])
        place.set_yticks([])
    for name, (of_conv, of_continuous) in losses.items():
        (line,) = places[2].plot(of_conv, label=name)
        places[2].plot(range(0, len(of_continuous), 6), of_continuous[::6], "o", markersize=4, color=line.get_color())
    places[2].set_yscale("log")
    places[2].set_xlabel("step of Adam")
    places[2].set_ylabel("loss")
    places[2].grid(alpha=0.15)
    places[2].legend(frameon=False, fontsize=8)
    return figure
