"""How long ways to run a network take, as ratios that a busy machine does not spoil."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median

import torch
from torch import Tensor, nn

from contconv.cifar.elastic.ways import ORIGINAL, Way

WARM_UP = 2


def by_turns(runs: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """What each run says that it took, in each round; all have a turn in a round, and see the same disturbances."""
    for _ in range(WARM_UP):
        for run in runs.values():
            run()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            seconds[name].append(run())
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
    with torch.inference_mode():
        runs = {
            name: partial(seconds_of, model if way.side is None else original, way, x) for name, way in ways.items()
        }
        base = partial(seconds_of, original, ORIGINAL, x)
        return ratios(by_turns({"original": base, **runs}, rounds), "original")


def seconds_of(network: nn.Module, way: Way, x: Tensor) -> float:
    """One pass; the scales inside are chosen before it begins, as they would be for many passes.

    With one thread it is that thread's processor time, which other programs on the machine do not lengthen.
    """
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    with way.running(network):
        start = clock()
        network(way.seen(x))
        return clock() - start
