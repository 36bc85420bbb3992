"""How long ways to run a network take, as ratios that a busy machine does not spoil."""

import time
from collections.abc import Callable, Mapping
from statistics import median

import torch
from torch import Tensor, nn

from contconv.cifar.elastic.ways import Way

WARM_UP = 2


def by_turns(runs: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each run in each round; in a round each has its turn, so that all see the same disturbances."""
    for _ in range(WARM_UP):
        for run in runs.values():
            run()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def ratios(seconds: Mapping[str, list[float]], base: str) -> dict[str, float]:
    """The median over rounds of what a run takes of the base's time in the same round."""
    return {
        name: median(one / other for one, other in zip(times, seconds[base], strict=True))
        for name, times in seconds.items()
    }


def latency_ratios(
    original: nn.Module, model: nn.Module, ways: Mapping[str, Way], x: Tensor, rounds: int
) -> dict[str, float]:
    """Of a converted model in these ways, over the original network as it is.

    Resized images are given to the original, and resizing them is part of the time.
    """

    def run(way: Way) -> Callable[[], object]:
        network = model if way.side is None else original

        def once() -> object:
            with way.running(network):
                return network(way.seen(x))

        return once

    with torch.inference_mode():
        runs = {"original": lambda: original(x), **{name: run(way) for name, way in ways.items()}}
        return ratios(by_turns(runs, rounds), "original")
