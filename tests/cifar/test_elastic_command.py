"""`contconv cifar elastic`, whole, on few images: what it writes, and that it repeats nothing."""

import json

import pytest
import torch
from safetensors.torch import save_file
from synthetic import PER_FILE, read

from contconv.cifar.elastic import report
from contconv.cifar.elastic.study import Study
from contconv.cli import main
from contconv.commands import cifar_elastic
from contconv.experiments import drawing
from contconv.models.resnet import ResNet

QUICK = [
    "--images", "8", "--factors", "0.75", "--budgets", "0.7", "--members", "1", "2", "--draws", "2", "--shifts", "2",
    "--calibration", "8", "--rounds", "1", "--epochs", "1", "--batch", "40",
]  # fmt: skip


@pytest.fixture
def weights(tmp_path, monkeypatch):
    """Files with a few images pass for the official ones; a network of few layers."""
    monkeypatch.setattr(cifar_elastic, "read", lambda folder, split: read(folder, split, per_file=PER_FILE))
    torch.manual_seed(0)
    save_file(ResNet(blocks=1).state_dict(), tmp_path / "resnet8.safetensors")
    return tmp_path / "resnet8.safetensors"


def run(data, weights, out, *options):
    given = ["--data", str(data), "--weights", str(weights), "--out", str(out), *QUICK, *options]
    return main(["cifar", "elastic", *given])


def test_everything_is_measured_once(data, weights, tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    monkeypatch.setattr(drawing, "DPI", 40)
    assert run(data, weights, out) == 0
    assert "converted: 16 of 16 images with identical logits" in capsys.readouterr().out
    result = json.loads((out / "result.json").read_text())
    kinds = {name.split("/")[0] for name in result["found"]}
    assert kinds == {"identity", "scales", "ensembles", "budgets", "latency", "consistency"}
    assert result["found"]["identity"]["original"] == result["found"]["identity"]["converted"]
    accuracies = [value for name, value in result["found"].items() if name.startswith(("scales", "budgets"))]
    assert len(accuracies) == 3 * (5 + 2 + 3)  # no way to save so much in the last layers alone
    assert all(0 <= value <= 100 for value in accuracies)
    shown = json.loads((out / "report.json").read_text())["budgets"]["fine-tuned"]
    assert {row["way"] for row in shown} == {"original", "resized image", "early", "even"}
    page = (out / "report.md").read_text()
    for heading in ("identity", "scales", "ensembles", "budgets", "consistency"):
        assert f"## {heading}\n" in page
    for figure in ("budgets", "scales", "ensembles"):
        assert (out / "figures" / f"elastic-resnet8-{figure}.png").stat().st_size > 1000
        assert f"(figures/elastic-resnet8-{figure}.png)" in page

    monkeypatch.setattr(Study, "network", lambda *_: pytest.fail("measured again"))
    monkeypatch.setattr(report, "drawn", lambda *_: None)
    assert run(data, weights, out) == 0
    assert json.loads((out / "result.json").read_text()) == result
    assert (out / "report.md").read_text() == page
    assert run(data, weights, out, "--seed", "1") == 2
    assert "holds other measurements (seed is 0 there and 1 here): use another --out" in capsys.readouterr().err


def test_parts_without_tuning(data, weights, tmp_path):
    out = tmp_path / "out"
    assert run(data, weights, out, "--parts", "identity", "consistency", "--epochs", "0") == 0
    found = json.loads((out / "result.json").read_text())["found"]
    assert set(found) == {"identity", "consistency/trained/resized", "consistency/trained/blurpool"}


def test_weights_of_something_else_are_refused(data, weights, tmp_path, capsys):
    save_file({"a": torch.zeros(1)}, tmp_path / "other.safetensors")
    assert run(data, tmp_path / "other.safetensors", tmp_path / "out") == 2
    assert "is not a ResNet for CIFAR-10: it has no layer1" in capsys.readouterr().err
