"""What a step of training costs, over ConvNet's: the whole step (augmentation, new scales, optimizers), by turns.

python benchmarks/networks.py (`make bench-networks`)
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from measure import interleaved_seconds

from contconv.cifar.data import Images
from contconv.cifar.fabrics import Devices, launched
from contconv.cifar.recipe import Config, recipe
from contconv.cifar.training import Run, Watching
from contconv.models.networks import Network

NETWORKS = {
    "ConvNet": Network("convnet"),
    "BlurPoolNet": Network("blurpool"),
    "CCNet, published": Network("ccnet", "taps", last_kernel="spline-folded"),
    **{f"CCNet, {name}": Network("ccnet", name) for name in ("taps", "spline", "internal", "internal-per-tap")},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--batch", type=int, default=128)
    options = parser.parse_args()
    pixels = torch.randint(256, (2 * options.batch, 3, 32, 32), dtype=torch.uint8)
    images = Images(pixels.contiguous(memory_format=torch.channels_last), torch.arange(len(pixels)) % 10)
    with TemporaryDirectory() as folder:
        steps = {}
        for name, network in NETWORKS.items():
            config = Config(network, recipe("short", network.model, batch=options.batch))
            fabric = launched(Devices(), config.precision)
            steps[name] = Run(config, images, images, Path(folder) / name, fabric, Watching()).step
        seconds = interleaved_seconds(steps, options.rounds, budget=600)
    print(
        f"a step of {options.batch} images over ConvNet's, {torch.get_num_threads()} threads, {options.rounds} rounds"
    )
    for name, took in seconds.items():
        print(f"{name:24s}{took / seconds['ConvNet']:.2f}")


if __name__ == "__main__":
    main()
