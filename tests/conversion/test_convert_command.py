"""`contconv convert`, the files that it writes, and the way back from them."""

import json
from pathlib import Path

import pytest
import torch
from nets import Residual
from safetensors.torch import load_file, save_file
from torch import nn

import contconv
from contconv.cli import main

FACTORY = """
import torch
from torch import nn

def net():
    torch.manual_seed(5)
    return nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, padding=1), nn.MaxPool2d(2))

def nothing():
    return 3
"""


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """A factory in the current folder, and weights that are not what it starts with."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "trained_net.py").write_text(FACTORY)
    torch.manual_seed(1)
    net = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, padding=1), nn.MaxPool2d(2))
    save_file({name: value.contiguous() for name, value in net.state_dict().items()}, "trained.safetensors")
    return net.eval()


def test_a_file_goes_through_and_comes_back(trained, capsys):
    arguments = ["convert", "trained_net:net", "trained.safetensors", "out.safetensors", "--check", "3x16x16"]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "0  Conv2d -> ConvertedConv2d" in printed
    assert "largest difference on noise of 3x16x16: 0" in printed
    report = json.loads(Path("out.json").read_text())
    assert (report["factory"], report["replaced"], report["kept"]) == ("trained_net:net", 2, 1)
    assert {layer["name"]: layer["now"] for layer in report["layers"]}["3"] == "ConvertedPool"

    import trained_net

    model = contconv.load_converted(trained_net.net(), "out.safetensors").eval()
    x = torch.randn(2, 3, 17, 16)
    assert torch.equal(model(x), trained(x))
    assert contconv.conversion_report(model).replaced == ("0", "3")


def test_layers_and_kernels_can_be_chosen(trained, capsys):
    arguments = ["convert", "trained_net:net", "trained.safetensors", "out.safetensors", "--layers", "2", "3"]
    assert main([*arguments, "--kernel", "table"]) == 0
    assert "replaced: 2, kept: 1" in capsys.readouterr().out
    report = json.loads(Path("out.json").read_text())
    assert report["kernel"] == "table"
    assert set(load_file("out.safetensors")) >= {"2.kernel.weight", "0.weight"}


@pytest.mark.parametrize(
    ("factory", "weights", "options", "reason"),
    [
        ("trained_net", "trained.safetensors", [], "must be module:function"),
        ("no_such_module:net", "trained.safetensors", [], "cannot be found: No module named 'no_such_module'"),
        ("trained_net:other", "trained.safetensors", [], "cannot be found"),
        ("trained_net:nothing", "trained.safetensors", [], "made a int, not an nn.Module"),
        ("trained_net:net", "missing.safetensors", [], "no such file"),
        ("trained_net:net", "trained.safetensors", ["--layers", "17"], "no module '17'"),
        ("trained_net:net", "small.safetensors", [], "does not fit Sequential: it lacks 0.bias, 1.weight"),
        ("trained_net:net", "text.safetensors", [], "text.safetensors"),
    ],
)
def test_bad_requests_get_one_line(trained, capsys, factory, weights, options, reason):
    save_file({"0.weight": torch.zeros(4, 3, 3, 3)}, "small.safetensors")
    Path("text.safetensors").write_text("no tensors")
    assert main(["convert", factory, weights, "out.safetensors", *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith("contconv: ")
    assert error.count("\n") == 1
    assert reason in error


def test_tied_weights_are_written_once(tmp_path):
    torch.manual_seed(2)
    net = Residual()
    net.short2.weight = net.short1.weight
    net = contconv.convert(net)
    contconv.save_converted(net, tmp_path / "net.safetensors")
    fresh = Residual()
    fresh.short2.weight = fresh.short1.weight
    again = contconv.load_converted(fresh, tmp_path / "net.safetensors")
    x = torch.randn(1, 3, 16, 16)
    assert torch.equal(again(x), net(x))
    assert again.short1.kernel.weight is again.short2.kernel.weight


def test_a_file_of_somebody_else_is_refused(tmp_path):
    save_file({"a": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="was not written by contconv"):
        contconv.load_converted(Residual(), tmp_path / "other.safetensors")
