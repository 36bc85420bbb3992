"""A run begins with trained weights; a CCNet that begins as a trained ConvNet is that ConvNet, at its strides."""

import json

import pytest
import torch
from runs import CCNET, CONVNET, write_run
from synthetic import PER_FILE, config, images, read
from torch import nn

from contconv import continuous_conv
from contconv.cifar.fabrics import Devices, launched
from contconv.cifar.training import Run, Watching
from contconv.cli import main
from contconv.commands import cifar_train
from contconv.kernels import SplineKernel
from contconv.models import CCNet, ConvNet
from contconv.models.networks import KERNEL_CHOICES, Network, build, save_weights
from contconv.models.starting import STARTED, STRIDES, begin, start, take_over


def pair(kernel="spline", **options):
    torch.manual_seed(0)
    sizes = {"width": 4, "hidden": 8, **options}
    return CCNet(KERNEL_CHOICES[kernel], **sizes).double(), ConvNet(**sizes).double()


@pytest.mark.parametrize("kernel", STARTED)
@pytest.mark.parametrize("padding_mode", ["zeros", "reflect", "circular"])
def test_at_the_strides_it_is_the_convnet(kernel, padding_mode):
    ccnet, convnet = pair(kernel, padding_mode=padding_mode)
    take_over(ccnet, convnet)
    x = torch.randn(3, 3, 32, 32, dtype=torch.float64)
    assert STRIDES == (1 / 2, 1, 1, 1, 1, 1, 1 / 2)
    assert torch.allclose(ccnet(x, STRIDES), convnet(x), rtol=0, atol=1e-10)


@pytest.mark.parametrize("kernel", STARTED)
def test_its_kernels_go_through_the_taps(kernel):
    ccnet, convnet = pair(kernel)
    take_over(ccnet, convnet)
    for layer, conv in zip(ccnet.convs, convnet.convs, strict=True):
        size = conv.kernel_size[0]
        for row in range(size):
            for column in range(size):
                place = torch.tensor([(size - 1) / 2 - row, (size - 1) / 2 - column], dtype=torch.float64)
                assert torch.allclose(layer.kernel(place), conv.weight[:, :, row, column], rtol=0, atol=1e-12)


def test_a_folded_kernel_answers_a_constant_as_the_convolution_at_every_scale():
    taps = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    x = torch.ones(1, 3, 20, 20, dtype=torch.float64)
    y = continuous_conv(x, SplineKernel.from_taps(taps), scale=0.7)[..., 4:-4, 4:-4]
    assert torch.allclose(y, taps.sum((1, 2, 3))[None, :, None, None].expand_as(y), rtol=0, atol=1e-10)


def test_kernels_that_taps_do_not_determine_are_refused():
    _, convnet = pair()
    with pytest.raises(TypeError, match="kernels of the kinds taps, spline, spline-folded, got InternalNet"):
        take_over(CCNet("internal", width=4, hidden=8), convnet)
    with pytest.raises(ValueError, match="density=2: taps determine a spline of one control point per tap only"):
        SplineKernel(2, 3, (3, 3), density=2).interpolate(torch.zeros(3, 2, 3, 3))
    with pytest.raises(ValueError, match=r"taps must be \[3, 2, 3, 3\] .*, got \[3, 2, 4, 4\]"):
        SplineKernel(2, 3, (3, 3)).interpolate(torch.zeros(3, 2, 4, 4))


@pytest.fixture
def small(monkeypatch):
    """Files with a few images pass for the official ones, and every network is a small one."""
    monkeypatch.setattr(cifar_train, "read", lambda folder, split: read(folder, split, per_file=PER_FILE))
    monkeypatch.setattr(cifar_train, "Network", lambda *given, **more: Network(*given, **more, width=4, hidden=8))


def trained(data, out, *arguments):
    given = ["--epochs", "1", "--batch", "8", "--images", "16", "--accelerator", "cpu", *arguments]
    return main(["cifar", "train", "--data", str(data), "--out", str(out), "--model", "ccnet", *given])


def test_a_run_begins_with_the_weights_of_the_file(data, tmp_path):
    torch.manual_seed(1)
    convnet, path = build(CONVNET), tmp_path / "convnet.safetensors"
    save_weights(path, convnet, CONVNET)
    begun = config(1, CCNET, init=start(path, CCNET))
    run = Run(begun, *images(data), tmp_path / "out", launched(Devices("cpu"), "32-true"), Watching())
    x = torch.randn(2, 3, 32, 32)
    assert torch.allclose(run.state.model(x, STRIDES), convnet(x), atol=1e-5)
    path.write_bytes(b"other")
    with pytest.raises(ValueError, match="is another file than the run was begun with"):
        begin(run.state.model, begun.init)


def test_another_start_in_the_same_folder_is_refused(data, tmp_path, capsys, small):
    convnet, path = build(CONVNET), tmp_path / "convnet.safetensors"
    save_weights(path, convnet, CONVNET)
    begun = ["--kernel", "spline", "--init", str(path)]
    assert trained(data, tmp_path / "out", *begun) == 0
    assert "sha256" in json.loads((tmp_path / "out" / "config.json").read_text())["config"]["init"]
    assert trained(data, tmp_path / "out", *begun) == 0  # done
    assert trained(data, tmp_path / "out", "--kernel", "spline") == 2
    assert "init.sha256 is '" in capsys.readouterr().err
    nn.init.ones_(convnet.head.last.bias)
    save_weights(path, convnet, CONVNET)
    assert trained(data, tmp_path / "out", *begun) == 2  # the same name, other weights
    assert "init.sha256 is '" in capsys.readouterr().err


@pytest.mark.parametrize("network", [CCNET, CONVNET], ids=lambda network: network.model)
def test_a_run_goes_on_from_trained_weights_of_its_own_kind(data, tmp_path, network):
    torch.manual_seed(1)
    before, path = build(network), tmp_path / "before.safetensors"
    save_weights(path, before, network)
    begun = config(1, network, init=start(path, network))
    run = Run(begun, *images(data), tmp_path / "out", launched(Devices("cpu"), "32-true"), Watching())
    now = run.state.model.state_dict()
    assert all(torch.equal(now[name], tensor) for name, tensor in before.state_dict().items())
    run.step()
    assert not torch.equal(now["convs.0.bias"], before.state_dict()["convs.0.bias"])


def test_what_cannot_be_begun_with_is_refused(data, tmp_path, capsys, small):
    run = write_run(tmp_path / "run", CCNET) / "model.safetensors"
    assert trained(data, tmp_path / "out", "--init", str(run)) == 2
    error = capsys.readouterr().err
    assert "init must hold the weights of Network(model='ccnet', kernel=None" in error
    assert "only ccnet with one of the kernels taps, spline, spline-folded can begin as a convnet" in error
    assert trained(data, tmp_path / "out", "--kernel", "taps", "--init", str(run)) == 2
    assert "or of Network(model='convnet'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
