"""How far two cores are from each other: the time of a round trip between them.

    python benchmarks/cores.py [SECONDS]

Two threads, each bound to a core, hand a number back and forth. Cores that share a cache take some 100 ns for it; cores
of different parts of a processor, or of two, take 350 and more, and what one has written and the other reads is as much
slower. A virtual machine has its cores here and there, and they move while it runs. So a ratio in which one side hands
more from core to core than the other depends on it.
"""

import argparse
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from statistics import median

SOURCE = Path(__file__).with_suffix(".c")
FAR = 250e-9  # seconds: near ones take about 80 to 110 ns, far ones 350 to 750


def round_trip() -> float | None:
    """Seconds from the first core to the second and back, the median of a few; None where there is one core, or nothing
    that compiles."""
    if not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2 or (library := _library()) is None:
        return None
    first, second, *_ = sorted(os.sched_getaffinity(0))
    took = median(library.round_trip(first, second, 5_000) for _ in range(7))
    return took if took > 0 else None  # no second thread to be had


def how_far() -> str:
    took = round_trip()
    return "-" if took is None else called(took)


def called(took: float) -> str:
    return "far" if took > FAR else "near"


@cache
def _library() -> ctypes.CDLL | None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "cores.so"
        made = subprocess.run(
            [compiler, "-O2", "-shared", "-fPIC", "-pthread", SOURCE, "-o", built], capture_output=True, check=False
        )
        if made.returncode:
            return None
        library = ctypes.CDLL(str(built))
    library.round_trip.restype = ctypes.c_double
    return library


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=float, nargs="?", default=0.0, help="go on for so long, once a second")
    stop = time.perf_counter() + parser.parse_args().seconds
    while True:
        took = round_trip()
        if took is None:
            print("needs two cores and a C compiler")
            return 1
        print(f"{1e9 * took:6.0f} ns, {called(took)}", flush=True)
        if time.perf_counter() >= stop:
            return 0
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
