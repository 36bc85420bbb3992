"""`contconv cifar train`: what it writes, and the one line that bad requests get."""

import sys

import pytest
from synthetic import PER_FILE, read

from contconv.cifar.recipe import PAPER, SHORT
from contconv.cli import main
from contconv.commands import cifar_train
from contconv.models.networks import Network, load_weights


@pytest.fixture
def small(monkeypatch):
    """Files with a few images pass for the official ones."""
    monkeypatch.setattr(cifar_train, "read", lambda folder, split: read(folder, split, per_file=PER_FILE))


def trained(data, out, *arguments):
    common = ["--data", str(data), "--out", str(out), "--epochs", "1", "--batch", "8", "--accelerator", "cpu"]
    return main(["cifar", "train", *common, *arguments])


def refused(capsys, *arguments):
    assert trained(*arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_train_writes_a_network_that_can_be_loaded(data, tmp_path, capsys, small):
    assert trained(data, tmp_path / "out", "--model", "convnet", "--images", "16") == 0
    printed = capsys.readouterr().out
    assert "epoch 1/1: loss" in printed
    assert "test accuracy" in printed
    assert load_weights(tmp_path / "out" / "model.safetensors")[1] == Network("convnet")
    names = ["checkpoint.safetensors", "config.json", "epochs.csv", "model.safetensors", "result.json", "steps.csv"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names


def test_the_options_make_the_config():
    command = cifar_train.Train("data", "out", model="ccnet", kernel="spline", recipe="paper", epochs=7, seed=3)
    config = cifar_train.config_of(command)
    assert config.network == Network("ccnet", "spline")
    assert config.seed == 3
    assert config.recipe.epochs == 7
    assert config.recipe.drops == PAPER["ccnet"].drops == (0.5, 0.75)
    assert cifar_train.config_of(cifar_train.Train("data", "out")).recipe == SHORT


def test_bad_requests_get_one_line_and_exit_code_two(data, tmp_path, capsys, small):
    out = tmp_path / "out"
    assert "CIFAR-10 is not in" in refused(capsys, tmp_path / "none", out)
    assert "kernel is for ccnet only" in refused(capsys, data, out, "--model", "convnet", "--kernel", "spline")
    assert "kernel must be one of internal, " in refused(capsys, data, out, "--kernel", "nonsense")
    assert "scale_std must be at least 0" in refused(capsys, data, out, "--scale-std", "-1")
    assert "log_every must be at least 1" in refused(capsys, data, out, "--log-every", "0")
    assert "batch must be at most 4, for 4 images" in refused(capsys, data, out, "--images", "4")
    (data / "data_batch_1.bin").write_bytes(b"short")
    assert "cut short or damaged" in refused(capsys, data, out)
    assert not out.exists()


def test_another_config_in_the_same_folder_is_refused_before_the_data_are_read(data, tmp_path, capsys, small):
    common = ["--model", "convnet", "--images", "16"]
    assert trained(data, tmp_path / "out", *common) == 0
    capsys.readouterr()
    assert trained(data, tmp_path / "out", *common) == 0  # the same again is done at once
    capsys.readouterr()
    line = refused(capsys, tmp_path / "none", tmp_path / "out", *common, "--seed", "1")
    assert "holds a run of another config (seed is 0 there and 1 here): use another --out" in line


@pytest.mark.parametrize("package", ["lightning_fabric", "safetensors"])
def test_without_the_extra_the_command_names_it_before_any_work(data, tmp_path, capsys, small, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.torch", None)
    line = refused(capsys, data, tmp_path / "out")
    assert line == f"contconv: {package} is missing: pip install 'contconv[cli,train]'"
    assert not (tmp_path / "out").exists()
