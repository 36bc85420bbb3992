"""Training: weights that reproduce their accuracy, the same course on two processes, every step its own draws."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from synthetic import CONVNET, TINY, config, images, run, same_weights

from contconv.cifar import checkpoint, draws, training
from contconv.cifar.log import rows
from contconv.cifar.training import sequences_of
from contconv.models.networks import Network, load_weights
from contconv.sequences import output_sizes

SCRIPT = Path(__file__).parent / "synthetic.py"


def test_a_run_leaves_weights_that_reproduce_its_accuracy(data, tmp_path):
    result = run(tmp_path / "out", epochs=3)
    model, network = load_weights(tmp_path / "out" / "model.safetensors")
    assert network == TINY
    _, test = images(data)
    mean, std = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.2470, 0.2435, 0.2616])
    x = (test.pixels / 255 - mean.view(3, 1, 1)) / std.view(3, 1, 1)
    with torch.no_grad():
        right = (model(x).argmax(1) == test.labels).double().mean().item()
    assert right == result["test_accuracy"]
    epochs = rows(tmp_path / "out" / "epochs.csv")
    assert [row["epoch"] for row in epochs] == ["1", "2", "3"]
    assert [row["test_accuracy"] != "" for row in epochs] == [False, True, True]
    steps = rows(tmp_path / "out" / "steps.csv")
    assert [int(row["step"]) for row in steps] == list(range(1, 31))
    mean_loss = sum(float(row["loss"]) for row in steps[:10]) / 10
    assert float(epochs[0]["loss"]) == pytest.approx(mean_loss)
    saved = json.loads((tmp_path / "out" / "config.json").read_text())
    assert saved["config"]["network"]["kernel"] == "spline"
    assert saved["config"]["recipe"]["batch"] == 8


def test_training_learns(data, tmp_path):
    run(tmp_path / "out", epochs=20, network=Network("convnet", width=8, hidden=32))
    losses = [float(row["loss"]) for row in rows(tmp_path / "out" / "epochs.csv")]
    assert losses[-1] < losses[0] - 0.3


def test_another_seed_makes_another_network_and_the_same_seed_the_same(data, tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        torch.manual_seed(hash(name))  # which must not matter
        run(tmp_path / name, epochs=1, seed=seed)
    assert same_weights(tmp_path / "a", tmp_path / "b")
    assert not same_weights(tmp_path / "a", tmp_path / "c")


@pytest.mark.parametrize(
    "compared",
    [
        {},
        {"consistency": 0.5},
        {"agreement": 0.5},
        {"agreement": 0.5, "agreement_every": 2},
        {"agreement": 0.5, "agreement_every": 2, "agreement_noise": 0.5, "batch": 16},
    ],
    ids=str,
)
def test_two_processes_have_the_course_of_one(data, tmp_path, compared):
    epochs = 1 if "consistency" in compared else 2  # of twenty steps or ten (with twice the batch five)
    more = ["alike=true", *(f"{name}={value}" for name, value in compared.items())]
    command = [sys.executable, str(SCRIPT), str(tmp_path / "two"), "2", str(epochs), *more]
    subprocess.run(command, check=True)
    run(tmp_path / "one", epochs=epochs, alike=True, **compared)
    assert json.loads((tmp_path / "two" / "config.json").read_text())["processes"] == 2
    one, two = (rows(tmp_path / name / "steps.csv") for name in ("one", "two"))
    assert len(one) == len(two) == (10 if "batch" in compared else 20)
    near = 5e-5 if compared else 1e-5
    for row, other in zip(one, two, strict=True):
        assert float(row["loss"]) == pytest.approx(float(other["loss"]), abs=near)
        assert float(row["accuracy"]) == pytest.approx(float(other["accuracy"]), abs=1e-12)
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    off = torch.cat([(first[name] - second[name]).abs().flatten() for name in first])
    if compared:  # a gradient that is nothing but rounding is a step like any other, for Adam and Muon
        assert (off > 1e-4).double().mean() < 0.02
        assert off.max() < 2e-2
    else:
        assert off.max() < 1e-4
    results = [json.loads((tmp_path / name / "result.json").read_text())["test_accuracy"] for name in ("one", "two")]
    assert results[0] == results[1]


def test_torchrun_must_have_started_as_many_processes_as_asked_for(data, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"devices x nodes must be .* torchrun started, 2, got 1"):
        run(tmp_path / "out", epochs=1)


def test_batches_must_fit_the_images_and_the_processes(data, tmp_path):
    with pytest.raises(ValueError, match="batch must be at most 5, for 5 images, got 8"):
        run(tmp_path / "out", epochs=1, images=5)
    with pytest.raises(ValueError, match="batch must be a multiple of 3, for 3 processes, got 8"):
        training.check_batch(config(1), 80, 3)
    with pytest.raises(ValueError, match=r"batch must be a multiple of 12, for 3 processes .* two by two, got 8"):
        training.check_batch(config(1, consistency=1.0), 80, 3)
    with pytest.raises(ValueError, match=r"batch must be a multiple of 6, for 3 processes .* two by two, got 8"):
        training.check_batch(config(1, agreement=1.0), 80, 3)
    with pytest.raises(ValueError, match=r"batch must be a multiple of 16, for 2 processes .* images and noise, got 8"):
        training.check_batch(config(1, agreement=1.0, agreement_noise=1.0), 80, 2)
    with pytest.raises(ValueError, match="images must be between 1 and 80, got 81"):
        run(tmp_path / "out", epochs=1, images=81)
    assert not (tmp_path / "out").exists()


def test_a_loss_that_explodes_ends_the_run_before_it_is_saved(data, tmp_path, monkeypatch):
    def broken(*arguments, **options):
        return torch.tensor(float("nan"), requires_grad=True)

    monkeypatch.setattr(training.F, "cross_entropy", broken)
    with pytest.raises(ValueError, match=r"learning_rate=0\.001 is too high: the loss is nan at step 1"):
        run(tmp_path / "out", epochs=1)
    assert not (tmp_path / "out" / checkpoint.NAME).exists()


def test_every_step_has_its_own_scales_which_depend_on_seed_and_step_alone():
    def scales_of(seed, step):
        (scales,) = sequences_of(config(1, seed=seed), step, 50)
        return scales

    drawn = [scales_of(seed, step) for seed in (0, 1) for step in range(50)]
    torch.manual_seed(5)
    assert drawn == [scales_of(seed, step) for seed in (0, 1) for step in range(50)]
    assert len(set(drawn)) == 100
    assert all(output_sizes((32, 32), scales)[-1] == (8, 8) for scales in drawn)
    assert sequences_of(config(1, random_scales=False), 0, 50) == []
    assert sequences_of(config(1, network=CONVNET), 0, 50) == []


def test_two_sequences_of_scales_must_agree_from_a_share_of_the_training_on():
    plain, late = config(1), config(1, agreement=1.0, agreement_from=0.6)
    for step in range(50):
        first, *other = sequences_of(late, step, 50)
        assert [first] == sequences_of(plain, step, 50)
        assert len(other) == (step >= 30)
        assert first not in other


def test_two_sequences_in_every_so_many_steps_only():
    seldom = config(1, agreement=1.0, agreement_from=0.5, agreement_every=4)
    counts = [len(sequences_of(seldom, step, 40)) for step in range(40)]
    assert counts == [1] * 20 + [2, 1, 1, 1] * 5


def test_every_epoch_has_every_image_once_in_an_order_of_its_own():
    first, second = draws.order(0, 0, 100), draws.order(0, 1, 100)
    assert torch.equal(first.sort().values, torch.arange(100))
    assert torch.equal(second.sort().values, torch.arange(100))
    assert not torch.equal(first, second)
    assert not torch.equal(first, draws.order(1, 0, 100))
