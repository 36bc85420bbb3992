"""How long a strategy should take: a linear model of a few counts, with rates fitted to measurements.

A strategy's counts are what its loops do, as a function of the problem. `benchmarks/fit.py` times the strategies on
random problems and writes `rates.json`: the rates, how many measurements they come from, and how well they fit.
"""

import json
from functools import cache
from importlib.resources import files

from contconv.strategies.problem import Problem, Strategy


def predicted_seconds(strategy: Strategy, problem: Problem) -> float | None:
    """None where there are no rates: for a strategy that does not compete, or a device that was not measured."""
    rates = _rates().get(f"{strategy.engine(problem)}/{'training' if problem.training else 'inference'}")
    if rates is None or problem.device.type != "cpu":
        return None
    return sum(rates[name] * count for name, count in strategy.counts(problem).items())


@cache
def _rates() -> dict[str, dict[str, float]]:
    text = files("contconv.strategies").joinpath("rates.json").read_text()
    rates: dict[str, dict[str, float]] = json.loads(text)["seconds per count"]
    return rates
