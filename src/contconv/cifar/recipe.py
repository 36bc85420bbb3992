"""How a network is trained: the paper's way and a short one, as data."""

import math
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Literal

import torch
from torch import nn

from contconv.cifar.consistency import OF_EVERY
from contconv.cifar.muon import Muon, filters
from contconv.experiments.record import plain
from contconv.models.networks import Initial, Network, completed
from contconv.models.starting import Start

RecipeName = Literal["short", "paper"]
START = 25  # one-cycle begins at a 25th of its peak


def shortest(rates: tuple[float, ...]) -> tuple[float, ...]:
    """Nothing where all are zero, one where all are equal.

    >>> shortest((0.0, 0.0)), shortest((1.0, 1.0)), shortest((0.0, 1.0))
    ((), (1.0,), (0.0, 1.0))
    """
    if not any(rates):
        return ()
    return rates[:1] if len(set(rates)) == 1 else rates


@dataclass(frozen=True)
class Recipe:
    """Optimizer, schedule and loss."""

    epochs: int
    batch: int
    """Crops in a step, over all processes."""
    learning_rate: float
    """The first one of "drops", the peak of "one-cycle"."""
    schedule: Literal["one-cycle", "drops"]
    weight_decay: float
    decoupled: bool
    """AdamW's weight decay instead of Adam's."""
    warmup: float = 0.0
    """Of one-cycle: the share of the training in which the learning rate rises."""
    drops: tuple[float, ...] = ()
    """Where, as shares of the training, the learning rate falls by 10."""
    label_smoothing: float = 0.0
    filter_rate: float | None = None
    """The peak for the filters of convolutions, which then move by Muon and the rest by Adam; None is Adam for all."""
    diffusion: tuple[float, ...] = ()
    """How fast filters level out, per unit of their learning rate, as weight decay is how fast they shrink: one number
    for all convolutional layers, or one for each."""
    consistency: float = 0.0
    """What the loss counts of it that the last map does not move with the image; above 0, a batch is half as many
    images in two crops each."""
    agreement: float = 0.0
    """What the loss counts of it that the last map depends on the internal scales; above 0, each image is seen with two
    sequences of them (CCNet only)."""
    agreement_from: float = 0.0
    """From which share of the training on."""
    agreement_every: int = 1
    """In which steps. Above 1, only each so many steps compare the maps, and so many times as much; then no gradient
    goes through the second sequence, which makes it a third of a step, and it is not trained."""
    agreement_noise: float = 0.0
    """What the loss counts of the same on noise, which then stands for a quarter of the images in steps that compare:
    aliasing is what happens to high frequencies, of which images have few."""
    initial: Initial = "default"
    """The variance that weights start with: PyTorch's own, or Kaiming's for ReLU."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "agreement_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not (0 < self.learning_rate < math.inf):
            raise ValueError(f"learning_rate must be positive, got {self.learning_rate}")
        for name in ("consistency", "agreement", "agreement_noise"):
            if not (0 <= getattr(self, name) < math.inf):
                raise ValueError(f"{name} must be at least 0 and finite, got {getattr(self, name)}")
        if self.consistency > 0 and self.agreement > 0:
            raise ValueError("a step compares either crops or scales: give one of consistency and agreement")
        if self.agreement_noise > 0 and self.agreement == 0:
            raise ValueError(
                f"agreement_noise={self.agreement_noise:g} needs an agreement, which images are compared for"
            )
        if self.consistency > 0 and self.batch % 2:
            raise ValueError(f"batch must be even with a consistency, for two crops of each image, got {self.batch}")
        if not (0 <= self.weight_decay < math.inf):
            raise ValueError(f"weight_decay must be at least 0, got {self.weight_decay}")
        if not all(0 <= rate < math.inf for rate in self.diffusion):
            given = ", ".join(f"{rate:g}" for rate in self.diffusion)
            raise ValueError(f"diffusion must be finite numbers of at least 0, got {given}")
        object.__setattr__(self, "diffusion", shortest(self.diffusion))  # what trains alike is the same recipe
        if self.filter_rate is not None and not (0 < self.filter_rate < math.inf):
            raise ValueError(f"filter_rate must be positive, got {self.filter_rate}")
        for name in ("label_smoothing", "warmup", "agreement_from"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and less than 1, got {getattr(self, name)}")

    @property
    def images_in_a_step(self) -> int:
        """Over all processes."""
        return self.batch // 2 if self.consistency > 0 else self.batch

    @property
    def compares(self) -> bool:
        """Whether the loss counts what two maps differ by."""
        return self.consistency > 0 or self.agreement > 0

    @property
    def compared_together(self) -> int:
        """Images of which a process needs a multiple: two by two, or so many that some of them can be noise."""
        return OF_EVERY if self.agreement_noise > 0 else 2 if self.compares else 1

    @property
    def filter_share(self) -> float:
        """What filters learn at, as a multiple of `learning_rate`."""
        return 1.0 if self.filter_rate is None else self.filter_rate / self.learning_rate


SHORT = Recipe(10, 128, 1e-3, "one-cycle", weight_decay=0.05, decoupled=True, warmup=0.2, filter_rate=0.02)

# With Adam's weight decay the networks start from Kaiming's variance, which the paper names among others: from
# PyTorch's own, gradients are so small at first that the decay takes all weights to zero.
# The appendix: CCNet at 5e-4, by 10 less from epochs 200 and 300 of 400 on; ConvNet at 1e-3, from 150 and 250 on.
PAPER = {
    "ccnet": Recipe(
        400, 64, 5e-4, "drops", weight_decay=5e-4, decoupled=False, drops=(200 / 400, 300 / 400), initial="kaiming"
    ),
    "convnet": Recipe(
        400, 64, 1e-3, "drops", weight_decay=5e-4, decoupled=False, drops=(150 / 400, 250 / 400), initial="kaiming"
    ),
}
PAPER["blurpool"] = PAPER["convnet"]


def recipe(name: RecipeName, model: str, **changes: float | tuple[float, ...] | None) -> Recipe:
    """The recipe of that name for a model, with those changes that are not None."""
    chosen = SHORT if name == "short" else PAPER[model]
    return replace(chosen, **{key: value for key, value in changes.items() if value is not None})  # type: ignore[arg-type]


def learning_rate(recipe: Recipe, step: int, steps: int) -> float:
    """What step number `step` of `steps` learns at.

    >>> [round(learning_rate(PAPER["ccnet"], epoch, 400), 7) for epoch in (0, 199, 200, 299, 300, 399)]
    [0.0005, 0.0005, 5e-05, 5e-05, 5e-06, 5e-06]
    """
    if recipe.schedule == "drops":
        return recipe.learning_rate * 0.1 ** sum(step >= drop * steps for drop in recipe.drops)
    rise = recipe.warmup * steps
    if step < rise:
        return recipe.learning_rate * (1 + (START - 1) * step / rise) / START
    return recipe.learning_rate * (1 + math.cos(math.pi * (step - rise) / (steps - rise))) / 2


def optimizers(recipe: Recipe, model: nn.Module) -> list[torch.optim.Optimizer]:
    """Adam or AdamW over all parameters, in one pass over memory; or Muon over the filters and that over the rest.

    Each group's `share` is what it learns at, as a multiple of `learning_rate`.
    """
    weights, mixings = ([], []) if recipe.filter_rate is None else filters(model)
    moved = {id(parameter) for parameter in weights + mixings}
    rest = [parameter for parameter in model.parameters() if id(parameter) not in moved]
    kind = torch.optim.AdamW if recipe.decoupled else torch.optim.Adam
    rate, decay = recipe.learning_rate, recipe.weight_decay
    adam = kind([{"params": rest, "share": 1.0}], lr=rate, weight_decay=decay, fused=True)
    if recipe.filter_rate is None:
        return [adam]
    share = recipe.filter_share
    groups = [{"params": weights, "share": share}, {"params": mixings, "share": share, "out_dim": -2}]
    return [adam, Muon([group for group in groups if group["params"]], lr=recipe.filter_rate, weight_decay=decay)]


@dataclass(frozen=True)
class Config:
    """All that the trained weights depend on, but for the machine."""

    network: Network
    recipe: Recipe
    seed: int = 0
    random_scales: bool = True
    """Other internal scales at every step (CCNet only)."""
    scale_std: float = 0.1
    """The spread of the random scales."""
    max_denominator: int = 10
    """Of the random scales, but for the one that makes their product 1/4."""
    images: int | None = None
    """Train on so many of the images only; None is all."""
    precision: str = "32-true"
    """As Lightning Fabric names it."""
    init: Start | None = None
    """Trained weights to begin with, the network's own or a ConvNet's."""

    def __post_init__(self) -> None:
        if not 0 <= self.scale_std < math.inf:
            raise ValueError(f"scale_std must be at least 0, got {self.scale_std}")
        if self.max_denominator < 1:
            raise ValueError(f"max_denominator must be at least 1, got {self.max_denominator}")
        if self.recipe.agreement > 0 and not (self.network.model == "ccnet" and self.random_scales):
            given = f"{self.network.model}, random_scales={self.random_scales}"
            raise ValueError(f"agreement is that of ccnet's maps at random scales, got {given}")


def completed_config(config: dict[str, Any]) -> dict[str, Any]:
    """A config that was written to a file, as this version writes it: what an older one did not know has its default.

    Others write checkpoints too, and their configs stay as they are.

    >>> completed_config({"recipe": {"epochs": 10}})["recipe"]["diffusion"]
    []
    """
    if "recipe" not in config:
        return config
    whole = {**config, **{name: value for name, value in plain(defaults(Config)).items() if name not in config}}
    whole["recipe"] = {**plain(defaults(Recipe)), **config["recipe"]}
    return {**whole, "network": completed(config["network"])} if "network" in config else whole


def defaults(kind: type) -> dict[str, Any]:
    """Of a dataclass, those fields that have one."""
    return {field.name: field.default for field in fields(kind) if field.default is not MISSING}
