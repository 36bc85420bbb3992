"""`contconv cifar equivariance`: where a trained network's shift-equivariance is lost."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from contconv.cifar import data
from contconv.cifar.shift_causes import Settings, causes
from contconv.cifar.trained import trained


@dataclass(frozen=True)
class Equivariance:
    """Measure where a network's shift-equivariance is lost: at the borders, by interpolation, to sharp kernels.

    For example: contconv cifar equivariance --pretrained ccnet --data cifar10
    """

    data: Path
    """The folder with CIFAR-10 in its binary form; only the test images are read."""
    run: tyro.conf.Positional[Path | None] = None
    """The folder of a run of `contconv cifar train`, or a file of weights."""
    pretrained: str | None = None
    """Instead of a run: the name of weights that come with the package (ccnet, convnet, blurpool)."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = Settings()  # noqa: RUF009 - frozen


def obey(command: Equivariance) -> int:
    """Measure, and print a table."""
    network = trained(command.run, command.pretrained)
    test = data.read(command.data, "test").first(command.settings.images)
    found = causes(network.model, test.pixels, command.settings)
    print("| similarity | " + " | ".join(f"±{largest}" for largest in command.settings.shifts) + " |")
    print("|---|" + "---|" * len(command.settings.shifts))
    for inputs, ways in found.items():
        for way, by_shift in ways.items():
            print(f"| {inputs}, {way} | " + " | ".join(f"{value:.3f}" for value in by_shift.values()) + " |")
    return 0
