"""Published weights: half precision and back, what it costs, and what is refused."""

import json
from functools import partial

import pytest
import torch
from runs import CCNET, CONVNET, PER_FILE, images, write_data, write_run

from contconv.cifar import data, folder, publication
from contconv.cifar.trained import trained
from contconv.cli import main
from contconv.models import networks, pretrained, published
from contconv.models.networks import Network, build, load_weights, save_weights
from contconv.models.published import FOLDER, MOST_BYTES, facts


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run", CCNET, seed=2)


def test_published_weights_are_the_runs_in_half_precision(tmp_path, run):
    known = publication.write(
        tmp_path / "weights" / "ccnet.safetensors", trained(run), images(), dtype="float16", most_changed=10
    )
    assert published(tmp_path / "weights") == ["ccnet"]
    model = pretrained("ccnet", folder=tmp_path / "weights")
    assert not model.training
    full, _ = load_weights(run / folder.WEIGHTS)
    for name, tensor in full.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor.half().float())
    path = tmp_path / "weights" / "ccnet.safetensors"
    assert path.stat().st_size < 0.6 * (run / folder.WEIGHTS).stat().st_size
    assert facts(path) == json.loads(json.dumps(known))
    assert known["config"]["seed"] == 2
    assert known["images"] == PER_FILE
    again = trained(None, "ccnet", weights=tmp_path / "weights")
    assert again.course == trained(run).course
    assert again.network == CCNET


def test_the_accuracy_on_record_is_that_of_the_rounded_weights(tmp_path, run):
    path = tmp_path / "ccnet.safetensors"
    known = publication.write(path, trained(run), images(), dtype="float16", most_changed=100)
    from contconv.cifar.augment import normalized

    with torch.no_grad():
        right = load_weights(path)[0](normalized(images().pixels)).argmax(1) == images().labels
    assert known["accuracy"] == pytest.approx(100 * right.double().mean().item())


def test_weights_that_half_precision_changes_are_refused_and_nothing_is_written(tmp_path, run):
    """A large common part in the last bias: float16 rounds the differences between the classes away."""
    broken = trained(run)
    with torch.no_grad():
        broken.model.head.last.bias.copy_(10_000 + 0.4 * torch.randn(10))
    path = tmp_path / "ccnet.safetensors"
    with pytest.raises(ValueError, match=r"of 24 test images change their class in float16, more than the 0.1 %"):
        publication.write(path, broken, images(), dtype="float16", most_changed=0.1)
    assert not path.exists()
    known = publication.write(path, broken, images(), dtype="float32", most_changed=0)
    assert known["changed"] == 0


def test_numbers_beyond_half_precision_are_refused(tmp_path, run):
    huge = trained(run)
    with torch.no_grad():
        huge.model.head.last.bias[0] = 1e6
    with pytest.raises(ValueError, match=r"numbers that torch.float16 cannot hold, in head.last.bias"):
        publication.write(tmp_path / "x.safetensors", huge, images(), dtype="float16", most_changed=100)


def test_weights_that_are_too_large_are_refused(tmp_path):
    network = Network("convnet", width=4, hidden=2100)
    save_weights(tmp_path / "large.safetensors", build(network), network)
    with pytest.raises(ValueError, match=rf"weights take .* MB, published ones may take {MOST_BYTES // 2**20} MB"):
        publication.write(
            tmp_path / "x.safetensors",
            trained(tmp_path / "large.safetensors"),
            images(2),
            dtype="float32",
            most_changed=0,
        )


def test_the_commands_publish_and_evaluate_by_name(tmp_path, capsys, monkeypatch, run):
    monkeypatch.setattr(data, "read", partial(data.read, per_file=PER_FILE))
    write_data(tmp_path / "data")
    place = ["--data", str(tmp_path / "data"), "--out", str(tmp_path / "weights")]
    assert main(["cifar", "publish", str(run), *place, "--most-changed", "10", "--name", "mine"]) == 0
    assert "images in another class" in capsys.readouterr().out
    assert published(tmp_path / "weights") == ["mine"]


def test_every_published_file_of_the_package_loads_and_says_how_it_was_made():
    for name in published():
        model = pretrained(name)
        known = facts(FOLDER / f"{name}.safetensors")
        assert model(torch.zeros(1, 3, 32, 32)).shape == (1, 10)
        assert {"accuracy", "full_accuracy", "changed", "images", "dtype", "config", "course"} <= known.keys()
        assert (FOLDER / f"{name}.safetensors").stat().st_size <= MOST_BYTES + 2**20
        begun = known["config"].get("init")  # with a file's name, not with a place on somebody's machine
        assert begun is None or "/" not in begun["path"]


def test_a_name_without_weights_is_refused_with_what_there_is(tmp_path, run):
    with pytest.raises(ValueError, match="name='ccnet' cannot be found: no weights come with this copy"):
        pretrained("ccnet", folder=tmp_path / "none")
    publication.write(tmp_path / "w" / "ccnet.safetensors", trained(run), images(), dtype="float32", most_changed=0)
    with pytest.raises(ValueError, match="name must be one of ccnet, got 'resnet'"):
        pretrained("resnet", folder=tmp_path / "w")


def test_a_missing_library_is_named_with_the_extra_that_brings_it(monkeypatch, run):
    import sys

    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(ImportError, match=r"contconv\[train\]"):
        networks.load_weights(run / folder.WEIGHTS)


def test_a_percentage_must_be_one(tmp_path):
    with pytest.raises(ValueError, match="most_changed must be a percentage, got -1"):
        publication.published_facts(trained(write_run(tmp_path / "r", CONVNET)), images(), "float16", -1)
