"""`contconv experiment`: the paper's claims, run again."""

import sys
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from contconv.experiments.conv_special_case import ConvSpecialCase
from contconv.experiments.generalize import Generalize
from contconv.experiments.imitate import Imitate
from contconv.experiments.misalign import Misalign
from contconv.experiments.record import Config
from contconv.experiments.registry import EXPERIMENTS, configured
from contconv.experiments.report_words import spoken_time
from contconv.experiments.runner import perform


@dataclass(frozen=True)
class All(Config):
    """Run all experiments and write one report."""

    quick: bool = False
    """Fewer steps, the same claims: about two minutes on two cores."""


@dataclass(frozen=True)
class Experiment:
    """Run the paper's experiments again, and write report.html, report.md and report.json.

    The exit code is 0 if all claims hold, 1 if one fails.
    """

    which: (
        Annotated[All, tyro.conf.subcommand("all")]
        | Annotated[Imitate, tyro.conf.subcommand("imitate")]
        | Annotated[Generalize, tyro.conf.subcommand("generalize")]
        | Annotated[Misalign, tyro.conf.subcommand("misalign")]
        | Annotated[ConvSpecialCase, tyro.conf.subcommand("conv-special-case")]
    )


def obey(command: Experiment) -> int:
    """Run one or all; what is finished stays, whatever happens to the rest."""
    config: Config = command.which
    if isinstance(config, All):
        common: dict[str, Any] = {"quick": config.quick, "seed": config.seed, "photo": config.photo, "out": config.out}
        todo = {name: configured(name, **common) for name in EXPERIMENTS}
    else:
        todo = {name: config for name, one in EXPERIMENTS.items() if type(config) is one.config}
    passed = True
    for name, one in todo.items():
        print(f"{name} ...", file=sys.stderr, flush=True)
        record = perform(name, one)
        passed = passed and record["passed"]
        for claim in record["claims"]:
            print(f"{'pass' if claim['passed'] else 'FAIL'}  {claim['name']}: {claim['ours']} ({claim['wanted']})")
        print(f"      {spoken_time(record['seconds'])}", flush=True)
    print(f"report: {config.out / 'report.html'}")
    return 0 if passed else 1
