"""Which trained network a command of `contconv cifar` is about, and where the images are."""

from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True)
class OfNetwork:
    """Options that commands share."""

    data: Path
    """The folder with CIFAR-10 in its binary form; only the test images are read."""
    run: tyro.conf.Positional[Path | None] = None
    """The folder of a run of `contconv cifar train`, or a file of weights."""
    pretrained: str | None = None
    """Instead of a run: the name of weights that come with the package (ccnet, convnet, blurpool)."""
