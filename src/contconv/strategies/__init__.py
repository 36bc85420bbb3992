"""Strategies: (x, kernel, problem) -> y, all exact. To add one: write its file and register it here."""

from typing import Protocol

from torch import Tensor

from contconv.kernels import Kernel
from contconv.strategies.chunked import Chunked
from contconv.strategies.conv import Conv
from contconv.strategies.factored import Factored
from contconv.strategies.phases import Phases
from contconv.strategies.problem import Cost, Problem, biased
from contconv.strategies.reference import Reference
from contconv.strategies.separable import Separable


class Strategy(Protocol):
    name: str

    def why_not(self, problem: Problem) -> list[str]:
        """The reasons against running this problem; none: it can."""

    def cost(self, problem: Problem) -> Cost: ...

    def run(self, x: Tensor, kernel: Kernel, bias: Tensor | None, problem: Problem) -> Tensor: ...


# In order of preference. The reference is last and refuses nothing.
STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy for strategy in (Conv(), Separable(), Phases(), Factored(), Chunked(), Reference())
}


def chosen(problem: Problem, name: str | None = None) -> Strategy:
    """The strategy asked for by name, or the first that has nothing against the problem."""
    if name is None:
        return next(strategy for strategy in STRATEGIES.values() if not strategy.why_not(problem))
    check_name(name)
    strategy = STRATEGIES[name]
    reasons = strategy.why_not(problem)
    if reasons:
        raise ValueError(f"strategy={name!r} cannot run here: {'; '.join(reasons)}")
    return strategy


def check_name(name: str | None) -> None:
    """Refuse a strategy that does not exist."""
    if name is not None and name not in tuple(STRATEGIES):
        raise ValueError(f"strategy must be None or one of {', '.join(STRATEGIES)}, got {name!r}")


__all__ = ["STRATEGIES", "Cost", "Problem", "Strategy", "biased", "check_name", "chosen"]
