"""Run an experiment and keep what it found: numbers, pictures, and the report anew after each."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from contconv.experiments import report
from contconv.experiments.drawing import drawn
from contconv.experiments.record import Config, saved
from contconv.experiments.registry import EXPERIMENTS, command
from contconv.experiments.report_words import statement


def perform(name: str, config: Config) -> dict[str, Any]:
    """Run it, write `<out>/<name>.json`, its figures and the report; return the record."""
    experiment = EXPERIMENTS[name]
    config.out.mkdir(parents=True, exist_ok=True)  # before the work, so that a folder that cannot be is found at once
    with one_thread():
        start = time.perf_counter()
        result = experiment.run(config)
        seconds = time.perf_counter() - start
        for figure in result.figures:
            drawn(figure, config.out / "figures")
        said = statement(experiment.statement)
        record = saved(config.out, name, config, result, seconds, command(name, config), said)
    report.write(config.out)
    return record


@contextmanager
def one_thread() -> Iterator[None]:
    """These problems are small: threads would wait for each other longer than they work, most so on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
