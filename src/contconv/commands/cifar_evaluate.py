"""`contconv cifar evaluate`: what the paper measures on a trained network."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from contconv.cifar import data, evaluated
from contconv.cifar.evaluation import Settings
from contconv.cifar.trained import trained
from contconv.commands.cifar_network import OfNetwork
from contconv.experiments.registry import flags
from contconv.experiments.report_words import spoken_time


@dataclass(frozen=True)
class Evaluate(OfNetwork):
    """Measure a trained network: accuracy, shift-equivariance, class consistency and scale ensembles.

    For example: contconv cifar evaluate --pretrained ccnet --data cifar10
    """

    out: Path | None = None
    """The JSON file to write; by default evaluation.json in the run's folder, else out/cifar/NAME.json."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = Settings()  # noqa: RUF009 - frozen


def out_of(command: Evaluate) -> Path:
    """Where the evaluation goes."""
    if command.out is not None:
        return command.out
    if command.run is not None and command.run.is_dir():
        return command.run / "evaluation.json"
    return Path("out/cifar") / f"{command.pretrained or (command.run and command.run.stem)}.json"


def obey(command: Evaluate) -> int:
    """Evaluate, write, and say the main figures."""
    network = trained(command.run, command.pretrained)
    test = data.read(command.data, "test")
    words = ["contconv", "cifar", "evaluate", network.source, "--data", "DIR", *flags(command.settings)]
    record = evaluated.record(network, test, command.settings, " ".join(words))
    evaluated.write(out_of(command), record)
    results = record["results"]
    print(f"accuracy {results['accuracy']:.2f} % on {results['images']} images")
    for inputs in ("images", "noise"):
        found = results["equivariance"][inputs]
        print(f"equivariance, {inputs}: " + ", ".join(f"±{n} {one['similarity']:.3f}" for n, one in found.items()))
    for row in (results["ensemble"] or {"members": []})["members"]:
        print(f"ensemble of {row['k']}: {row['mean']:.2f} ± {row['std']:.2f} %, {gains(row)}")
    print(f"{out_of(command)}, {spoken_time(sum(results['seconds'].values()))}")
    return 0


def gains(row: evaluated.Record) -> str:
    """What an ensemble gains, in words."""
    alone, default = row["over_members"], row["over_default"]
    return f"{alone['mean']:+.2f} over its members (p = {alone['p']:.2g}), {default['mean']:+.2f} over the default"
