"""Evaluations put together: those of one network and one way of training differ in their seeds alone."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

from contconv.cifar.evaluated import Record
from contconv.cifar.recipe import completed_config
from contconv.models.networks import completed

NAMES = {"convnet": "ConvNet", "ccnet": "CCNet", "blurpool": "BlurPoolNet"}
ORDER = list(NAMES)


@dataclass(frozen=True)
class Group:
    """The evaluations of one network, one per seed."""

    label: str
    evaluations: tuple[Record, ...]

    @property
    def first(self) -> Record:
        return self.evaluations[0]

    @property
    def model(self) -> str:
        return self.first["network"]["model"]

    @property
    def seeds(self) -> list[str]:
        return [str((one["config"] or {}).get("seed", "?")) for one in self.evaluations]

    @property
    def recipe(self) -> dict[str, Any]:
        """How it was trained; empty where a file of weights does not say."""
        return (self.first["config"] or {}).get("recipe", {})

    def values(self, of: Callable[[Record], float]) -> list[float]:
        """A figure of every seed."""
        return [of(one) for one in self.evaluations]

    def equivariance(self, inputs: str, largest: int | str, figure: str = "similarity") -> list[float]:
        return self.values(lambda one: one["results"]["equivariance"][inputs][str(largest)][figure])

    def epoch_seconds(self, *, agreeing: bool = False) -> list[float]:
        """The median epoch of every seed whose course is known: of those without agreement, or of those with it."""
        recipe = self.recipe
        plain = recipe["agreement_from"] * recipe["epochs"] if recipe.get("agreement") else math.inf
        courses = [
            [row["seconds"] for row in one["course"] if row.get("seconds") and (row["epoch"] > plain) == agreeing]
            for one in self.evaluations
        ]
        return [median(seconds) for seconds in courses if seconds]


def groups(evaluations: list[Record]) -> list[Group]:
    """Grouped, ConvNet first; two evaluations of one seed are refused, and those that measured differently."""
    check_settings(evaluations)
    gathered: dict[str, list[Record]] = {}
    for one in evaluations:
        gathered.setdefault(key(one), []).append(one)
    ordered = sorted(gathered.values(), key=lambda found: ORDER.index(found[0]["network"]["model"]))
    labels = distinct([label(found[0]) for found in ordered])
    made = [Group(name, tuple(found)) for name, found in zip(labels, ordered, strict=True)]
    for group in made:
        twice = sorted({seed for seed in group.seeds if group.seeds.count(seed) > 1})
        if twice:
            sources = ", ".join(one["source"] for one in group.evaluations)
            raise ValueError(
                f"evaluations hold {group.label} with seed {twice[0]} more than once ({sources}): drop one"
            )
    return made


def check_settings(evaluations: list[Record]) -> None:
    """Refuse what cannot stand in one table."""
    first = evaluations[0]
    for one in evaluations[1:]:
        for name, value in one["settings"].items():
            if name != "batch" and value != first["settings"].get(name):
                raise ValueError(
                    f"evaluations must have the same settings: {name} is {first['settings'].get(name)} in "
                    f"{first['source']} and {value} in {one['source']}"
                )


def key(evaluation: Record) -> str:
    """What evaluations of one group have in common: the network, and all of the config but the seed."""
    config = completed_config(evaluation["config"] or {})
    config = {name: value for name, value in config.items() if name not in ("seed", "network")}
    return json.dumps([completed(evaluation["network"]), config], sort_keys=True)


def label(evaluation: Record) -> str:
    """A short name: the network, its kernel, and what is unusual about it."""
    network, config = evaluation["network"], completed_config(evaluation["config"] or {"recipe": {}})
    unusual = [network["kernel"] or "internal-per-tap"] if network["model"] == "ccnet" else []
    if network.get("last_kernel"):
        last = network.get("last_layers", 1)
        unusual.append(f"{network['last_kernel']} " + ("at last" if last == 1 else f"in the last {last}"))
    if network["padding_mode"] != "zeros":
        unusual.append(f"{network['padding_mode']} padding")
    if network["model"] == "ccnet" and not config["random_scales"]:
        unusual.append("fixed scales")
    if config["recipe"]["diffusion"]:
        unusual.append("diffusion " + "-".join(f"{rate:g}" for rate in config["recipe"]["diffusion"]))
    if config["recipe"]["consistency"]:
        unusual.append(f"consistency {config['recipe']['consistency']:g}")
    if config["recipe"]["agreement"]:
        every = config["recipe"]["agreement_every"]
        noise = config["recipe"]["agreement_noise"]
        weights = f"agreement {config['recipe']['agreement']:g}" + (f" + {noise:g} on noise" if noise else "")
        unusual.append(weights + (f" every {every} steps" if every > 1 else ""))
    if config["init"] is not None:
        unusual.append("from trained weights")
    return NAMES[network["model"]] + (f" ({', '.join(unusual)})" if unusual else "")


def distinct(labels: list[str]) -> list[str]:
    """The same labels, numbered where they are equal.

    >>> distinct(["a", "b", "a"])
    ['a', 'b', 'a, 2nd']
    """
    made: list[str] = []
    for number, one in enumerate(labels):
        before = labels[:number].count(one)
        made.append(f"{one}, {before + 1}{'nd' if before == 1 else 'rd' if before == 2 else 'th'}" if before else one)
    return made


def pairs(found: list[Group]) -> list[tuple[Group, Group]]:
    """Each CCNet with the ConvNet that was trained as long, by the same schedule and with the same crops.

    What a CCNet's scales are good for in training, random ones at each step and those that must agree, is its own.
    """

    def training(group: Group) -> tuple[Any, ...]:
        return group.recipe.get("epochs"), group.recipe.get("schedule"), group.recipe.get("consistency") or 0.0

    plain = [group for group in found if group.model == "convnet"]
    return [
        (group, other)
        for group in found
        if group.model == "ccnet"
        for other in plain
        if training(group) == training(other)
    ]
