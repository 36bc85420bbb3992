"""The README runs, and so does every example in a docstring."""

import contextlib
import doctest
import importlib
import io
import re
from pathlib import Path

import pytest
import torch

import contconv

README = Path(__file__).parent.parent / "README.md"
PACKAGE = Path(contconv.__file__).parent
MODULES = sorted(".".join(p.relative_to(PACKAGE.parent).with_suffix("").parts) for p in PACKAGE.rglob("*.py"))


def test_every_python_block_of_the_readme_runs(tmp_path, monkeypatch):
    """In their order and in one namespace, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert blocks
    namespace: dict = {}
    for number, block in enumerate(blocks):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(block, f"README.md, python block {number}", "exec"), namespace)


@pytest.mark.parametrize("name", MODULES)
def test_every_example_in_a_docstring_is_true(name):
    module = importlib.import_module(name.removesuffix(".__init__"))
    names = {**vars(module), "torch": torch, "contconv": contconv}
    result = doctest.testmod(module, extraglobs=names, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0
