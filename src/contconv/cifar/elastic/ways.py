"""Ways to run one network: with other scales inside, or on an image that was resized before."""

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contconv.cifar.data import SIZE
from contconv.cifar.elastic.settings import simple
from contconv.elastic import Plan, plan, scales

LAYERS = ["strided", "conv1"]  # what is made continuous: all that shrinks, and the first layer
FIRST, MIDDLE, LAST = "conv1", "layer2.0.conv1", "layer3.0.conv1"
TURNED = {"early": (FIRST,), "middle": (MIDDLE,), "late": (LAST,), "even": (FIRST, MIDDLE, LAST)}
SMALLEST = 8  # image that the network can take
OWN = {FIRST: Fraction(1), MIDDLE: Fraction(1, 2), LAST: Fraction(1, 2)}


@dataclass(frozen=True)
class Way:
    """One way to run a network, and what it costs."""

    name: str
    share: float  # of the original's multiply-adds
    plan: Plan | None = None  # scales inside
    side: int | None = None  # of the image, resized before

    def running(self, model: nn.Module) -> AbstractContextManager[None]:
        """Where the model runs in this way."""
        return nullcontext() if self.plan is None else scales(model, self.plan)

    def seen(self, x: Tensor) -> Tensor:
        """What the model is given of images [N, C, H, W]."""
        return x if self.side is None else resized(x, self.side)

    def described(self) -> dict[str, Any]:
        sizes = {} if self.plan is None else {name: self.plan.sizes[name] for name in OWN}
        return {"way": self.name, "share": self.share, "side": self.side, "sizes": sizes}


ORIGINAL = Way("original", 1.0)


def resized(x: Tensor, side: int) -> Tensor:
    """[N, C, H, W] -> [N, C, side, side], as people resize images today."""
    if x.shape[-1] == side:
        return x
    small = F.interpolate(x, size=(side, side), mode="bicubic", antialias=True, align_corners=False)
    return small.contiguous(memory_format=torch.channels_last)


def by_plan(name: str, found: Plan) -> Way:
    return Way(name, found.macs / found.original_macs, plan=found)


def with_factors(model: nn.Module, name: str, factors: Mapping[str, Fraction]) -> Way:
    """The converted model with the scales of some layers multiplied; the shortcuts follow."""
    return by_plan(name, plan(model, (SIZE, SIZE), scales={layer: OWN[layer] * f for layer, f in factors.items()}))


def turned(model: nn.Module, factors: tuple[float, ...]) -> Iterator[tuple[float, Way]]:
    """Every factor, on the first, the middle or the last layer that can shrink, or on all of them."""
    for name, layers in TURNED.items():
        for factor in factors:
            yield factor, with_factors(model, name, dict.fromkeys(layers, simple(factor)))


def within(model: nn.Module, budget: float) -> list[Way]:
    """What `contconv.plan` proposes for a share of the multiply-adds, and the largest image that costs no more."""
    best = plan(model, (SIZE, SIZE), budget=budget)
    return [*(by_plan(found.name, found) for found in (best, *best.others)), image_within(model, budget)]


def image_within(model: nn.Module, budget: float) -> Way:
    """The original scales on a resized image: the largest that keeps the budget."""
    whole = image_macs(model, SIZE)
    side = math.ceil(SIZE * math.sqrt(budget)) + 1
    while side > SMALLEST and image_macs(model, side) > budget * whole:
        side -= 1
    return Way("resized image", image_macs(model, side) / whole, side=side)


def image_macs(model: nn.Module, side: int) -> int:
    """What the model costs at its own scales."""
    return plan(model, (side, side), scales={}).macs


def drawn(model: nn.Module, lowest: float, highest: float, source: torch.Generator, *, keep: float = 0.0) -> Way:
    """Random scales inside: a factor for each layer that can shrink."""
    return with_factors(model, "random", {layer: drawn_factor(lowest, highest, source, keep) for layer in OWN})


def drawn_side(lowest: float, highest: float, source: torch.Generator, *, keep: float = 0.0) -> Way:
    """The image resized by a random factor."""
    side = round(SIZE * drawn_factor(lowest, highest, source, keep))
    return Way("random image", (side / SIZE) ** 2, side=side)


def drawn_factor(lowest: float, highest: float, source: torch.Generator, keep: float) -> Fraction:
    """1 as often as `keep` says, else log-uniform in lowest ... highest."""
    kept, where = torch.rand(2, generator=source, dtype=torch.float64).tolist()
    return Fraction(1) if kept < keep else simple(lowest * math.exp(where * math.log(highest / lowest)))
