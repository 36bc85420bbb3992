"""The README and the pages of the docs run, and so does every example in a docstring."""

import contextlib
import doctest
import importlib
import io
import re
from pathlib import Path

import pytest
import torch

import contconv

ROOT = Path(__file__).parent.parent
TEXTS = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
PAGES = [page for page in TEXTS if "```python" in page.read_text()]
PACKAGE = Path(contconv.__file__).parent
MODULES = sorted(".".join(p.relative_to(PACKAGE.parent).with_suffix("").parts) for p in PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_block_of_a_page_runs(page, tmp_path, monkeypatch):
    """In their order and in one namespace, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert blocks
    namespace: dict = {}
    for number, block in enumerate(blocks):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(block, f"{page.name}, python block {number}", "exec"), namespace)


@pytest.mark.parametrize("name", MODULES)
def test_every_example_in_a_docstring_is_true(name):
    module = importlib.import_module(name.removesuffix(".__init__"))
    names = {**vars(module), "torch": torch, "contconv": contconv}
    result = doctest.testmod(module, extraglobs=names, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0
