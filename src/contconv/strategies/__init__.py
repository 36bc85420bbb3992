"""Strategies: (x, kernel, problem) -> y, all exact. To add one: write its file and register it here."""

from functools import lru_cache

import torch

from contconv.strategies.chunked import Chunked
from contconv.strategies.conv import Conv
from contconv.strategies.factored import Factored
from contconv.strategies.model import predicted_seconds
from contconv.strategies.phases import Phases
from contconv.strategies.problem import Cost, Problem, Strategy, biased
from contconv.strategies.reference import Reference
from contconv.strategies.separable import Separable, sums_lines

# In order of preference; `conv` and `separable` are best wherever they can run, the cost model chooses among the next.
# The reference is last and refuses nothing.
STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy
    for strategy in (Conv(), Separable(), Phases(), Factored(), Chunked(Reference()), Reference())
}


def chosen(problem: Problem, name: str | None = None) -> Strategy:
    """The strategy asked for by name, or the one that should be fastest; in chunks if `memory_limit` demands it."""
    check_name(name)
    return _chosen(problem, name, torch.get_num_threads())


@lru_cache(maxsize=4096)
def _chosen(problem: Problem, name: str | None, threads: int) -> Strategy:
    strategy = _limited(_fastest(problem) if name is None else STRATEGIES[name], problem)
    reasons = strategy.why_not(problem)
    if reasons and name is None:  # another one may do with less
        others = (_limited(other, problem) for other in STRATEGIES.values() if not other.why_not(problem))
        strategy = next((other for other in others if not other.why_not(problem)), strategy)
        reasons = strategy.why_not(problem)
    if reasons:
        asked = "" if name is None else f"strategy={name!r} cannot run here: "
        raise ValueError(asked + "; ".join(reasons))
    return strategy


def _limited(strategy: Strategy, problem: Problem) -> Strategy:
    """In chunks, if `memory_limit` demands it."""
    free = problem.memory_limit is None or strategy.cost(problem).bytes <= problem.memory_limit
    return strategy if free or isinstance(strategy, Chunked) else Chunked(strategy)


def _fastest(problem: Problem) -> Strategy:
    """The first that has nothing against the problem or, if the cost model knows it, the fastest that it knows."""
    able = [strategy for strategy in STRATEGIES.values() if not strategy.why_not(problem)]
    if [strategy.name for strategy in able[:2]] == ["conv", "separable"] and sums_lines(problem):
        return able[1]
    seconds = {strategy.name: predicted_seconds(strategy, problem) for strategy in able}
    if seconds[able[0].name] is None:
        return able[0]
    known = [strategy for strategy in able if seconds[strategy.name] is not None]
    return min(known, key=lambda strategy: seconds[strategy.name] or 0.0)


def check_name(name: str | None) -> None:
    """Refuse a strategy that does not exist."""
    if name is not None and name not in tuple(STRATEGIES):
        raise ValueError(f"strategy must be None or one of {', '.join(STRATEGIES)}, got {name!r}")


__all__ = ["STRATEGIES", "Cost", "Problem", "Strategy", "biased", "check_name", "chosen"]
