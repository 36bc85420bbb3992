"""Training: a loop over steps that goes on from wherever the folder's checkpoint is."""

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from contconv.cifar import augment, checkpoint, draws, folder
from contconv.cifar.consistency import (
    IMAGES,
    NOISE,
    OF_EVERY,
    WithResponses,
    disagreement,
    inconsistency,
    pairs,
    part_of,
)
from contconv.cifar.data import Images
from contconv.cifar.diffusion import diffusing
from contconv.cifar.interrupt import Interrupt
from contconv.cifar.log import EPOCHS, Log, rows
from contconv.cifar.recipe import Config, learning_rate, optimizers
from contconv.experiments.progress import Bar
from contconv.experiments.record import machine, plain, versions
from contconv.models.networks import build, save_weights
from contconv.models.starting import begin
from contconv.sequences import Scales

if TYPE_CHECKING:
    from lightning_fabric import Fabric

TEST_BATCH = 500


@dataclass(frozen=True)
class Watching:
    """What a run tells while it goes on; the weights do not depend on it."""

    log_every: int = 50
    """Steps between two rows of steps.csv."""
    test_every: int = 5
    """Epochs between two tests; 0 tests after the last one only."""
    tensorboard: bool = False
    """Write for TensorBoard as well."""

    def __post_init__(self) -> None:
        if self.log_every < 1:
            raise ValueError(f"log_every must be at least 1, got {self.log_every}")
        if self.test_every < 0:
            raise ValueError(f"test_every must be at least 0, got {self.test_every}")


def train(
    config: Config,
    images: Images,
    test: Images,
    out: Path,
    *,
    fabric: "Fabric",
    watching: Watching = Watching(),
) -> dict[str, Any]:
    """Train, or go on training, and return what `result.json` says; Ctrl-C saves and raises KeyboardInterrupt.

    fabric: launched; with several processes each takes its part of every batch, and `out` must be the same for all.
    """
    folder.check(out, config)
    images = images if config.images is None else images.first(config.images)
    check_batch(config, len(images), fabric.world_size)
    if (out / folder.RESULT).exists():
        return folder.read(out / folder.RESULT)
    run = Run(config, images, test, out, fabric, watching)
    with Interrupt() as interrupt, Bar(run.steps, config.network.model, run.state.step, fabric.is_global_zero) as bar:
        while run.state.step < run.steps:
            run.step()
            bar.step(run.log_step())
            if run.state.step % run.epoch_steps == 0:
                bar.say(run.end_epoch())
            if run.is_to_stop(interrupt.wanted):
                run.save()
                raise KeyboardInterrupt
    return run.finish()


def check_batch(config: Config, count: int, processes: int) -> None:
    """Refuse batches that the images or the processes do not allow."""
    batch, images = config.recipe.batch, config.recipe.images_in_a_step
    crops = batch // images  # of each image
    if images > count:
        raise ValueError(f"batch must be at most {crops * count}, for {count} images, got {batch}")
    together = config.recipe.compared_together
    unit = together * processes
    if images % unit:
        why = "one process" if processes == 1 else f"{processes} processes"
        if together > 1:
            why += " that compare images two by two" if together == 2 else " that compare images and noise"
        raise ValueError(f"batch must be a multiple of {crops * unit}, for {why}, got {batch}")


