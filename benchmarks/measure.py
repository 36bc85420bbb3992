"""Time as interleaved medians, memory as the sampled peak of the process, error against the float64 reference."""

import ctypes
import gc
import random
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

STATM = Path("/proc/self/statm")
PAGE = 4096
ENOUGH = 7  # rounds: the median of three is still what a busy neighbour makes it


def interleaved_seconds(calls: dict[str, Callable[[], object]], rounds: int, budget: float) -> dict[str, float]:
    """The median time of each call; every round runs all of them, so that a slow moment of the machine hits them alike,
    and in an order of its own: whether memory has to be faulted in depends on what ran before.

    Stops after `rounds`, or when `budget` seconds are spent and there are enough of them for a median.
    """
    for call in calls.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    order, shuffle = list(calls), random.Random(0).shuffle
    start = time.perf_counter()
    for done in range(rounds):
        if done >= ENOUGH and time.perf_counter() - start > budget:
            break
        shuffle(order)
        for name in order:
            before = time.perf_counter()
            calls[name]()
            times[name].append(time.perf_counter() - before)
    return {name: statistics.median(values) for name, values in times.items()}


def resident() -> int:
    """Bytes of the process in memory."""
    return int(STATM.read_text().split()[1]) * PAGE


def peak_bytes(call: Callable[[], object]) -> int:
    """The most that the process grew beyond its size before a call, sampled about every half millisecond; short calls
    are repeated, each from the same start, or the samples might miss them."""
    call()
    gc.collect()
    trim()
    before, peak, done = resident(), 0, threading.Event()

    def sample() -> None:
        nonlocal peak
        while not done.is_set():
            peak = max(peak, resident())
            time.sleep(0.0005)

    watcher = threading.Thread(target=sample)
    watcher.start()
    start = time.perf_counter()
    try:
        call()
        while time.perf_counter() - start < 0.05:
            trim()
            call()
    finally:
        done.set()
        watcher.join()
    return max(0, peak - before)


def trim() -> None:
    """Give back what the allocator keeps, or a later call would seem to need nothing (or what an earlier one left)."""
    ctypes.CDLL(None).malloc_trim(0)


def relative_error(got: Tensor, want: Tensor) -> float:
    """The largest difference, as a share of the largest value."""
    return ((got.double() - want.double()).abs().max() / want.abs().max()).item()


def trained(call: Callable[[Tensor], Tensor], x: Tensor, parameters: list[Tensor]) -> Callable[[], tuple[Tensor, ...]]:
    """A forward and a backward pass with the gradients of x and of all parameters."""

    def step() -> tuple[Tensor, ...]:
        y = call(x)
        return y, *torch.autograd.grad(y, [x, *parameters], torch.ones_like(y))

    return step


def inferred(call: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], tuple[Tensor, ...]]:
    """A forward pass in inference mode."""

    def step() -> tuple[Tensor, ...]:
        with torch.inference_mode():
            return (call(x),)

    return step
