"""Fine-tuning of trained networks, each with its own kind of random resizing; it goes on from its checkpoint."""

from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contconv.cifar import augment, checkpoint, draws
from contconv.cifar.data import Images
from contconv.cifar.elastic.normalisation import normalisations
from contconv.cifar.elastic.settings import Tuning
from contconv.cifar.elastic.ways import ORIGINAL, Way, drawn, drawn_side
from contconv.cifar.interrupt import Interrupt
from contconv.experiments.progress import Bar
from contconv.experiments.record import plain
from contconv.models.resnet import normalized

Kind = Literal["elastic", "resized", "blurpool"]
SAVE_EVERY = 50  # steps
RISE = 0.2  # of all steps: the learning rate's way up


def batch_of(pixels: Tensor, source: torch.Generator) -> Tensor:
    """Bytes [N, 3, 32, 32] cropped, flipped and normalised, as the networks were trained."""
    return normalized(augment.cropped(pixels, augment.draws(len(pixels), source)).float() / 255)


def way_of(kind: Kind, model: nn.Module, tuning: Tuning, source: torch.Generator) -> Way:
    """What a step does to the sizes: scales inside, or the image's side; BlurPool is tuned as it is."""
    if kind == "elastic":
        return drawn(model, tuning.lowest, tuning.highest, source, keep=tuning.keep)
    if kind == "resized":
        return drawn_side(tuning.lowest, tuning.highest, source, keep=tuning.keep)
    return ORIGINAL


def learning_rate(tuning: Tuning, step: int, steps: int) -> float:
    """Linear up to the peak, and down to zero.

    >>> [learning_rate(Tuning(learning_rate=1.0), step, 10) for step in (0, 1, 2, 6)]
    [0.5, 1.0, 1.0, 0.5]
    """
    rise = max(1, round(RISE * steps))
    return tuning.learning_rate * min((step + 1) / rise, (steps - step) / (steps - rise), 1.0)


def tuned(
    kind: Kind, model: nn.Module, images: Images, tuning: Tuning, seed: int, out: Path, weights: str
) -> nn.Module:
    """The model itself, fine-tuned, in evaluation mode; `weights` names what it began with."""
    if tuning.batch > len(images):
        raise ValueError(f"batch must be at most the number of images, {len(images)}, got {tuning.batch}")
    optimizer = torch.optim.SGD(
        model.parameters(), lr=tuning.learning_rate, momentum=tuning.momentum, weight_decay=tuning.weight_decay
    )
    state = checkpoint.State(model, [optimizer], torch.zeros(2, dtype=torch.float64))
    config: dict[str, Any] = {"kind": kind, "tuning": plain(tuning), "seed": seed, "weights": weights}
    checkpoint.load(out, state, config)
    steps = tuning.epochs * (len(images) // tuning.batch)
    model.train()
    for layer in normalisations(model):
        layer.train(tuning.statistics == "batch")
    with Interrupt() as interrupt, Bar(steps, f"fine-tuning, {kind}", state.step) as bar:
        while state.step < steps:
            _step(kind, state, optimizer, images, tuning, seed, steps)
            bar.step((state.sums[0] / state.sums[1]).item())
            if state.step % SAVE_EVERY == 0 or state.step == steps or interrupt.wanted:
                checkpoint.save(out, state, config)
            if interrupt.wanted:
                raise KeyboardInterrupt
    return model.eval()


def _step(
    kind: Kind,
    state: checkpoint.State,
    optimizer: torch.optim.Optimizer,
    images: Images,
    tuning: Tuning,
    seed: int,
    steps: int,
) -> None:
    """One batch forward and back, all that is random drawn from the seed and the step's number."""
    epoch, within = divmod(state.step, steps // tuning.epochs)
    which = draws.order(seed, epoch, len(images))[within * tuning.batch : (within + 1) * tuning.batch]
    x = batch_of(images.pixels[which], draws.generator(seed, "augmentation", state.step))
    way = way_of(kind, state.model, tuning, draws.generator(seed, f"{kind} scales", state.step))
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(tuning, state.step, steps)
    with way.running(state.model):
        loss = F.cross_entropy(state.model(way.seen(x)), images.labels[which])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    state.sums += torch.tensor([loss.item(), 1.0], dtype=torch.float64)
    state.step += 1
