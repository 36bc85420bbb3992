"""`contconv cifar elastic`: a trained ResNet made continuous, at other scales inside, beside resizing its images."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from contconv.cifar.data import read
from contconv.cifar.elastic import report
from contconv.cifar.elastic.settings import Settings, Tuning
from contconv.cifar.elastic.study import Study
from contconv.experiments.registry import flags


@dataclass(frozen=True)
class Elastic:
    """Convert a trained ResNet, and measure it at other scales inside, before and after fine-tuning.

    The same command again goes on where it was stopped. For example:
    contconv cifar elastic --data cifar10 --weights resnet20.safetensors --out out/elastic
    """

    data: Path
    """The folder with CIFAR-10 in its binary form."""
    weights: Path
    """The trained ResNet for CIFAR-10 (20, 56, ... layers), as a safetensors file."""
    out: Path
    """The folder for result.json, report.md, the figures and the fine-tuned networks."""
    parts: tuple[report.Part, ...] = report.PARTS
    """What to measure."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = Settings()  # noqa: RUF009 - frozen
    tuning: Annotated[Tuning, tyro.conf.arg(name="")] = Tuning()  # noqa: RUF009 - frozen


def obey(command: Elastic) -> int:
    """Measure what is not measured yet, and write the page."""
    train, test = read(command.data, "train"), read(command.data, "test")
    study = Study(command.weights, train, test, command.out, command.settings, command.tuning)
    whole = report.found(study, command.parts)
    parts = [] if command.parts == report.PARTS else ["--parts", *command.parts]
    options = [*parts, *flags(command.settings), *flags(command.tuning)]
    words = [
        "contconv",
        "cifar",
        "elastic",
        "--data",
        "DIR",
        "--weights",
        command.weights.name,
        "--out",
        "DIR",
        *options,
    ]
    path = report.write(study, whole, " ".join(words))
    same = whole["identity"]
    print(f"converted: {same['identical']} of {same['images']} images with identical logits, {same['converted']:.2f} %")
    print(f"report: {path}")
    return 0
