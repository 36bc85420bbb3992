"""`contconv cifar`: the paper's networks on CIFAR-10."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from contconv.commands import cifar_evaluate, cifar_publish, cifar_table, cifar_train


@dataclass(frozen=True)
class Cifar:
    """The paper's networks on CIFAR-10."""

    which: (
        Annotated[cifar_train.Train, tyro.conf.subcommand("train")]
        | Annotated[cifar_evaluate.Evaluate, tyro.conf.subcommand("evaluate")]
        | Annotated[cifar_table.Table, tyro.conf.subcommand("table")]
        | Annotated[cifar_publish.Publish, tyro.conf.subcommand("publish")]
    )


def obey(command: Cifar) -> int:
    """Run what was asked for."""
    which = command.which
    if isinstance(which, cifar_train.Train):
        return cifar_train.obey(which)
    if isinstance(which, cifar_evaluate.Evaluate):
        return cifar_evaluate.obey(which)
    if isinstance(which, cifar_table.Table):
        return cifar_table.obey(which)
    return cifar_publish.obey(which)
