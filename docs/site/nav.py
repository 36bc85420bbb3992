"""A hook of mkdocs: pages that mkdocs.yml does not place come at the end, so that none is out of reach."""

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    placed = set(_pages(config["nav"]))
    folder = Path(config["docs_dir"])
    others = [page.name for page in sorted(folder.glob("*.md")) if page.name not in placed]
    if others:
        config["nav"].append({"More": others})
    return config


def _pages(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    entries = nav.values() if isinstance(nav, dict) else nav
    return [page for entry in entries for page in _pages(entry)]
