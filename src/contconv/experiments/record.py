"""What an experiment hands back, and how it is kept: claims, every seed's numbers, config, machine, seconds."""

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from typing import Any

import torch

from contconv import files
from contconv._version import __version__


@dataclass(frozen=True)
class Config:
    """What all experiments share."""

    seed: int = 0
    """The first random seed."""
    photo: Path | None = None
    """Your own photo; by default the cat that comes with the package."""
    out: Path = Path("out/experiments")
    """The folder for the results and the report."""


@dataclass(frozen=True)
class Claim:
    """One statement that can be false."""

    name: str
    paper: str  # what the paper states, or "(not in the paper)"
    wanted: str  # what would make it true, in words
    ours: str  # what was measured, in words
    passed: bool
    values: tuple[float, ...]  # every seed's number


@dataclass(frozen=True)
class Figure:
    """A picture, drawn when asked, once in light and once in dark."""

    name: str
    caption: str
    draw: Callable[[], Any]  # -> a matplotlib figure


@dataclass(frozen=True)
class Result:
    """What `run(config)` returns."""

    claims: tuple[Claim, ...]
    numbers: Mapping[str, Any]  # anything JSON can hold
    figures: tuple[Figure, ...] = field(default=(), repr=False)

    @property
    def passed(self) -> bool:
        return all(claim.passed for claim in self.claims)


def check_positive(config: Config, *names: str, least: int = 1) -> None:
    """Refuse counts that are none."""
    for name in names:
        value = getattr(config, name)
        if value < least:
            raise ValueError(f"--{name.replace('_', '-')} must be at least {least}, got {value}")


def at_least(name: str, paper: str, values: Sequence[float], bound: float, what: str) -> Claim:
    """A claim that the mean of the values is at least the bound."""
    mean = sum(values) / len(values)
    return Claim(name, paper, f"{what} >= {bound:g}", spoken(values), mean >= bound, tuple(values))


def at_most(name: str, paper: str, values: Sequence[float], bound: float, what: str) -> Claim:
    """A claim that the mean of the values is at most the bound."""
    mean = sum(values) / len(values)
    return Claim(name, paper, f"{what} <= {bound:g}", spoken(values), mean <= bound, tuple(values))


def spoken(values: Sequence[float]) -> str:
    """The mean, and the spread where there is one."""
    mean = sum(values) / len(values)
    if len(values) == 1:
        return f"{mean:.4g}"
    spread = (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5
    return f"{mean:.3g} ± {spread:.2g} ({len(values)} seeds)"


def versions() -> dict[str, str]:
    """What the numbers depend on."""
    return {"contconv": __version__, "torch": str(torch.__version__), "python": platform.python_version()}


def machine() -> dict[str, Any]:
    """What the seconds depend on."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def saved(
    folder: Path, experiment: str, config: Config, result: Result, seconds: float, command: str, statement: str
) -> dict[str, Any]:
    """Write `<folder>/<experiment>.json`, and return what it holds."""
    record = {
        "experiment": experiment,
        "statement": statement,
        "command": command,
        "config": plain(config),
        "claims": [plain(claim) for claim in result.claims],
        "passed": result.passed,
        "numbers": plain(result.numbers),
        "figures": [{"name": figure.name, "caption": figure.caption} for figure in result.figures],
        "versions": versions(),
        "machine": machine(),
        "seconds": round(seconds, 4),
    }
    files.write_text(folder / f"{experiment}.json", json.dumps(record, indent=1, allow_nan=False) + "\n")
    return record


def plain(value: Any) -> Any:
    """As JSON has it: dataclasses as objects, tuples as arrays, paths as text; a number that is none as null."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, bool | int | str) or value is None:
        return value
    return str(value)
