"""`contconv cifar equivariance`: where a trained network's shift-equivariance is lost."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from contconv.cifar import data
from contconv.cifar.shift_causes import Settings, causes
from contconv.cifar.trained import trained
from contconv.commands.cifar_network import OfNetwork


@dataclass(frozen=True)
class Equivariance(OfNetwork):
    """Measure where a network's shift-equivariance is lost: at the borders, by interpolation, to sharp kernels.

    For example: contconv cifar equivariance --pretrained ccnet --data cifar10
    """

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
