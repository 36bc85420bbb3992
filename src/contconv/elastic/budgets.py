"""Sequences of internal scales for a budget of multiply-adds or time."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from contconv.arguments import tensors
from contconv.elastic.context import named_scales, scales
from contconv.elastic.plans import Plan
from contconv.elastic.rehearsal import Rehearsal
from contconv.elastic.skeleton import units
from contconv.overrides import announced
from contconv.size import Number, PerAxis, Size, exact_scale

UNITS = ("macs", "macs-ratio", "seconds", "seconds-ratio")
RATIOS = sorted({Fraction(a, b) for b in range(1, 17) for a in range(1, 4 * b + 1) if 8 * a >= b})  # 1/8 ... 4
REPEATS = 3


def plan(
    model: nn.Module,
    input_size: Size | Tensor | tuple[Any, ...],
    *,
    budget: Number | None = None,
    unit: str = "macs-ratio",
    scales: Mapping[str, PerAxis] | Number | None = None,
) -> Plan:
    """Scales for all layers of a converted model that keep a budget, or that follow from the scales of some.

    input_size: the image's size, for example (224, 224), or a tensor (or a tuple of arguments) to run the model on.
    budget: what one image may cost, at most.
    unit: "macs-ratio" or "seconds-ratio" (of what the model costs as it is), "macs", or "seconds" (measured here, now).
    scales: as in `contconv.scales`, instead of a budget.

    For a budget there are up to three proposals: the first layer that shrinks, or the first of all, does so by a factor
    more ("early"), or all of these by the same one ("even"), or the last alone ("late"). The first of these that keeps
    the budget is returned, and has the others in `others`. Factors have denominators up to 16, for few phases.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 1, 1), nn.Conv2d(8, 8, 3, 2, 1))
    >>> print(contconv.plan(contconv.convert(net), (32, 32), scales={"0": 0.4}))
    input 32 x 32: 0.1621 M multiply-adds, 0.676 of the original
      0  32 x 32 -> 13 x 13  scale 0.4  (was 16 x 16)
      2  13 x 13 -> 7 x 7  scale 0.5  (was 8 x 8)
    """
    if (budget is None) == (scales is None):
        raise ValueError("plan: give either budget= or scales=")
    if unit not in UNITS:
        raise ValueError(f"unit must be one of {', '.join(UNITS)}, got {unit!r}")
    if not units(model):
        raise ValueError("model has no continuous layers: use contconv.convert first")
    args = arguments(model, input_size)
    rehearsal = Rehearsal(model, args, {})
    if scales is not None:
        return rehearsal.plan(rehearsal.ratios(named_scales(model, scales)))
    assert budget is not None
    proposals = _proposals(model, args, rehearsal, float(exact_scale(budget, "budget")), unit)
    first, *others = proposals
    return replace(first, others=tuple(others))


def arguments(model: nn.Module, input_size: Size | Tensor | tuple[Any, ...]) -> tuple[Any, ...]:
    """What to run the model on: what was given, or zeros of that size with as many channels as the model takes."""
    if isinstance(input_size, Tensor):
        return (input_size,)
    if isinstance(input_size, tuple) and any(True for _ in tensors(input_size)):
        return input_size
    first = next((m for m in model.modules() if hasattr(m, "in_channels") and isinstance(m.in_channels, int)), None)
    if first is None:
        raise ValueError("input_size: the model does not say how many channels it takes: give a tensor instead")
    axes = len(first.kernel_size) if isinstance(first, _ConvNd) else getattr(first, "axes", 2)
    sizes = (input_size,) * axes if isinstance(input_size, int) else tuple(input_size)
    if len(sizes) != axes:
        raise ValueError(
            f"input_size must have {axes} numbers, one per spatial axis, or be a tensor, got {input_size!r}"
        )
    parameter = next(model.parameters())
    channels: Any = first.in_channels
    return (torch.zeros(1, channels, *sizes, dtype=parameter.dtype, device=parameter.device),)


def knobs(rehearsal: Rehearsal) -> list[str]:
    """The layers to turn: those that shrink, and the first of all, unless they follow others."""
    follows = rehearsal.solution({}).dependent
    shrinking = {name for name, own in rehearsal.own.items() if any(s < 1 for s in own)}
    single = {call.name for call in rehearsal.calls if all(n == 1 for n in call.grid.size)}
    first = rehearsal.calls[0].name
    return [name for name in rehearsal.own if (name in shrinking or name == first) and name not in {*follows, *single}]


def _proposals(model: nn.Module, args: tuple[Any, ...], rehearsal: Rehearsal, budget: float, unit: str) -> list[Plan]:
    turned = knobs(rehearsal)
    if not turned:
        raise ValueError("plan: no layer of the model shrinks by itself: convert strided layers, or give scales=")
    costs = _costs(model, args, unit)
    limit = budget * costs(rehearsal.plan(rehearsal.followed({}))) if unit.endswith("ratio") else budget
    ways = {"early": turned[:1], "even": turned, "late": turned[-1:]}
    if len(turned) == 1:
        ways = {"early": turned}
    found, least = [], float("inf")
    for name, layers in ways.items():
        best, cheapest = _largest(rehearsal, layers, name, costs, limit)
        least = min(least, cheapest)
        if best is not None:
            found.append(best)
    if not found:
        raise ValueError(
            f"budget={budget:g} ({unit}) cannot be kept: the cheapest way costs {least * budget / limit:.4g}. "
            f"The layers turned were {', '.join(turned)}; convert an earlier layer as well (for example the first)"
        )
    return [_timed(model, args, one) if unit.startswith("seconds") else one for one in found]


def _largest(
    rehearsal: Rehearsal, layers: Sequence[str], name: str, costs: Callable[[Plan], float], limit: float
) -> tuple[Plan | None, float]:
    """The plan with the largest factor that keeps the limit, by bisection, and the least cost that was seen."""
    best, cheapest = None, float("inf")
    low, high = -1, len(RATIOS)
    while high - low > 1:
        middle = (low + high) // 2
        ratios = rehearsal.followed(dict.fromkeys(layers, (RATIOS[middle],) * rehearsal.axes))
        try:
            tried = rehearsal.plan(ratios, name)
        except ValueError:  # maps too small for the model
            low = middle
            continue
        cost = costs(tried)
        cheapest = min(cheapest, cost)
        if cost <= limit:
            low, best = middle, tried
        else:
            high = middle
    return best, cheapest


def _costs(model: nn.Module, args: tuple[Any, ...], unit: str) -> Callable[[Plan], float]:
    if unit.startswith("macs"):
        return lambda tried: float(tried.macs)
    return lambda tried: measured(model, args, tried)


def _timed(model: nn.Module, args: tuple[Any, ...], one: Plan) -> Plan:
    return replace(one, seconds=measured(model, args, one), original_seconds=measured(model, args, None))


def measured(model: nn.Module, args: tuple[Any, ...], tried: Plan | None) -> float:
    """Seconds of one call here and now: the shortest of a few, after one to warm up."""
    announced(model)
    times = []
    with torch.inference_mode(), scales(model, {} if tried is None else tried, follow=False):
        for _ in range(REPEATS + 1):
            start = time.perf_counter()
            model(*args)
            times.append(time.perf_counter() - start)
    return min(times[1:])
