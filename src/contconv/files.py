"""Files that are either whole or not there: written to a temporary name beside their place, then renamed."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def write(path: Path, put: Callable[[Path], object]) -> None:
    """Let `put` write a temporary file of the same suffix, and move that to `path`; on any error leave nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}.", suffix=path.suffix)
    os.close(handle)
    partial = Path(name)
    try:
        put(partial)
        partial.chmod(0o666 & ~_umask())  # mkstemp makes files for their owner alone
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """A text file, whole or not at all."""
    write(path, lambda partial: partial.write_text(text, encoding="utf-8"))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
