"""The synthetic images, once for all tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def data(tmp_path):
    from synthetic import write

    write(tmp_path / "data")
    return tmp_path / "data"
