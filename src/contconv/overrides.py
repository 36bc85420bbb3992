"""What `layer(x)` does when somebody outside has asked for another scale: `contconv.scales` puts it here.

A context variable, so that every thread and every asynchronous task has its own, and nothing of it is in a module.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from fractions import Fraction
from threading import Lock
from typing import Any, Protocol

from torch import nn

from contconv.size import PerAxis, Size


@dataclass(frozen=True)
class Resize:
    """The exact grid of one call: a scale, an output size and a center per axis."""

    scale: tuple[Fraction, ...]
    size: tuple[int, ...]
    center: tuple[Fraction, ...]


@dataclass(frozen=True)
class Override:
    """What a layer is asked to do; None: as it would."""

    scale: PerAxis | None = None
    size: Size | None = None
    center: tuple[Fraction, ...] | None = None


class Source(Protocol):
    """Who overrides."""

    def enter(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A model that announces its calls (see `announced`) is about to run on these arguments."""

    def override(self, layer: nn.Module, in_size: tuple[int, ...]) -> Override | None:
        """What this layer is asked to do with so many pixels; None: nothing."""


class Resizing(nn.Module):
    """A layer with a grid: it has its own, and another one where a call or `contconv.scales` asks for it."""

    def native(self, in_size: Sequence[int]) -> Resize:
        """The grid of a call that says nothing."""
        raise NotImplementedError

    def resized(self, in_size: Sequence[int], to: Override) -> Resize:
        """The grid of a call with this scale, size and center; what is None is the layer's to choose."""
        raise NotImplementedError

    def resize(self, in_size: Sequence[int], *, scale: PerAxis | None = None, size: Size | None = None) -> Resize:
        """The grid of a call on so many pixels: as it says, else as `contconv.scales` says, else the layer's own."""
        if scale is not None or size is not None:
            return self.resized(in_size, Override(scale, size))
        source = _source.get()
        override = None if source is None else source.override(self, tuple(in_size))
        return self.native(in_size) if override is None else self.resized(in_size, override)


_source: ContextVar[Source | None] = ContextVar("contconv overrides", default=None)
_open = 0  # blocks of `overriding` in all threads: what a tracer can look at (and guard), unlike a context variable
_lock = Lock()


def nobody_overrides() -> bool:
    """Whether nobody overrides anywhere, in no thread."""
    return _open == 0


def announced(model: nn.Module) -> None:
    """Have a model tell whoever overrides before it runs, once however often this is called."""
    if announce not in model._forward_pre_hooks.values():
        model.register_forward_pre_hook(announce, with_kwargs=True)


def announce(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """The hook of `announced`; it does nothing where nobody overrides."""
    source = _source.get()
    if source is not None:
        source.enter(model, args, kwargs)


def current() -> Source | None:
    """Who overrides here and now."""
    return _source.get()


@contextmanager
def overriding(source: Source | None) -> Iterator[None]:
    """Let `source` override within the block (None: nobody), in this thread or task alone."""
    token = _source.set(source)
    _count(1)
    try:
        yield
    finally:
        _count(-1)
        _source.reset(token)


def _count(blocks: int) -> None:
    global _open
    with _lock:
        _open += blocks
