"""The folder of a run: its config, its weights, its result."""

import json
from pathlib import Path
from typing import Any

from contconv import files
from contconv.cifar.recipe import Config, completed_config
from contconv.experiments.record import machine, plain, versions

CONFIG, WEIGHTS, RESULT = "config.json", "model.safetensors", "result.json"


def check(out: Path, config: Config) -> None:
    """Refuse a folder with a run of another config, and say what differs."""
    path = out / CONFIG
    if not path.exists():
        return
    there, here = _flat(completed_config(read(path)["config"])), _flat(plain(config))
    differences = [
        f"{name} is {there.get(name)!r} there and {here.get(name)!r} here"
        for name in dict.fromkeys([*there, *here])
        if there.get(name) != here.get(name)
    ]
    if differences:
        raise ValueError(f"{out} holds a run of another config ({'; '.join(differences)}): use another --out")


def write_config(out: Path, config: Config, processes: int) -> None:
    """What the run is, before its first step."""
    record = {"config": plain(config), "versions": versions(), "machine": machine(), "processes": processes}
    write(out / CONFIG, record)


def write(path: Path, record: dict[str, Any]) -> None:
    """A JSON file, whole or not at all."""
    files.write_text(path, json.dumps(record, indent=1, allow_nan=False) + "\n")


def read(path: Path) -> dict[str, Any]:
    """A JSON file that `write` wrote."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}): use another --out, or delete the folder") from error


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested names with dots."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
