"""Imports point one way, and importing the package costs nothing but torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import contconv

PACKAGE = Path(contconv.__file__).parent

# A room imports only from the rooms on the lines before its own.
ROOMS = [
    ["_version", "files", "arguments"],
    ["size", "precision", "transforms", "layout"],
    ["overrides"],
    ["native"],
    ["grid"],
    ["kernels"],
    ["strategies"],
    ["tracing"],
    ["functional"],
    ["discrete"],
    ["modules"],
    ["explanation", "sequences"],
    ["ensembles", "conversion"],
    ["elastic"],
    ["fitting"],
    ["images", "plot", "exporting"],
    ["models"],
    ["experiments"],
    ["cifar"],
    ["commands"],
    ["cli"],
    ["__init__", "__main__"],
]
FLOOR = {room: floor for floor, rooms in enumerate(ROOMS) for room in rooms}
FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    """The rooms of the package that a file imports from, wherever in the file it does."""
    names = []
    for node in ast.walk(ast.parse((PACKAGE / path).read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = ["contconv", *path.parts[:-1]]
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, [base, node.module]))
            names += [f"{module}.{alias.name}" for alias in node.names] if module == "contconv" else [module]
    parts = [name.split(".") for name in names if name.split(".")[0] == "contconv"]
    return {part[1] if len(part) > 1 else "__init__" for part in parts}


@pytest.mark.parametrize("path", FILES, ids=str)
def test_a_room_imports_only_from_the_rooms_above_it(path):
    room = room_of(path)
    below = {other for other in imported_rooms(path) if other != room and FLOOR[other] >= FLOOR[room]}
    assert not below


def test_every_room_has_its_floor():
    assert {room_of(path) for path in FILES} <= FLOOR.keys()


def fresh(code: str) -> str:
    """What a new interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_loads_nothing_heavier_than_torch():
    code = """
import sys, torch
before = set(sys.modules)
import contconv
print(*sorted({name.split(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)))
"""
    assert set(fresh(code).split()) <= {"contconv", "torch"}


def test_importing_prints_nothing_and_changes_no_setting():
    code = """
import torch
def state():
    return torch.get_rng_state().sum(), torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled()
before = state()
import contconv
assert state() == before
"""
    assert fresh(code) == ""


def test_everything_promised_can_be_imported_from_the_top():
    promised = "continuous_conv projected_grid explain InternalNet SplineKernel Linear Cubic Lanczos Gaussian Table"
    promised += " ContinuousConv1d ContinuousConv2d ContinuousConv3d ensemble"
    assert set(promised.split()) <= set(contconv.__all__)
    assert all(hasattr(contconv, name) for name in contconv.__all__)


def test_other_rooms_are_there_when_they_are_asked_for():
    script = (
        "import sys, contconv; assert 'contconv.models' not in sys.modules; "
        "assert contconv.models.pretrained and contconv.fitting.fit; "
        "assert not hasattr(contconv, 'nothing')"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
