"""A model's skeleton run twice: once to see what meets what, and once at the sizes that follow, to count."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from contconv.arguments import drawn, outlined, tensors
from contconv.elastic.counting import Counter
from contconv.elastic.following import Call, Follower
from contconv.elastic.plans import Plan, Step
from contconv.elastic.skeleton import skeleton, units
from contconv.elastic.solving import Solution, solution
from contconv.functional import planned
from contconv.modules import ContinuousConv
from contconv.overrides import Override, Resize, Resizing, overriding
from contconv.size import exact_scales, scaled_size

Ratios = Mapping[str, tuple[Fraction, ...]]


class Rehearsal:
    """A model and the arguments of a call, without their numbers."""

    def __init__(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._model = skeleton(model)
        self._units = units(self._model)
        self._args, self._kwargs = drawn(outlined((args, kwargs)))
        self.input_sizes = tuple(tuple(t.shape[2:]) for t in tensors((args, kwargs)) if t.ndim >= 3)
        follower = Follower(self._model)
        follower.watch((self._args, self._kwargs))
        with _explained("cannot be followed"), overriding(None), torch.no_grad(), Counter(), follower:
            self._model(*self._args, **self._kwargs)
        self.trace = follower.trace
        self.calls: Sequence[Call] = self.trace.calls
        self.own = {call.name: call.grid.scale for call in self.calls}
        self.fixed = self.solution({}).fixed
        self._original_macs: int | None = None

    @property
    def axes(self) -> int:
        return max((len(scale) for scale in self.own.values()), default=0)

    def ratios(self, scales: Mapping[str, Any]) -> Ratios:
        """The scale of every layer over its own, from the scales of some."""
        given = {
            name: tuple(s / own for s, own in zip(exact_scales(s_, len(self.own[name])), self.own[name], strict=True))
            for name, s_ in scales.items()
            if name in self.own
        }
        return self.followed(given)

    def followed(self, given: Ratios) -> Ratios:
        """The ratio of every layer, from those of some."""
        columns = []
        for axis in range(self.axes):
            of_axis = {name: ratio[min(axis, len(ratio) - 1)] for name, ratio in given.items()}
            columns.append(self.solution(of_axis).ratios(of_axis, list(self.own)))
        return {name: tuple(column[name] for column in columns)[: len(own)] for name, own in self.own.items()}

    def solution(self, given: Mapping[str, Fraction]) -> Solution:
        """Which layers follow which. Those that resize by themselves follow first, and of these the last ones."""
        latest = list(reversed(self.own))
        order = sorted(latest, key=lambda name: set(self.own[name]) == {Fraction(1)})
        return solution(self.trace.meetings, given, order)

    def plan(self, ratios: Ratios, name: str = "") -> Plan:
        """What every layer does at these ratios."""
        steps, macs = self._run(ratios)
        return Plan(tuple(steps), self.input_sizes, macs, self.original_macs, name=name)

    @property
    def original_macs(self) -> int:
        if self._original_macs is None:
            _, self._original_macs = self._run({name: (Fraction(1),) * len(own) for name, own in self.own.items()})
        return self._original_macs

    def _run(self, ratios: Ratios) -> tuple[list[Step], int]:
        """The skeleton at the sizes that follow, and its multiply-adds."""
        calls, steps, macs = iter(self.calls), list[Step](), list[int]()
        for name, unit in self._units.items():
            unit.forward = _stand_in(name, unit, calls, ratios, steps, macs, name in self.fixed)
        counter = Counter()
        with _explained("does not run at these scales"), overriding(None), torch.no_grad(), counter:
            self._model(*self._args, **self._kwargs)
        return steps, counter.macs + sum(macs)


def _stand_in(
    name: str,
    unit: Resizing,
    calls: Iterator[Call],
    ratios: Ratios,
    steps: list[Step],
    macs: list[int],
    fixed: bool,
) -> Callable[..., Tensor]:
    """A forward that makes a result of the planned shape, and notes it.

    A `fixed` layer does with what comes what it would do, as does whatever it will meet.
    """

    def forward(x: Tensor, output_size: Any = None, *, scale: Any = None, size: Any = None) -> Tensor:
        axes = getattr(unit, "axes", None) or x.ndim - 2
        in_size = tuple(x.shape[-axes:])
        if scale is None and size is None and output_size is None:
            call = next(calls)
            assert call.name == name, "the model runs its layers in another order"
            grid = unit.native(in_size) if fixed else unit.resized(in_size, _override(call, ratios))
            asked = set(ratios[name]) != {Fraction(1)}
            steps.append(Step(name, in_size, grid.scale, grid.size, grid.center, call.grid.size, asked))
        else:
            grid = unit.resize(in_size, scale=scale, size=size)
        out_size = grid.size if output_size is None else tuple(output_size)[-axes:]
        if isinstance(unit, ContinuousConv):
            macs.append(_macs(unit, in_size, Resize(grid.scale, out_size, grid.center)))
        channels: int = getattr(unit, "out_channels", x.shape[-axes - 1])
        return x.new_empty(*x.shape[: -axes - 1], channels, *out_size)

    return forward


def _override(call: Call, ratios: Ratios) -> Override:
    """A layer's grid at the rate of its input and its own ratio: everything about it is in terms of original sizes.

    A layer that makes a single pixel of a map goes on doing that.
    """
    axes = range(len(call.in_size))
    rate = [prod((ratios[name][axis] ** e for name, e in call.rate.items()), start=Fraction(1)) for axis in axes]
    single = all(n == 1 for n in call.grid.size) and any(n > 1 for n in call.in_size)
    return Override(
        scale=tuple(s * r for s, r in zip(call.grid.scale, ratios[call.name], strict=True)),
        size=call.grid.size if single else tuple(
            scaled_size(n, before * r) for n, before, r in zip(call.grid.size, rate, ratios[call.name], strict=True)
        ),
        center=tuple(c * before for c, before in zip(call.grid.center, rate, strict=True)),
    )  # fmt: skip


def _macs(layer: ContinuousConv, in_size: tuple[int, ...], grid: Resize) -> int:
    """Filters applied to pixels: what a convolution of these sizes would take."""
    problem = planned(
        torch.Size((1, layer.in_channels, *in_size)), layer.kernel,
        scale=grid.scale, size=grid.size, center=grid.center,
        padding_mode=layer.padding_mode, antialias=layer.antialias, kernel_size=layer.kernel_size,
    )  # fmt: skip
    taps = problem.basis_functions if problem.on_taps else problem.taps
    return problem.outputs * taps * problem.weights


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, NotImplementedError, IndexError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ValueError(
            f"the model {what}: {reason}. Its code must work on tensors without numbers and for every size of a map; "
            f"scales(..., follow=False) overrides just the layers that it names"
        ) from error
