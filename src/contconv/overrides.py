"""What `layer(x)` does when somebody outside has asked for another scale: `contconv.scales` puts it here.

A context variable, so that every thread and every asynchronous task has its own, and nothing of it is in a module.

torch.compile cannot look at a context variable. Beside it there is a *word* of each thread, a string that says in full
what is asked for: a graph is made for one word, and another one is made where the word is another.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from fractions import Fraction
from operator import index
from threading import local
from typing import Any, Protocol

import torch
from torch import nn

from contconv.arguments import drawn, outlined
from contconv.size import PerAxis, Size
from contconv.transforms import refuse_jit_trace, unobserved, while_tracing


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

    @property
    def word(self) -> str:
        """All that `override` depends on."""

    def enter(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A model that announces its calls (see `announced`) is about to run on these arguments."""

    def override(self, layer: nn.Module, in_size: tuple[int, ...]) -> Override | None:
        """What this layer is asked to do with so many pixels; None: nothing."""


class Resizing(nn.Module):
    """A layer with a grid: it has its own, and another one where a call or `contconv.scales` asks for it."""

    def native(self, in_size: Sequence[int]) -> Resize:
        """The grid of a call that says nothing."""
        raise NotImplementedError(f"{type(self).__name__} must define native(in_size) -> Resize")

    def resized(self, in_size: Sequence[int], to: Override) -> Resize:
        """The grid of a call with this scale, size and center; what is None is the layer's to choose."""
        raise NotImplementedError(f"{type(self).__name__} must define resized(in_size, to) -> Resize")

    def resize(self, in_size: Sequence[int], *, scale: PerAxis | None = None, size: Size | None = None) -> Resize:
        """The grid of a call on so many pixels: as it says, else as `contconv.scales` says, else the layer's own."""
        refuse_jit_trace()
        if scale is None and size is None:
            return self.answer("unasked", in_size)
        if torch.compiler.is_compiling():
            return _resized(self, _ints(in_size), _settled(scale), _settled(size))
        return self.resized(in_size, Override(scale, size))

    def unasked(self, in_size: Sequence[int]) -> Resize:
        """The grid of a call that says nothing itself."""
        source = _source.get()
        override = None if source is None else source.override(self, tuple(in_size))
        return self.native(in_size) if override is None else self.resized(in_size, override)

    def other(self, in_size: Sequence[int]) -> Resize | None:
        """`unasked`, where it is not the layer's own grid."""
        grid = self.unasked(in_size)
        return None if self.is_native(in_size, grid) else grid

    def is_native(self, in_size: Sequence[int], grid: Resize) -> bool:
        """Whether this is the layer's own grid."""
        return grid == self.native(in_size)

    def answer(self, question: str, in_size: Sequence[int]) -> Any:
        """What the method of that name says of an input of so many pixels; a tracer asks once for each size."""
        if torch.compiler.is_compiling():
            return _answer(self, question, _ints(in_size), asked())
        return getattr(self, question)(in_size)


_source: ContextVar[Source | None] = ContextVar("contconv overrides", default=None)


class _Here(local):
    """Who overrides in this thread, and the word for it."""

    def __init__(self) -> None:
        self.source: Source | None = None
        self.word = ""


_here = _Here()


def asked() -> str:
    """The word of this thread, which tracers can look at; "": nobody overrides."""
    return _here.word


def overridden() -> bool:
    """Whether anybody overrides here."""
    return asked() != "" if torch.compiler.is_compiling() else _source.get() is not None


def check_thread() -> None:
    """Refuse to run a graph in an asynchronous task that does not ask for what its thread asks for."""
    if _here.source is not _source.get():
        raise RuntimeError(
            "compiled code in an asynchronous task does not see its own contconv.scales: call the model without "
            "torch.compile there, or leave the block before other tasks run"
        )


@while_tracing
def _answer(layer: Resizing, question: str, in_size: tuple[int, ...], word: str) -> Any:
    check_thread()
    return getattr(layer, question)(in_size)


@while_tracing
def _resized(layer: Resizing, in_size: tuple[int, ...], scale: Any, size: Any) -> Resize:
    return layer.resized(in_size, Override(_read(scale), size))


def _ints(sizes: Sequence[int]) -> tuple[int, ...]:
    """Sizes as ints, where a tracer has symbols."""
    return tuple([index(n) for n in sizes])


def _settled(value: Any) -> Any:
    """Numbers as they are now, where a tracer has symbols; a fraction as a string."""
    if isinstance(value, (tuple, list)):
        return tuple([_settled(item) for item in value])
    if isinstance(value, Fraction):
        return f"{index(value._numerator)}/{index(value._denominator)}"  # type: ignore[attr-defined]
    return value if value is None else torch.fx.experimental.symbolic_shapes.guard_scalar(value)


def _read(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_read(item) for item in value)
    return Fraction(value) if isinstance(value, str) else value


@while_tracing
def _entered(model: nn.Module, outline: tuple[tuple[Any, ...], dict[str, Any]], word: str) -> None:
    check_thread()
    if _here.source is not None:
        with unobserved():
            _here.source.enter(model, *drawn(outline))


def announced(model: nn.Module) -> None:
    """Have a model tell whoever overrides before it runs, once however often this is called."""
    if announce not in model._forward_pre_hooks.values():
        model.register_forward_pre_hook(announce, with_kwargs=True)


def announce(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """The hook of `announced`; it does nothing where nobody overrides."""
    if torch.compiler.is_compiling():
        if asked():
            _entered(model, outlined((args, kwargs)), asked())
        return
    source = _source.get()
    if source is not None:
        source.enter(model, args, kwargs)
        _tell()


def current() -> Source | None:
    """Who overrides here and now."""
    return _source.get()


@contextmanager
def overriding(source: Source | None) -> Iterator[None]:
    """Let `source` override within the block (None: nobody), in this thread or task alone."""
    token = _source.set(source)
    _tell()
    try:
        yield
    finally:
        _source.reset(token)
        _tell()


def _tell() -> None:
    """Say to tracers what is asked for in this thread."""
    _here.source = _source.get()
    _here.word = "" if _here.source is None else _here.source.word
