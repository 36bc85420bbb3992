"""Weights made ready to be handed out: in half precision, if that changes nothing that matters."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import torch

from contconv.cifar.accuracy import accuracy, logits
from contconv.cifar.augment import normalized
from contconv.cifar.data import Images
from contconv.cifar.trained import Trained
from contconv.experiments.record import versions
from contconv.models.published import publish, rounded

DTYPES = {"float16": torch.float16, "float32": torch.float32}


def published_facts(trained: Trained, test: Images, dtype: str, most_changed: float) -> dict[str, Any]:
    """What rounding to a precision does to the classes of the test images; refused if it changes too many of them.

    most_changed: the largest percentage of images that may be given another class than by the full weights.
    """
    if not 0 <= most_changed <= 100:
        raise ValueError(f"most_changed must be a percentage, got {most_changed}")
    model = deepcopy(trained.model)
    model.load_state_dict({name: tensor.float() for name, tensor in rounded(model, DTYPES[dtype]).items()})
    x = normalized(test.pixels)
    full, less = logits(trained.model, x), logits(model, x)
    changed = int((full.argmax(1) != less.argmax(1)).sum())
    if 100 * changed > most_changed * len(test):
        raise ValueError(
            f"{changed} of {len(test)} test images change their class in {dtype}, more than the {most_changed:g} % "
            f"that --most-changed allows; publish in float32"
        )
    return {
        "accuracy": accuracy(less, test.labels),
        "full_accuracy": accuracy(full, test.labels),
        "changed": changed,
        "images": len(test),
        "dtype": dtype,
        "config": without_folders(trained.config),
        "course": trained.course,
        "versions": versions(),
    }


def without_folders(config: dict[str, Any] | None) -> dict[str, Any] | None:
    """A config that says what weights a run began with by the file's name and checksum, not where they lay.

    >>> without_folders({"seed": 0, "init": {"path": "runs/first/model.safetensors", "sha256": "ab"}})
    {'seed': 0, 'init': {'path': 'model.safetensors', 'sha256': 'ab'}}
    """
    if config is None or config.get("init") is None:
        return config
    begun = config["init"]
    return {**config, "init": {**begun, "path": Path(begun["path"]).name}}


def write(path: Path, trained: Trained, test: Images, *, dtype: str, most_changed: float) -> dict[str, Any]:
    """Check, write the weights with their facts, and return the facts."""
    known = published_facts(trained, test, dtype, most_changed)
    publish(path, rounded(trained.model, DTYPES[dtype]), trained.network, known)
    return known
