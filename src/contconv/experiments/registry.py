"""All experiments, in the order of the report. To add one: write its file and register it here."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from contconv.experiments import conv_special_case, generalize, imitate, misalign
from contconv.experiments.record import Config, Result


@dataclass(frozen=True)
class Experiment:
    """An experiment as data: its config's class, its `run`, what it claims, and what `--quick` changes."""

    config: type[Config]
    run: Callable[[Any], Result]
    statement: str
    quick: dict[str, Any]


EXPERIMENTS: dict[str, Experiment] = {
    "imitate": Experiment(imitate.Imitate, imitate.run, imitate.__doc__ or "", {"steps": 48, "starts": 2}),
    "generalize": Experiment(
        generalize.Generalize, generalize.run, generalize.__doc__ or "", {"steps": 32, "pixels": 60}
    ),
    "misalign": Experiment(misalign.Misalign, misalign.run, misalign.__doc__ or "", {}),
    "conv-special-case": Experiment(
        conv_special_case.ConvSpecialCase, conv_special_case.run, conv_special_case.__doc__ or "", {"steps": 30}
    ),
}


def configured(name: str, *, quick: bool, seed: int, photo: Path | None, out: Path) -> Config:
    """The config that `all` runs an experiment with."""
    experiment = EXPERIMENTS[name]
    config = experiment.config(seed=seed, photo=photo, out=out)
    return replace(config, **experiment.quick) if quick else config


def command(name: str, config: Config) -> str:
    """The command line that gives this config; only what differs from the defaults."""
    return " ".join(["contconv", "experiment", name, *flags(config, leave_out=("out",))])


def flags(config: Any, leave_out: tuple[str, ...] = ()) -> list[str]:
    """The words of a command line that give this dataclass; only what differs from the defaults."""
    words = []
    for field in fields(config):
        value = getattr(config, field.name)
        if value == field.default or field.name in leave_out:
            continue
        words.append(f"--{field.name.replace('_', '-')}")
        words += [str(item) for item in value] if isinstance(value, tuple) else [str(value)]
    return words
