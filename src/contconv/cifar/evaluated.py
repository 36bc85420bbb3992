"""Evaluations as files: everything that the report needs, of one network."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from contconv import files
from contconv.cifar.data import Images
from contconv.cifar.evaluation import Settings, evaluate
from contconv.cifar.first_kernels import first_kernels
from contconv.cifar.trained import Trained
from contconv.experiments.record import machine, plain, versions

BEFORE = ("contconv cifar evaluation", "contconv cifar evaluation, with the last layer before its ReLU")
KIND = "contconv cifar evaluation, 3"
Record = dict[str, Any]


def record(trained: Trained, test: Images, settings: Settings, command: str) -> Record:
    """Evaluate, and put beside it what the network is and how it was trained."""
    return {
        "kind": KIND,
        "source": trained.source,
        "command": command,
        "network": asdict(trained.network),
        "parameters": sum(parameter.numel() for parameter in trained.model.parameters()),
        "config": trained.config,
        "course": trained.course,
        "settings": plain(settings),
        "results": plain(evaluate(trained.model, test, settings)),
        "first_kernels": first_kernels(trained.model),
        "versions": versions(),
        "machine": machine(),
    }


def write(path: Path, evaluated: Record) -> None:
    files.write_text(path, json.dumps(evaluated, allow_nan=False) + "\n")


def read(paths: list[Path]) -> list[Record]:
    """The evaluations in these files and folders (and what is in those)."""
    found = []
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"no such file or folder: {path}")
        inside = sorted(path.rglob("*.json")) if path.is_dir() else [path]
        evaluations = [one for one in map(loaded, inside) if one is not None]
        old = [one["source"] for one in evaluations if one["kind"] in BEFORE]
        if old:
            raise ValueError(f"{path}: made by an older version, which measured less: evaluate {old[0]} again")
        if not evaluations:
            raise ValueError(f"{path}: no evaluation here; `contconv cifar evaluate` makes some")
        found += evaluations
    return found


def loaded(path: Path) -> Record | None:
    """The evaluation in a JSON file; None if it holds something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return None
    return content if isinstance(content, dict) and content.get("kind") in (KIND, *BEFORE) else None
