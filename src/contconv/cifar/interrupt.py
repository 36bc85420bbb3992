"""Ctrl-C as a wish to stop at the next good moment; the second one stops at once."""

import signal
import threading
from types import FrameType
from typing import Any


class Interrupt:
    """Between entering and leaving, the first Ctrl-C only sets `wanted`."""

    def __init__(self) -> None:
        self.wanted = False
        self._before: Any = None

    def __enter__(self) -> "Interrupt":
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._noted)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _noted(self, number: int, frame: FrameType | None) -> None:
        if self.wanted:
            raise KeyboardInterrupt
        self.wanted = True
