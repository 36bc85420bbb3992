"""`contconv cifar train`: train a network on CIFAR-10."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
import tyro

from contconv.cifar import folder
from contconv.cifar.data import read
from contconv.cifar.diffusion import diffusing
from contconv.cifar.download import download
from contconv.cifar.fabrics import Devices, launched, leave
from contconv.cifar.recipe import Config, RecipeName, recipe
from contconv.cifar.training import Watching, train
from contconv.models.architecture import PaddingMode
from contconv.models.networks import ModelName, Network, build
from contconv.models.starting import start


@dataclass(frozen=True)
class Train:
    """Train a network on CIFAR-10. The same command again goes on where it was stopped, by Ctrl-C or anything else."""

    data: Path
    """The folder with CIFAR-10 in its binary form (data_batch_1.bin and so on)."""
    out: Path
    """The folder for config.json, steps.csv, epochs.csv, the checkpoint, model.safetensors and result.json."""
    model: ModelName = "ccnet"
    kernel: str | None = None
    """Of ccnet: internal-per-tap (the paper's, the default), internal, spline, spline-dense, spline-folded, taps."""
    last_kernel: str | None = None
    """Of ccnet's last layers, if another; spline-folded makes a smooth map, which follows shifts by fractions."""
    last_layers: int = 1
    """How many layers have last_kernel."""
    init: Path | None = None
    """Trained weights to begin with: the network's own, or for ccnet (kernels taps and spline) those of a convnet."""
    recipe: RecipeName = "short"
    """short: Muon for filters, AdamW for the rest, one cycle, 10 epochs. paper: Adam, two drops, 400 epochs."""
    epochs: int | None = None
    """Instead of the recipe's; so the following."""
    batch: int | None = None
    """Crops in a step, over all processes."""
    learning_rate: float | None = None
    filter_rate: float | None = None
    """Of filters, by Muon; learning_rate is the rest's."""
    weight_decay: float | None = None
    diffusion: tuple[float, ...] | None = None
    """How fast filters level out from tap to tap, as weight_decay is how fast they shrink; smooth ones alias less. One
    number, or one for each layer."""
    consistency: float | None = None
    """How much it counts that the last map moves with the image; each image then comes in two crops."""
    agreement: float | None = None
    """How much it counts (ccnet) that the last map is the same at other internal scales; each image is then seen with
    two sequences of them."""
    agreement_from: float | None = None
    """From which share of the training on, 0 to 1."""
    agreement_every: int | None = None
    """In which steps: 4 is every fourth, and the second sequence is only looked at and not trained, which takes a tenth
    more time instead of as much again."""
    agreement_noise: float | None = None
    """How much the same counts on noise, which then stands for a quarter of the images in those steps."""
    label_smoothing: float | None = None
    seed: int = 0
    padding_mode: PaddingMode = "zeros"
    random_scales: bool = True
    """Other internal scales at every step (ccnet)."""
    scale_std: float = 0.1
    """The spread of the random scales."""
    max_denominator: int = 10
    """Of the random scales, but for the one that makes their product 1/4."""
    images: int | None = None
    """Train on so many of the 50000 only, for a quick try."""
    precision: Literal["32-true", "bf16-mixed", "16-mixed", "64-true"] = "32-true"
    download: bool = False
    """Fetch CIFAR-10 into the data folder if it is not there (170 MB)."""
    devices: Annotated[Devices, tyro.conf.arg(name="")] = Devices()  # noqa: RUF009 - frozen
    watching: Annotated[Watching, tyro.conf.arg(name="")] = Watching()  # noqa: RUF009 - frozen


def config_of(command: Train) -> Config:
    """All that the weights depend on."""
    network = Network(
        command.model,
        command.kernel,
        command.padding_mode,
        last_kernel=command.last_kernel,
        last_layers=command.last_layers,
    )
    return Config(
        network=network,
        recipe=recipe(
            command.recipe,
            command.model,
            epochs=command.epochs,
            batch=command.batch,
            learning_rate=command.learning_rate,
            filter_rate=command.filter_rate,
            weight_decay=command.weight_decay,
            diffusion=command.diffusion,
            consistency=command.consistency,
            agreement=command.agreement,
            agreement_from=command.agreement_from,
            agreement_every=command.agreement_every,
            agreement_noise=command.agreement_noise,
            label_smoothing=command.label_smoothing,
        ),
        seed=command.seed,
        random_scales=command.random_scales,
        scale_std=command.scale_std,
        max_denominator=command.max_denominator,
        images=command.images,
        precision=command.precision,
        init=None if command.init is None else start(command.init, network),
    )


def obey(command: Train) -> int:
    """Everything that can be refused is refused before processes are started."""
    config = config_of(command)
    with torch.random.fork_rng(devices=[]):
        diffusing(build(config.network), config.recipe.diffusion)
    folder.check(command.out, config)
    if command.download:
        download(command.data)
    images, test = read(command.data, "train"), read(command.data, "test")
    fabric = launched(command.devices, config.precision)
    result = train(config, images, test, command.out, fabric=fabric, watching=command.watching)
    leave()
    if fabric.is_global_zero:
        print(f"test accuracy {result['test_accuracy']:.2%}; {command.out / folder.WEIGHTS}")
    return 0
