"""A trained network and what is known of its training: from a run, a file of weights, or the published ones."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from contconv.cifar import folder
from contconv.cifar.log import EPOCHS, rows
from contconv.models.networks import Network, load_weights
from contconv.models.published import FOLDER, facts, published_path

Course = list[dict[str, float | None]]  # what was logged after each epoch


@dataclass(frozen=True)
class Trained:
    """A network in evaluation mode; config and course are None and empty where a file does not say."""

    model: nn.Module
    network: Network
    source: str
    config: dict[str, Any] | None
    course: Course


def trained(path: Path | None, pretrained: str | None = None, *, weights: Path = FOLDER) -> Trained:
    """Load from a run's folder, from a file of weights, or published weights by name."""
    if (path is None) == (pretrained is None):
        raise ValueError("give either a run (or a file of weights), or --pretrained NAME")
    if pretrained is not None:
        return from_file(published_path(pretrained, weights), f"--pretrained {pretrained}")
    assert path is not None
    return from_run(path) if path.is_dir() else from_file(path, str(path))


def from_run(path: Path) -> Trained:
    """The final weights of a run."""
    if not (path / folder.WEIGHTS).is_file():
        raise FileNotFoundError(
            f"{path} has no {folder.WEIGHTS}: it is no run of `contconv cifar train`, or not a finished one"
        )
    model, network = load_weights(path / folder.WEIGHTS)
    course = [{name: number(value) for name, value in row.items()} for row in rows(path / EPOCHS)]
    return Trained(model, network, str(path), folder.read(path / folder.CONFIG)["config"], course)


def from_file(path: Path, source: str) -> Trained:
    """Weights of a file, with what it says about them."""
    model, network = load_weights(path)
    known = facts(path)
    return Trained(model, network, source, known.get("config"), known.get("course", []))


def number(text: str) -> float | None:
    """A field of a CSV file."""
    return float(text) if text else None
