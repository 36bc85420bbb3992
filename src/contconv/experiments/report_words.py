"""What both forms of a report say about their records."""

import re
from typing import Any

Record = dict[str, Any]


def summary(found: list[Record]) -> str:
    claims = [claim for record in found for claim in record["claims"]]
    held = sum(claim["passed"] for claim in claims)
    return f"{held} of {len(claims)} claims hold"


def circumstances(record: Record) -> str:
    """Versions and machine in one line."""
    made_with = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    return f"{made_with}; {spoken_machine(record['machine'])}"


def spoken_machine(machine: dict[str, Any]) -> str:
    power = f"{counted(machine['cores'], 'core')}, {counted(machine['threads'], 'thread')}"
    return f"{machine['processor']}, {power}"


def counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def spoken_time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.1f} min"


def statement(docstring: str) -> str:
    """A docstring's paragraphs, each on one line."""
    paragraphs = re.split(r"\n\s*\n", docstring.strip())
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
