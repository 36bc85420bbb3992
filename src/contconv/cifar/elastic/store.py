"""Measurements that are made once: each is in a JSON file as soon as it is finished, with its processor time."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from contconv.cifar import folder
from contconv.experiments.record import machine, plain, versions


class Store:
    """The file, and what is in it.

    about: all that the measurements depend on; a file about something else is refused.
    """

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.path = path
        self.content: dict[str, Any] = {"about": plain(about), "found": {}, "seconds": {}}
        if path.exists():
            self.content = folder.read(path)
            self._check(plain(about))
        self.content |= {"versions": versions(), "machine": machine()}

    def once(self, name: str, measure: Callable[[], Any]) -> Any:
        """What was measured under this name; if nothing was, it is now."""
        found: dict[str, Any] = self.content["found"]
        if name not in found:
            start = time.process_time()
            found[name] = plain(measure())
            self.content["seconds"][name] = round(time.process_time() - start, 2)
            folder.write(self.path, self.content)
        return found[name]

    def _check(self, about: dict[str, Any]) -> None:
        there = self.content["about"]
        differing = [name for name in dict.fromkeys([*there, *about]) if there.get(name) != about.get(name)]
        if differing:
            told = "; ".join(f"{name} is {there.get(name)} there and {about.get(name)} here" for name in differing)
            raise ValueError(f"{self.path} holds other measurements ({told}): use another --out")
