"""`contconv cifar publish`: trained weights as they come with the package."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from contconv.cifar import data, publication
from contconv.cifar.trained import trained
from contconv.models.published import FOLDER


@dataclass(frozen=True)
class Publish:
    """Write a run's weights where --pretrained finds them: in half precision, if that changes (almost) no class."""

    run: tyro.conf.Positional[Path]
    """The folder of a run of `contconv cifar train`, or a file of weights."""
    data: Path
    """The folder with CIFAR-10 in its binary form; only the test images are read."""
    name: str | None = None
    """The name for --pretrained; by default that of the model."""
    dtype: Literal["float16", "float32"] = "float16"
    most_changed: float = 0.1
    """The largest percentage of test images that may be given another class than by the full weights."""
    out: Path = FOLDER
    """The folder; by default the package's own."""


def obey(command: Publish) -> int:
    """Check, write, and say what was lost."""
    network = trained(command.run)
    path = command.out / f"{command.name or network.network.model}.safetensors"
    test = data.read(command.data, "test")
    known = publication.write(path, network, test, dtype=command.dtype, most_changed=command.most_changed)
    print(
        f"{path}: {path.stat().st_size / 2**20:.1f} MB in {command.dtype}; accuracy {known['accuracy']:.2f} % "
        f"({known['full_accuracy']:.2f} % before), {known['changed']} of {known['images']} images in another class"
    )
    return 0