class Run:
    """One process of a training run, at some step."""

    def __init__(
        self, config: Config, images: Images, test: Images, out: Path, fabric: "Fabric", watching: Watching
    ) -> None:
        self.config, self.out, self.fabric, self.watching = config, out, fabric, watching
        self.images, self.test = images.to(fabric.device), test.to(fabric.device)
        self.epoch_steps = len(images) // config.recipe.images_in_a_step  # those left over differ from epoch to epoch
        self.steps = self.epoch_steps * config.recipe.epochs
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(draws.generator(config.seed, "weights").initial_seed())
            model = build(config.network, config.recipe.initial)
        if config.init is not None and not (out / checkpoint.NAME).exists():
            begin(model, config.init)
        self.diffusing = diffusing(model, config.recipe.diffusion)
        chosen = optimizers(config.recipe, model)
        one_sided = config.recipe.agreement_every > 1
        whole = WithResponses(model, one_sided=one_sided) if config.recipe.compares else model
        self.net, *self.optimizers = fabric.setup(whole, *chosen)
        self.state = checkpoint.State(model, chosen, torch.zeros(2, 3, dtype=torch.float64, device=fabric.device))
        checkpoint.load(out, self.state, plain(config))
        fabric.barrier()  # nobody writes before all have read
        self.log = self._opened() if fabric.is_global_zero else None
        self.clock = time.perf_counter()

    def _opened(self) -> Log:
        """The folder made ready to write, and the log cut back to the step that the run goes on from."""
        checkpoint.sweep(self.out)
        folder.write_config(self.out, self.config, self.fabric.world_size)
        step = self.state.step
        return Log(self.out, step=step, epoch=step // self.epoch_steps, tensorboard=self.watching.tensorboard)

    def step(self) -> None:
        """One batch forward and back; nothing here waits for the device."""
        state, recipe = self.state, self.config.recipe
        rate = learning_rate(recipe, state.step, self.steps)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * group["share"]
        x, labels, shift = self.batch()
        sequences = sequences_of(self.config, state.step, self.steps)
        noisy = recipe.agreement_noise > 0 and len(sequences) == 2
        if noisy:
            self.put_noise(x)
        outputs = self.net(x, *sequences)
        logits = outputs[0] if recipe.compares else outputs
        labels = labels.repeat(len(logits) // len(labels))
        if noisy:
            logits, labels = part_of(logits, IMAGES), part_of(labels, IMAGES)
        loss = total = F.cross_entropy(logits, labels, label_smoothing=recipe.label_smoothing)
        if shift is not None:
            total = loss + recipe.consistency * inconsistency(outputs[1], shift)
        elif len(sequences) == 2:
            total = loss + recipe.agreement_every * self.disagreement(outputs[1], noisy)
        self.net.zero_grad()
        self.fabric.backward(total)
        for optimizer in self.optimizers:
            optimizer.step()
        for filters, diffusion in self.diffusing:
            filters.diffuse(rate * recipe.filter_share * diffusion)
        right = (logits.detach().argmax(1) == labels).double().mean()
        state.sums += torch.stack([loss.detach().double(), right, torch.ones_like(right)])
        state.step += 1

    def batch(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """This process's part of the step's batch, [B, 3, 32, 32] and [B], and the shift between the two crops of each
        image, if there are two. All processes draw the whole of it alike."""
        recipe, seed = self.config.recipe, self.config.seed
        size, share = recipe.images_in_a_step, recipe.images_in_a_step // self.fabric.world_size
        part = slice(self.fabric.global_rank * share, (self.fabric.global_rank + 1) * share)
        epoch, within = divmod(self.state.step, self.epoch_steps)
        order = draws.order(seed, epoch, len(self.images))
        which = order[within * size : (within + 1) * size][part].to(self.fabric.device)
        pixels, labels = self.images.pixels[which], self.images.labels[which]
        generator = draws.generator(seed, "augmentation", self.state.step)
        if recipe.consistency == 0:
            return augment.augmented(pixels, augment.draws(size, generator).part(part)), labels, None
        two = pairs(size, generator)
        crops = [augment.augmented(pixels, random.part(part)) for random in (two.first, two.second)]
        return torch.cat(crops), labels.repeat(2), two.shift

    def put_noise(self, x: Tensor) -> None:
        """Noise for some images of this process's part of the batch, in place; all processes draw the whole of it."""
        count = len(part_of(x, NOISE))
        shape = (count * self.fabric.world_size, *x.shape[2:], x.shape[1])  # channels_last, as images are
        own = draws.noise(self.config.seed, self.state.step, shape)[self.fabric.global_rank * count :][:count]
        noise = own.permute(0, 3, 1, 2).to(x.device)
        x.unflatten(0, (-1, OF_EVERY))[:, NOISE] = noise.unflatten(0, (-1, NOISE.stop - NOISE.start))

    def disagreement(self, responses: Tensor, noisy: bool) -> Tensor:
        """What the loss counts of it, in a step that compares images, and noise as well if that is among them."""
        recipe = self.config.recipe
        if not noisy:
            return recipe.agreement * disagreement(responses)
        images, noise = (disagreement(part_of(responses, which)) for which in (IMAGES, NOISE))
        return recipe.agreement * images + recipe.agreement_noise * noise

    def log_step(self) -> float | None:
        """Every so many steps, a row with the means since the row before; the loss. Here the device is waited for."""
        state = self.state
        if state.step % self.watching.log_every and state.step != self.steps:
            return None
        loss, accuracy = self._means(0)
        if self.log is not None:
            epoch = (state.step - 1) // self.epoch_steps + 1
            rate = learning_rate(self.config.recipe, state.step - 1, self.steps)
            self.log.step(
                {"step": state.step, "epoch": epoch, "learning_rate": rate, "loss": loss, "accuracy": accuracy}
            )
        return loss

    def end_epoch(self) -> str:
        """A row with the epoch's means and perhaps a test, and a checkpoint; the row in words."""
        epoch, epochs = self.state.step // self.epoch_steps, self.config.recipe.epochs
        loss, accuracy = self._means(1)
        seconds, test_accuracy, test_seconds = self._elapsed(), None, None
        every = self.watching.test_every
        if epoch == epochs or (every and epoch % every == 0):
            test_accuracy = self.tested()
            test_seconds = self._elapsed() - seconds
        if self.log is not None:
            self.log.epoch(
                {
                    "epoch": epoch,
                    "loss": loss,
                    "accuracy": accuracy,
                    "test_accuracy": test_accuracy,
                    "seconds": round(seconds, 3),
                    "test_seconds": None if test_seconds is None else round(test_seconds, 3),
                }
            )
        self.state.seconds, self.clock = 0.0, time.perf_counter()
        self.save()
        test = "" if test_accuracy is None else f", test accuracy {test_accuracy:.2%}"
        return f"epoch {epoch}/{epochs}: loss {loss:.4f}, accuracy {accuracy:.2%}{test}, {seconds:.0f} s"

    def _means(self, row: int) -> tuple[float, float]:
        """Loss and accuracy, over all processes, since they were last asked for."""
        loss, accuracy, count = self._reduced(self.state.sums[row]).tolist()
        self.state.sums[row] = 0
        if not math.isfinite(loss):
            rate = self.config.recipe.learning_rate
            raise ValueError(f"learning_rate={rate:g} is too high: the loss is {loss} at step {self.state.step}")
        return loss / count, accuracy / count

    def _reduced(self, tensor: Tensor) -> Tensor:
        """The mean over all processes."""
        mean = self.fabric.all_reduce(tensor.clone(), reduce_op="mean")
        assert isinstance(mean, Tensor)
        return mean

    def _elapsed(self) -> float:
        """Seconds since the epoch began, without those in which nobody trained."""
        return self.state.seconds + time.perf_counter() - self.clock

    def tested(self) -> float:
        """The share of test images that the network gets right, with its default scales."""
        rank, world = self.fabric.global_rank, self.fabric.world_size
        pixels, labels = self.test.pixels[rank::world], self.test.labels[rank::world]
        right = torch.zeros((), dtype=torch.float64, device=self.fabric.device)
        self.net.eval()
        with torch.no_grad():
            for start in range(0, len(labels), TEST_BATCH):
                part = slice(start, start + TEST_BATCH)
                outputs = self.net(augment.normalized(pixels[part]))
                logits = outputs if isinstance(outputs, Tensor) else outputs[0]
                right += (logits.argmax(1) == labels[part]).sum()
        self.net.train()
        return self._reduced(right).item() * world / len(self.test)

    def is_to_stop(self, wanted: bool) -> bool:
        """Whether somebody wants to stop; several processes must agree, and do so only where they meet to log."""
        if self.fabric.world_size == 1:
            return wanted
        if self.state.step % self.watching.log_every:
            return False
        return self._reduced(torch.tensor(float(wanted), device=self.fabric.device)).item() > 0

    def save(self) -> None:
        """Make this step the one that a later run goes on from."""
        self.state.sums.copy_(self._reduced(self.state.sums))
        self.state.seconds = self._elapsed()
        self.clock = time.perf_counter()
        if self.fabric.is_global_zero:
            checkpoint.save(self.out, self.state, plain(self.config))

    def finish(self) -> dict[str, Any]:
        """Weights and result."""
        course = rows(self.out / EPOCHS) if self.fabric.is_global_zero else []
        result: dict[str, Any] = {}
        if self.log is not None:
            self.log.close()
            save_weights(self.out / folder.WEIGHTS, self.state.model, self.config.network)
            result = {
                "test_accuracy": float(course[-1]["test_accuracy"]),
                "loss": float(course[-1]["loss"]),
                "epoch_seconds": [float(row["seconds"]) for row in course],
                "parameters": sum(p.numel() for p in self.state.model.parameters()),
                "processes": self.fabric.world_size,
                "config": plain(self.config),
                "versions": versions(),
                "machine": machine(),
            }
            folder.write(self.out / folder.RESULT, result)
        self.fabric.barrier()
        return result


def sequences_of(config: Config, step: int, steps: int) -> list[Scales]:
    """The scales of a step, for networks that take some; two sequences of them where the maps must agree."""
    if config.network.model != "ccnet" or not config.random_scales:
        return []
    recipe = config.recipe
    agreeing = recipe.agreement > 0 and step >= recipe.agreement_from * steps and step % recipe.agreement_every == 0
    return [
        draws.scales(config.seed, step, std=config.scale_std, max_denominator=config.max_denominator, purpose=purpose)
        for purpose in ("scales", "other scales")[: 2 if agreeing else 1]
    ]
