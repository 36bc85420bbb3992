"""What a step of training costs, over ConvNet's: the whole step (augmentation, new scales, optimizers), by turns.

python benchmarks/networks.py (`make bench-networks`)
"""

import argparse

import torch

from contconv.cifar.cost import step_seconds
from contconv.cifar.recipe import Config, recipe
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
    configs = {
        name: Config(network, recipe("short", network.model, batch=options.batch)) for name, network in NETWORKS.items()
    }
    seconds = step_seconds(configs, options.rounds)
    print(
        f"a step of {options.batch} images over ConvNet's, {torch.get_num_threads()} threads, {options.rounds} rounds"
    )
    for name, took in seconds.items():
        print(f"{name:24s}{took / seconds['ConvNet']:.2f}")


if __name__ == "__main__":
    main()
