"""Plans: what every layer of a model is to do with an input of one size, and what that costs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from contconv.overrides import Override
from contconv.size import plain


@dataclass(frozen=True)
class Step:
    """One call of a layer in a plan."""

    name: str
    in_size: tuple[int, ...]
    scale: tuple[Fraction, ...]
    size: tuple[int, ...]  # that it makes
    center: tuple[Fraction, ...]
    original: tuple[int, ...]  # the size that it makes by itself
    asked: bool  # for another scale than its own


@dataclass(frozen=True)
class Plan:
    """A scale, a size and a center for every layer that can be resized. `str()` of it is a table for people.

    It serves inputs of the size that it was made for: `with contconv.scales(model, plan): model(x)`.
    """

    steps: tuple[Step, ...]
    input_sizes: tuple[tuple[int, ...], ...]  # of the model's arguments that are maps, without batch and channels
    macs: int  # multiply-adds for one image
    original_macs: int
    seconds: float | None = None  # for one image, where it was measured
    original_seconds: float | None = None
    name: str = ""
    others: tuple["Plan", ...] = field(default=(), repr=False)

    @property
    def scales(self) -> dict[str, tuple[Fraction, ...]]:
        """The scale of every layer, by its name."""
        return {step.name: step.scale for step in self.steps}

    @property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        """The output size of every layer, by its name (of the last call, if it is called more than once)."""
        return {step.name: step.size for step in self.steps}

    @cached_property
    def overrides(self) -> Mapping[str, Mapping[tuple[int, ...], Override]]:
        """What each layer is asked to do with which input size."""
        asked: dict[str, dict[tuple[int, ...], Override]] = {}
        for step in self.steps:
            asked.setdefault(step.name, {})[step.in_size] = Override(step.scale, step.size, step.center)
        return asked

    @cached_property
    def word(self) -> str:
        """All that it asks for, as a word that no other plan has."""
        return repr(self.overrides)

    def __str__(self) -> str:
        lines = [f"input {', '.join(_by(size) for size in self.input_sizes)}: {self._costs()}"]
        width = max((len(step.name) for step in self.steps), default=0)
        for step in self.steps:
            scale = _by(dict.fromkeys(plain(s) for s in step.scale))
            lines.append(
                f"  {step.name:<{width}}  {_by(step.in_size)} -> {_by(step.size)}  scale {scale}"
                + (f"  (was {_by(step.original)})" if step.size != step.original else "")
            )
        return "\n".join([*lines, *(f"or {other._costs()}" for other in self.others)])

    def _costs(self) -> str:
        share = self.macs / self.original_macs if self.original_macs else 1.0
        text = (
            f"{self.name}{': ' if self.name else ''}{self.macs / 1e6:.4g} M multiply-adds, {share:.3g} of the original"
        )
        if self.seconds is not None and self.original_seconds:
            text += f"; {1e3 * self.seconds:.3g} ms, {self.seconds / self.original_seconds:.3g} of the original"
        return text


def _by(values: object) -> str:
    return " x ".join(str(value) for value in values)  # type: ignore[attr-defined]
