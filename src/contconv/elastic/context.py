"""`with contconv.scales(model, ...)`: a model's layers at other scales, for the time of a block and in this thread."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

from contconv.arguments import tensors
from contconv.elastic.plans import Plan
from contconv.elastic.rehearsal import Rehearsal
from contconv.elastic.skeleton import first_names, units
from contconv.modules import ContinuousConv
from contconv.overrides import Override, Source, announced, current, overriding
from contconv.size import Number, PerAxis, exact_scales

Scales = Mapping[str, PerAxis] | Plan | Number

_numbers: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
_next = count()


def _number(model: nn.Module) -> int:
    """A number that no other model has, nor will have."""
    return _numbers.setdefault(model, next(_next))


@contextmanager
def scales(model: nn.Module, scales: Scales, *, follow: bool = True) -> Iterator[None]:
    """Run a model with other scales inside, within the block.

    scales: of some layers, by their names or by patterns ("layer2.*"), each one number or one per axis; or one number
        for all convolutions that shrink; or a `Plan`.
    follow: let the layers beside them follow, so that maps that are added or concatenated have one size: the shortcut
        of a residual block gets the size of the block, the upsampling of a U-Net undoes what the downsampling does.
        The model must run on tensors without numbers for that.

    Nothing is stored in the model: other threads and tasks that use it at the same time do not notice. A call that says
    `scale=` or `size=` itself has its way.

    >>> model = contconv.convert(nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU()))
    >>> with contconv.scales(model, {"0": 0.61}):
    ...     model(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 8, 20, 20])
    """
    session = _Session(model, scales, follow, current())
    announced(model)
    with overriding(session):
        yield


class _Session:
    """What one block asks for."""

    def __init__(self, model: nn.Module, scales: Scales, follow: bool, outer: Source | None) -> None:
        self._model = model
        self._outer = outer
        self._follow = follow
        layers = units(model)
        self._names = {id(layer): name for name, layer in layers.items()}
        self._fixed = isinstance(scales, Plan)
        self._plan: Plan | None = scales if isinstance(scales, Plan) else None
        self._given = {} if isinstance(scales, Plan) else named_scales(model, scales)
        self._plans: dict[tuple[tuple[int, ...], ...], Plan] = {}
        self._overrides = {} if self._plan is None else self._plan.overrides
        self._asked = f"{self._given!r} {follow}" if self._plan is None else self._plan.word
        self._sizes: tuple[tuple[int, ...], ...] = ()

    @property
    def word(self) -> str:
        outer = "" if self._outer is None else self._outer.word
        return f"model {_number(self._model)}: {self._asked} {self._sizes}; {outer}"

    def enter(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Plan for the arguments that come."""
        if model is not self._model:
            if self._outer is not None:
                self._outer.enter(model, args, kwargs)
            return
        sizes = tuple(tuple(t.shape[2:]) for t in tensors((args, kwargs)) if t.ndim >= 3)
        if self._fixed:
            assert self._plan is not None
            if sizes != self._plan.input_sizes:
                raise ValueError(
                    f"scales: the plan is for inputs of {self._plan.input_sizes}, got {sizes}: make another"
                )
        elif self._follow:
            if sizes not in self._plans:
                rehearsal = Rehearsal(model, args, kwargs)
                self._plans[sizes] = rehearsal.plan(rehearsal.ratios(self._given))
            self._overrides = self._plans[sizes].overrides
            self._sizes = sizes

    def override(self, layer: nn.Module, in_size: tuple[int, ...]) -> Override | None:
        name = self._names.get(id(layer))
        if name is None:
            return None if self._outer is None else self._outer.override(layer, in_size)
        planned = self._overrides.get(name, {})
        if in_size in planned:
            return planned[in_size]
        scale = self._given.get(name)
        return None if scale is None else Override(scale)


def named_scales(model: nn.Module, scales: Mapping[str, PerAxis] | Number) -> dict[str, PerAxis]:
    """The scale of each layer that is meant, by its first name; refuses what is meant by none."""
    if not isinstance(scales, Mapping):
        shrinking = [name for name, layer in units(model).items() if _shrinks(layer)]
        if not shrinking:
            raise ValueError("scales: one number is for convolutions that shrink, and the model has none: give names")
        return dict.fromkeys(shrinking, scales)
    first = first_names(model)
    found: dict[str, PerAxis] = {}
    for pattern, scale in scales.items():
        names = [name for name in first if name == pattern or fnmatchcase(name, pattern)]
        if not names:
            near = difflib.get_close_matches(pattern, first, n=3) or list(first)[:3]
            raise ValueError(
                f"scales: the model has no continuous layer {pattern!r}; it has {', '.join(map(repr, near)) or 'none'}"
                f"{' ...' if len(near) < len(first) else ''}"
            )
        exact_scales(scale, len(scale) if isinstance(scale, Sequence) else 1)
        found |= dict.fromkeys((first[name] for name in names), scale)
    return found


def _shrinks(layer: nn.Module) -> bool:
    return isinstance(layer, ContinuousConv) and any(s < 1 for s in layer.scale)
