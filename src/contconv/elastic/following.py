"""One run of a model's skeleton, watched: which layers resize, in what order, and where maps must have one size.

Every map has a *rate*: its size over the size that it has originally, a product of what the layers before it were
asked to do. A rate is known as a product only: layer -> exponent. Where two maps meet (a sum, a concatenation) their
rates must be equal; where a map is flattened its rate must be 1. `solving.py` finds what follows for the layers that
nobody asked.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from contconv.arguments import tensors
from contconv.elastic.skeleton import units
from contconv.overrides import Resize, Resizing

Rate = dict[str, int]
Labels = tuple[int | None, ...]  # of each dimension of a tensor: the spatial axis that it is

PERMUTING = ("permute", "transpose", "swapaxes", "swapdims", "movedim", "moveaxis")
RESHAPING = ("reshape", "view", "flatten", "unflatten", "_unsafe_view", "reshape_as", "view_as")
OWN_FILES = tuple(os.path.dirname(path) + os.sep for path in (str(torch.__file__), __file__))


@dataclass(frozen=True)
class Call:
    """One call of a layer that can be resized."""

    name: str
    in_size: tuple[int, ...]
    grid: Resize  # its own, on the original sizes
    rate: Rate  # of its input


@dataclass(frozen=True)
class Meeting:
    """A product of rates that must be 1, and where the model's code demands it."""

    product: Rate
    place: str
    flattened: bool = False  # one map, whose own size is part of what follows


@dataclass
class Trace:
    """What a run showed."""

    calls: list[Call] = field(default_factory=list)
    meetings: list[Meeting] = field(default_factory=list)


@dataclass(frozen=True)
class _Map:
    tensor: Tensor  # kept, so that its id stays its own
    rate: Rate
    labels: Labels


class Follower(TorchFunctionMode):
    """Watches every operation of a skeleton's run and passes on the rates."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.trace = Trace()
        self._maps: dict[int, _Map] = {}
        for name, unit in units(model).items():
            unit.forward = self._stand_in(name, unit)

    def watch(self, args: Any) -> None:
        """The model's arguments: maps at their original size."""
        for tensor in tensors(args):
            self._put(tensor, {})

    def _put(self, tensor: Tensor, rate: Rate, labels: Labels | None = None) -> None:
        labels = labels or (None, None, *range(tensor.ndim - 2)) if tensor.ndim >= 3 else ()
        if any(label is not None for label in labels):
            self._maps[id(tensor)] = _Map(tensor, rate, labels)

    def _stand_in(self, name: str, unit: Resizing) -> Callable[..., Tensor]:
        """A forward that makes a result of the right shape and nothing else."""

        def forward(x: Tensor, output_size: Any = None, *, scale: Any = None, size: Any = None) -> Tensor:
            axes = getattr(unit, "axes", None) or x.ndim - 2
            in_size = tuple(x.shape[-axes:])
            known = self._maps.get(id(x))
            rate = {} if known is None else known.rate
            grid = unit.resize(in_size, scale=scale, size=size)
            out_size = grid.size if output_size is None else tuple(output_size)[-axes:]
            channels: int = getattr(unit, "out_channels", x.shape[-axes - 1])
            y = x.new_empty(*x.shape[: -axes - 1], channels, *out_size)
            self._maps.pop(id(y), None)
            if scale is None and size is None and output_size is None:
                self.trace.calls.append(Call(name, in_size, grid, rate))
                if any(n > 1 for n in out_size):
                    self._put(y, _times(rate, {name: 1}), (*(None,) * (y.ndim - axes), *range(axes)))
            return y

        return forward

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        maps = [self._maps[id(t)] for t in tensors((args, kwargs)) if id(t) in self._maps]
        if maps:
            for other in maps[1:]:
                self._meet(maps[0], other)
            for result in tensors(out):
                if id(result) not in self._maps:
                    self._follow(func, args, kwargs, maps[0], result)
        return out

    def _meet(self, one: _Map, other: _Map) -> None:
        """Two maps in one operation: if they are of one size, they must stay so."""
        if one.rate == other.rate or one.labels != other.labels:
            return
        shapes = zip(one.tensor.shape, other.tensor.shape, one.labels, strict=True)
        sizes = [(a, b) for a, b, label in shapes if label is not None]
        if all(a == b for a, b in sizes) and any(a > 1 for a, _ in sizes):
            self.trace.meetings.append(Meeting(_times(one.rate, _inverse(other.rate)), _place()))

    def _follow(self, func: Any, args: Any, kwargs: Any, source: _Map, result: Tensor) -> None:
        name = getattr(func, "__name__", "")
        before, labels = source.tensor, source.labels
        if "adaptive" in name or _has_its_own_size(name, args, kwargs):
            return
        if name in PERMUTING:
            self._put(result, source.rate, _permuted(func, args, kwargs, before, labels))
        elif name in RESHAPING:
            kept, whole = _regrouped(before.shape, result.shape, labels)
            if whole:
                self._put(result, source.rate, kept)
            elif source.rate:
                self.trace.meetings.append(Meeting(source.rate, _place(), flattened=True))
        elif result.ndim == before.ndim:
            shapes = zip(labels, before.shape, result.shape, strict=True)
            self._put(result, source.rate, tuple(None if m == 1 and n > 1 else label for label, n, m in shapes))


def _times(one: Rate, other: Rate) -> Rate:
    total = Counter(one)
    total.update(other)
    return {name: count for name, count in total.items() if count}


def _inverse(rate: Rate) -> Rate:
    return {name: -count for name, count in rate.items()}


def _has_its_own_size(name: str, args: Any, kwargs: Any) -> bool:
    """`interpolate` to a size that the code says, whatever came in."""
    return name == "interpolate" and (kwargs.get("size") is not None or (len(args) > 1 and args[1] is not None))


def _permuted(func: Any, args: Any, kwargs: Any, before: Tensor, labels: Labels) -> Labels:
    """The labels after a permutation, found by permuting a tensor whose sizes are the dimensions' numbers."""
    numbered = torch.empty(tuple(range(2, before.ndim + 2)), device="meta")
    moved = func(numbered, *args[1:], **{key: value for key, value in kwargs.items() if key not in ("input", "self")})
    return tuple(labels[size - 2] for size in moved.shape)


def _regrouped(before: torch.Size, after: torch.Size, labels: Labels) -> tuple[Labels, bool]:
    """The labels after a reshape, and whether every spatial axis is still a dimension of its own."""
    kept: list[int | None] = [None] * len(after)
    whole = True
    i = j = 0
    while i < len(before) and j < len(after):
        group, made = [i], [j]
        old, new = before[i], after[j]
        while old != new and (i + 1 < len(before) if old < new else j + 1 < len(after)):
            if old < new:
                i += 1
                group.append(i)
                old *= before[i]
            else:
                j += 1
                made.append(j)
                new *= after[j]
        spatial = [n for n in group if labels[n] is not None and before[n] > 1]
        broad = [n for n in made if after[n] > 1]
        if len(spatial) == len(broad) == 1 and before[spatial[0]] == after[broad[0]]:
            kept[broad[0]] = labels[spatial[0]]
        elif spatial:
            whole = False
        i, j = i + 1, j + 1
    return tuple(kept), whole


def _place() -> str:
    """The line of the model's own code that is running."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(OWN_FILES):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}, in {frame.f_code.co_name}"
