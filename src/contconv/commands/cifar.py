"""`contconv cifar`: the paper's networks on CIFAR-10."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from contconv.commands import cifar_train


@dataclass(frozen=True)
class Cifar:
    """The paper's networks on CIFAR-10."""

    # tyro makes subcommands of a union only, hence the None that cannot be chosen.
    which: Annotated[cifar_train.Train, tyro.conf.subcommand("train")] | Annotated[None, tyro.conf.Suppress]


def obey(command: Cifar) -> int:
    """Run what was asked for."""
    assert command.which is not None
    return cifar_train.obey(command.which)
