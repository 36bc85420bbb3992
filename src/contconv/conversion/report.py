"""What a conversion did: which layers were replaced, which were not, and why."""

from dataclasses import asdict, dataclass
from typing import Any

UNCHOSEN = "layers= does not choose them"


@dataclass(frozen=True)
class Entry:
    """One layer of the model."""

    name: str  # in the model; "" is the model itself
    was: str  # its class
    now: str  # the class of its twin, or "" if it stayed
    why: str  # it was replaced, or not
    also: tuple[str, ...] = ()  # other names of the same module


@dataclass(frozen=True)
class Report:
    """`str()` of it is a table for people."""

    entries: tuple[Entry, ...]
    kernel: str  # what fills in between the taps

    @property
    def replaced(self) -> tuple[str, ...]:
        """The names of the layers that were replaced."""
        return tuple(entry.name for entry in self.entries if entry.now)

    @property
    def kept(self) -> dict[str, str]:
        """The names of the layers that stayed, and why."""
        return {entry.name: entry.why for entry in self.entries if not entry.now}

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        counts = {"replaced": len(self.replaced), "kept": len(self.kept), "kernel": self.kernel}
        return {**counts, "layers": [asdict(entry) for entry in self.entries]}

    def __str__(self) -> str:
        lines = [f"replaced: {len(self.replaced)}, kept: {len(self.kept)}"]
        shown = [entry for entry in self.entries if entry.why != UNCHOSEN]
        width = max((len(_label(entry)) for entry in shown), default=0)
        for entry in shown:
            done = f"{entry.was} -> {entry.now}" if entry.now else f"{entry.was} kept"
            lines.append(f"  {_label(entry):<{width}}  {done}{': ' if entry.why else ''}{entry.why}")
        if len(shown) < len(self.entries):
            lines.append(f"  {len(self.entries) - len(shown)} others kept: {UNCHOSEN}")
        return "\n".join(lines)


def _label(entry: Entry) -> str:
    return " = ".join([entry.name or "(the model)", *entry.also])
