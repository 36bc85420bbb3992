"""All that is measured on a trained network, in one go: accuracy, shift-equivariance, scale ensembles."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from contconv.cifar import equivariance, scale_ensembles
from contconv.cifar.accuracy import BATCH, accuracy, logits, outputs
from contconv.cifar.augment import normalized
from contconv.cifar.data import Images
from contconv.ensembles import takes_scales
from contconv.experiments.progress import Bar


@dataclass(frozen=True)
class Settings:
    """What is measured, and on how much."""

    images: int = 2000
    """For equivariance: so many test images, and so many images of noise."""
    shifts: tuple[int, ...] = (2, 4, 6)
    """For equivariance: the largest shifts, in pixels."""
    cut: int = equivariance.CUT
    """For equivariance: the pixels of the map that are cut off from each side."""
    members: tuple[int, ...] = scale_ensembles.MEMBERS
    """For ensembles: their numbers of sequences."""
    draws: int = 5
    """For ensembles: how often their sequences are drawn; 0 leaves ensembles out."""
    ensemble_images: int = 10000
    """For ensembles: so many test images."""
    batch: int = BATCH
    """Images at a time."""
    seed: int = 0
    """Of shifts, noise and sequences; with the same seed they are the same for every network."""

    def __post_init__(self) -> None:
        at_least = {"images": 1, "cut": 0, "draws": 0, "ensemble_images": 1, "batch": 1, "seed": 0}
        for name, least in at_least.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        for name in ("shifts", "members"):
            given = getattr(self, name)
            if not given or min(given) < 1:
                raise ValueError(f"{name} must be one or more numbers of at least 1, got {given}")


def evaluate(model: nn.Module, test: Images, settings: Settings) -> dict[str, Any]:
    """Accuracy [%] on all images, equivariance on some of them and on noise, ensembles if the model takes scales.

    `seconds` says what each of them took.
    """
    seconds: dict[str, float] = {}
    x = normalized(test.pixels)
    with timed(seconds, "accuracy"):
        said = logits(model, x, batch=settings.batch)
    found: dict[str, Any] = {"images": len(test), "accuracy": accuracy(said, test.labels)}
    with timed(seconds, "equivariance"):
        some = test.first(min(settings.images, len(test)))
        found["equivariance"] = equivariances(model, some.pixels, settings)
    found["ensemble"] = None
    if takes_scales(model) and settings.draws:
        count = min(settings.ensemble_images, len(test))
        with timed(seconds, "ensemble"):
            found["ensemble"] = scale_ensembles.curve(
                model, x[:count], test.labels[:count], accuracy(said[:count], test.labels[:count]),
                members=settings.members, draws=settings.draws, seed=settings.seed, batch=settings.batch,
            )  # fmt: skip
    return {**found, "seconds": seconds}


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Write down how long something took."""
    start = time.perf_counter()
    yield
    seconds[name] = round(time.perf_counter() - start, 2)


def equivariances(model: nn.Module, pixels: Tensor, settings: Settings) -> dict[str, dict[str, Any]]:
    """By input and largest shift. Beyond the border lies real noise, or the reflected image ("images").

    "images, zeros" (black, as the padding of training) and "images, circular" are for comparison.
    """
    margin = max(settings.shifts)
    if margin >= min(pixels.shape[-2:]):
        raise ValueError(f"shifts must be smaller than the images of {tuple(pixels.shape[-2:])} pixels, got {margin}")
    found = {}
    with Bar(4 * (1 + len(settings.shifts)), "equivariance") as bar:
        for name, canvas in canvases(pixels, margin, settings.seed):
            found[name] = over_shifts(model, canvas, margin, settings, bar)
    return found


def canvases(pixels: Tensor, margin: int, seed: int) -> Iterator[tuple[str, Tensor]]:
    """What the windows are cut from, one after the other."""
    yield "images", normalized(equivariance.canvas_of_images(pixels, margin, "reflect"))
    count, channels, size, _ = pixels.shape
    yield "noise", equivariance.canvas_of_noise(count, channels, size, margin, seed)
    for border in ("zeros", "circular"):
        yield f"images, {border}", normalized(equivariance.canvas_of_images(pixels, margin, border))


def over_shifts(
    model: nn.Module, canvas: Tensor, margin: int, settings: Settings, bar: Bar
) -> dict[str, dict[str, float]]:
    """Equivariance for one canvas, by largest shift."""
    still = outputs(model, equivariance.windows(canvas, margin), batch=settings.batch)
    bar.step()
    found = {}
    for largest in settings.shifts:
        shifts = equivariance.drawn_shifts(len(canvas), largest, settings.seed)
        moved = outputs(model, equivariance.windows(canvas, margin, shifts), batch=settings.batch)
        with torch.inference_mode():
            found[str(largest)] = equivariance.compared(still, moved, shifts, cut=settings.cut)._asdict()
        bar.step()
    return found
