"""`contconv cifar`: the paper's networks on CIFAR-10."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from contconv.commands import cifar_elastic, cifar_equivariance, cifar_evaluate, cifar_publish, cifar_table, cifar_train

OBEY: dict[type, Callable[[Any], int]] = {
    cifar_train.Train: cifar_train.obey,
    cifar_evaluate.Evaluate: cifar_evaluate.obey,
    cifar_equivariance.Equivariance: cifar_equivariance.obey,
    cifar_table.Table: cifar_table.obey,
    cifar_publish.Publish: cifar_publish.obey,
    cifar_elastic.Elastic: cifar_elastic.obey,
}


@dataclass(frozen=True)
class Cifar:
    """The paper's networks on CIFAR-10."""

    which: (
        Annotated[cifar_train.Train, tyro.conf.subcommand("train")]
        | Annotated[cifar_evaluate.Evaluate, tyro.conf.subcommand("evaluate")]
        | Annotated[cifar_equivariance.Equivariance, tyro.conf.subcommand("equivariance")]
        | Annotated[cifar_table.Table, tyro.conf.subcommand("table")]
        | Annotated[cifar_publish.Publish, tyro.conf.subcommand("publish")]
        | Annotated[cifar_elastic.Elastic, tyro.conf.subcommand("elastic")]
    )


def obey(command: Cifar) -> int:
    """Run what was asked for."""
    return OBEY[type(command.which)](command.which)
