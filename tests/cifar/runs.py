"""Runs that nobody trained, in the form that training leaves them, and the little images to evaluate them on."""

from pathlib import Path

import torch

from contconv.cifar import data, folder
from contconv.cifar.log import EPOCHS
from contconv.cifar.recipe import Config, recipe
from contconv.models.networks import Network, build, save_weights

PER_FILE = 24
CONVNET = Network("convnet", width=4, hidden=8)
CCNET = Network("ccnet", "spline", width=4, hidden=8)


def images(count: int = PER_FILE) -> data.Images:
    generator = torch.Generator().manual_seed(3)
    pixels = torch.randint(256, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return data.Images(pixels, torch.randint(10, (count,), generator=generator))


def write_data(place: Path) -> None:
    """All six files of the official layout, alike, with few images."""
    place.mkdir(parents=True)
    some = images()
    records = torch.cat([some.labels[:, None].to(torch.uint8), some.pixels.flatten(1)], 1)
    for names in data.FILES.values():
        for name in names:
            (place / name).write_bytes(bytes(records.flatten().tolist()))


def write_run(place: Path, network: Network, *, seed: int = 0, epochs: int = 3, seconds: float = 10.0) -> Path:
    """A finished run with random weights and a made-up course."""
    torch.manual_seed(seed)
    folder.write_config(place, Config(network, recipe("short", network.model, epochs=epochs), seed=seed), 1)
    save_weights(place / folder.WEIGHTS, build(network), network)
    lines = ["epoch,loss,accuracy,test_accuracy,seconds,test_seconds"]
    lines += [f"{n},{2.3 / n},0.1,{0.1 * n if n != 2 else ''},{seconds + n},1.0" for n in range(1, epochs + 1)]
    (place / EPOCHS).write_text("\n".join(lines) + "\n")
    return place
