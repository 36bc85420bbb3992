"""One trained ResNet in all its forms, the images to measure it on, and the store of what was measured."""

import copy
import hashlib
from functools import cached_property
from pathlib import Path

from torch import Tensor, nn

from contconv.cifar import draws, folder
from contconv.cifar.accuracy import logits
from contconv.cifar.data import Images
from contconv.cifar.elastic.normalisation import calibrated
from contconv.cifar.elastic.settings import Settings, Tuning
from contconv.cifar.elastic.store import Store
from contconv.cifar.elastic.tuning import Kind, batch_of, tuned
from contconv.cifar.elastic.ways import LAYERS, ORIGINAL, Way, turned, within
from contconv.conversion import convert
from contconv.models.networks import channels_last
from contconv.models.resnet import antialiased, normalized, resnet

BATCH = 250


class Study:
    """Networks are "elastic" (converted), "resized" (the original) and "blurpool"; as trained or, `after`, fine-tuned.

    Nothing is tuned before somebody asks for it.
    """

    def __init__(
        self, weights: Path, train: Images, test: Images, out: Path, settings: Settings, tuning: Tuning
    ) -> None:
        self.settings, self.tuning, self.out, self.train, self.test = settings, tuning, out, train, test
        self.original = resnet(weights)
        channels_last(self.original)
        self.digest = hashlib.sha256(weights.read_bytes()).hexdigest()[:16]
        about = {"weights": weights.name, "sha256": self.digest, "test images": len(test), **vars(settings)}
        about["tuning"] = {name: value for name, value in vars(tuning).items() if name != "epochs"}
        self.store = Store(out / folder.RESULT, about)
        self.some = test.first(min(settings.images, len(test)))
        self.model = self._made("elastic")
        self._trained: dict[Kind, nn.Module] = {"elastic": self.model, "resized": self.original}
        self._tuned: dict[Kind, nn.Module] = {}

    def network(self, kind: Kind, after: bool) -> nn.Module:
        """One of the forms, in evaluation mode; what is not fine-tuned yet is now."""
        known = self._tuned if after else self._trained
        if kind not in known:
            known[kind] = self._fine_tuned(kind) if after else self._made(kind)
        return known[kind]

    def label(self, after: bool) -> str:
        """What measurements on these networks are filed under."""
        return f"tuned {self.tuning.epochs}" if after else "trained"

    def logits(self, kind: Kind, after: bool, way: Way, x: Tensor, *, calibrate: bool = False) -> Tensor:
        """[N, classes] of normalised images, run in one way, if wished with statistics taken in that way."""
        model = self.network(kind, after)
        model = calibrated(model, way, self.calibration) if calibrate else model
        with way.running(model):
            return logits(model, way.seen(x), batch=BATCH)

    @cached_property
    def turned_ways(self) -> list[tuple[float, Way]]:
        """By factor: the original scales, and one layer or all of them at others."""
        return [(1.0, ORIGINAL), *turned(self.model, self.settings.factors)]

    @cached_property
    def budget_ways(self) -> list[tuple[float, Way]]:
        """By budget: the original scales and size, and the ways to keep to less or to spend more."""
        same = [(1.0, ORIGINAL), (1.0, Way("resized image", 1.0, side=self.test.pixels.shape[-1]))]
        return [*same, *((budget, way) for budget in self.settings.budgets for way in within(self.model, budget))]

    @cached_property
    def all_images(self) -> Tensor:
        return normalized(self.test.pixels.float() / 255)

    @property
    def some_images(self) -> Tensor:
        return self.all_images[: len(self.some)]

    @cached_property
    def calibration(self) -> Tensor:
        """Training images as training sees them: the black borders of its crops are part of all statistics."""
        source = draws.generator(self.settings.seed, "calibration")
        return batch_of(self.train.pixels[: self.settings.calibration], source)

    def _made(self, kind: Kind) -> nn.Module:
        """A network of its own with the original's weights."""
        if kind == "elastic":
            return convert(self.original, LAYERS)
        return antialiased(self.original) if kind == "blurpool" else copy.deepcopy(self.original)

    def _fine_tuned(self, kind: Kind) -> nn.Module:
        place = self.out / f"{kind}-{self.tuning.epochs}"
        return tuned(kind, self._made(kind), self.train, self.tuning, self.settings.seed, place, self.digest)
