"""Every test of this folder runs with every instruction set of this machine. Skipped only where nothing was built."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # `cases`

from contconv import native
from contconv.native import library

ISAS = ("portable", "avx2", "avx512")


def runnable_isas() -> list[str]:
    return list(dict.fromkeys(library.limit_isa(isa) for isa in ISAS)) if native.available() else ["none"]


@pytest.fixture(autouse=True)
def built() -> None:
    if not native.available():
        pytest.skip(native.status())


@pytest.fixture(params=runnable_isas())
def isa(built: None, request: pytest.FixtureRequest) -> Iterator[str]:
    library.limit_isa(request.param)
    yield request.param
    library.limit_isa(None)


@pytest.fixture
def threads() -> Iterator[None]:
    """Restores the number of threads."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
