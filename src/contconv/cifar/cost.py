"""What a step of training costs: whole steps (augmentation, new scales, optimizers) of several networks, by turns.

The seconds of epochs that were run at other hours, on other machines or beside other work say nothing about networks.
"""

import time
from collections.abc import Hashable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import torch

from contconv.cifar.data import Images
from contconv.cifar.fabrics import Devices, launched
from contconv.cifar.groups import Group
from contconv.cifar.recipe import Config, Recipe, completed_config
from contconv.cifar.training import Run, Watching
from contconv.models.networks import Network

Name = TypeVar("Name", bound=Hashable)


def step_seconds(configs: dict[Name, Config], rounds: int) -> dict[Name, float]:
    """The median step of each, on random images; the first round is not counted. Where not all steps compare maps, a
    round is one that does and those up to the next, and the result the mean of the medians of both kinds."""
    most = max((config.recipe.images_in_a_step for config in configs.values()), default=0)
    pixels = torch.randint(256, (most, 3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    images = Images(pixels.contiguous(memory_format=torch.channels_last), torch.arange(most) % 10)
    seconds: dict[Name, list[list[float]]] = {name: [] for name in configs}  # of each round, step by step
    with TemporaryDirectory() as folder:
        runs = {}
        for number, (name, config) in enumerate(configs.items()):
            fabric = launched(Devices(), config.precision)
            runs[name] = Run(config, images, images, Path(folder) / str(number), fabric, Watching())
        for _round in range(1 + rounds):
            for name, run in runs.items():
                recipe, times = run.config.recipe, [finished(run)]
                for _ in range(recipe.agreement_every if recipe.agreement > 0 else 1):
                    run.step()
                    times.append(finished(run))
                seconds[name].append([after - before for before, after in pairwise(times)])
    return {name: typical(took[1:]) for name, took in seconds.items()}


def typical(rounds: list[list[float]]) -> float:
    """A step, of rounds of steps: the first of a round is of one kind, the others of another.

    >>> typical([[5.0, 1.0, 1.0], [5.0, 1.0, 9.0]]), typical([[2.0], [3.0], [9.0]])
    (2.3333333333333335, 3.0)
    """
    first, others = [one[0] for one in rounds], [step for one in rounds for step in one[1:]]
    return (median(first) + (len(rounds[0]) - 1) * (median(others) if others else 0.0)) / len(rounds[0])


def finished(run: Run) -> float:
    """The time when the device has done what it was told to."""
    if run.fabric.device.type != "cpu":
        torch.accelerator.synchronize()
    return time.perf_counter()


@dataclass(frozen=True)
class Timed:
    """A step of a group."""

    label: str
    agreeing: bool
    """Of those steps that maps are compared in and those between them, the mean."""
    seconds: float
    batch: int
    """Images."""
    precision: str

    @property
    def name(self) -> str:
        return f"{self.label}, with agreement" if self.agreeing else self.label


def of_groups(found: list[Group], rounds: int) -> list[Timed]:
    """Of those networks that say how they were trained: a step, and one with agreement where some were."""
    configs: dict[tuple[str, bool], Config] = {}
    for group in found:
        config = config_of(group)
        if config is None:
            continue
        without = replace(config.recipe, agreement=0.0, agreement_noise=0.0)
        configs[group.label, False] = replace(config, recipe=without)
        if config.recipe.agreement > 0:
            configs[group.label, True] = replace(config, recipe=replace(config.recipe, agreement_from=0.0))
    try:
        found_seconds = step_seconds(configs, rounds)
    except ModuleNotFoundError as error:
        print(f"steps are not timed: {error.name} is not installed (pip install 'contconv[train]')")
        return []
    return [
        Timed(*name, seconds, configs[name].recipe.images_in_a_step, configs[name].precision)
        for name, seconds in found_seconds.items()
    ]


def config_of(group: Group) -> Config | None:
    """How a group was trained, but for where its weights began; None if nobody knows, or in no way known here."""
    written = completed_config(group.first["config"] or {})
    if "recipe" not in written:
        return None
    known = {name: value for name, value in written.items() if name not in ("network", "recipe", "init")}
    recipe: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in written["recipe"].items()
    }
    try:
        return Config(network=Network(**group.first["network"]), recipe=Recipe(**recipe), **known)
    except TypeError as error:
        print(f"{group.label} is not timed: {group.first['source']} was trained in a way not known here ({error})")
        return None
