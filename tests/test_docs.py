"""The README and the docs run, and so does every example in a docstring."""

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
BLOCK = re.compile(r"^```python\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
PAGES = {
    str(path.relative_to(ROOT)): blocks
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
    if (blocks := BLOCK.findall(path.read_text()))
}
PACKAGE = Path(contconv.__file__).parent
MODULES = sorted(".".join(p.relative_to(PACKAGE.parent).with_suffix("").parts) for p in PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("page", PAGES)
def test_every_python_block_of_a_page_runs(page, tmp_path, monkeypatch):
    """In their order and in one namespace, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    namespace: dict = {"__name__": "__main__"}
    for number, block in enumerate(PAGES[page]):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(block, f"{page}, python block {number}", "exec"), namespace)


def test_the_pages_that_teach_have_code():
    assert {"README.md", "docs/index.md", "docs/concepts.md", "docs/coming-from.md", "docs/tools.md"} <= set(PAGES)


@pytest.mark.parametrize("name", MODULES)
def test_every_example_in_a_docstring_is_true(name):
    if name == "contconv.native.ops" and not contconv.native.available():
        pytest.skip(contconv.native.status())
    module = importlib.import_module(name.removesuffix(".__init__"))
    names = {**vars(module), "torch": torch, "contconv": contconv}
    result = doctest.testmod(module, extraglobs=names, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def test_the_api_page_has_every_public_name():
    page = (ROOT / "docs" / "api.md").read_text()
    missing = [name for name in contconv.__all__ if name != "__version__" and name not in page]
    assert not missing
