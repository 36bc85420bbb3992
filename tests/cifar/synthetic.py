"""Little images in the official layout, and a run on them: `python synthetic.py OUT PROCESSES EPOCHS [CONSISTENCY]`."""

import json
import sys
from pathlib import Path
from unittest.mock import patch

import torch
from safetensors.torch import load_file

from contconv import strategies
from contconv.cifar.data import FILES, Images, read
from contconv.cifar.fabrics import Devices, launched, leave
from contconv.cifar.recipe import Config, recipe
from contconv.cifar.training import Watching, train
from contconv.models.networks import Network
from contconv.strategies import Problem, Strategy

PER_FILE = 16
CONVNET = Network("convnet", width=4, hidden=16)
TINY = Network("ccnet", "spline", width=4, hidden=16)


def write(folder: Path, per_file: int = PER_FILE) -> None:
    """The six files, random but always the same; each class has its own brightness, which can be learned."""
    folder.mkdir(parents=True, exist_ok=True)
    source = torch.Generator().manual_seed(1)
    for names in FILES.values():
        for name in names:
            labels = torch.randint(10, (per_file, 1), generator=source)
            noise = torch.randint(100, (per_file, 3072), generator=source)
            records = torch.cat([labels, 15 * labels + noise], dim=1).to(torch.uint8)
            (folder / name).write_bytes(bytes(records.flatten().tolist()))


def images(folder: Path) -> tuple[Images, Images]:
    """What `write` wrote: train and test."""
    return read(folder, "train", per_file=PER_FILE), read(folder, "test", per_file=PER_FILE)


OF_THE_RECIPE = (
    "batch",
    "diffusion",
    "consistency",
    "agreement",
    "agreement_from",
    "agreement_every",
    "agreement_noise",
)


def config(epochs: int, network: Network = TINY, **changes) -> Config:
    """Ten steps of eight images an epoch; with a consistency twice as many of four in two crops."""
    own = {"batch": 8, **{name: changes.pop(name) for name in OF_THE_RECIPE if name in changes}}
    short = recipe("short", network.model, epochs=epochs, label_smoothing=0.1, **own)
    return Config(network, short, **changes)


def run(
    out: Path, epochs: int, processes: int = 1, data: Path | None = None, *, alike: bool = False, **changes
) -> dict:
    """Train on the images in `data`, by default beside `out`.

    alike: by one strategy whatever the batch, because each rounds in its own way.
    """
    if alike:
        with patch.object(strategies, "_chosen", _conv_or_phases):
            return run(out, epochs, processes, data, **changes)
    torch.set_num_threads(1)
    train_images, test_images = images(data or out.parent / "data")
    fabric = launched(Devices("cpu", processes), "32-true")
    watching = Watching(log_every=1, test_every=2)
    return train(config(epochs, **changes), train_images, test_images, out, fabric=fabric, watching=watching)


def _conv_or_phases(problem: Problem, *_: object) -> Strategy:
    conv, phases = (strategies.STRATEGIES[name] for name in ("conv", "phases"))
    return phases if conv.why_not(problem) else conv


def same_weights(one: Path, other: Path) -> bool:
    """Of two finished runs, to the last bit."""
    first, second = load_file(one / "model.safetensors"), load_file(other / "model.safetensors")
    assert first.keys() == second.keys()
    return all(torch.equal(first[name], second[name]) for name in first)


if __name__ == "__main__":
    out, processes, epochs, *more = sys.argv[1:]
    changes = {name: json.loads(value) for name, value in (one.split("=") for one in more)}
    run(Path(out), epochs=int(epochs), processes=int(processes), **changes)
    leave()
