"""`contconv cifar evaluate`: what it measures is what the parts measure, and a run is read as training left it."""

import json
import re
from functools import partial

import pytest
import torch
from runs import CCNET, CONVNET, PER_FILE, images, write_data, write_run

from contconv.cifar import data, equivariance, folder
from contconv.cifar.accuracy import outputs
from contconv.cifar.augment import normalized
from contconv.cifar.evaluation import Settings, evaluate
from contconv.cifar.first_kernels import first_kernels
from contconv.cifar.trained import trained
from contconv.cli import main
from contconv.models.networks import build, load_weights

QUICK = Settings(images=10, members=(1, 2), draws=2, ensemble_images=12, batch=9)


@pytest.fixture
def small_files(monkeypatch):
    """Data files of 24 images instead of 10000."""
    monkeypatch.setattr(data, "read", partial(data.read, per_file=PER_FILE))


def test_accuracy_is_the_share_of_right_answers():
    torch.manual_seed(1)
    model, some = build(CONVNET), images()
    found = evaluate(model, some, QUICK)
    with torch.no_grad():
        right = model(normalized(some.pixels)).argmax(1) == some.labels
    assert found["accuracy"] == pytest.approx(100 * right.double().mean().item())
    assert found["images"] == PER_FILE
    assert found["ensemble"] is None  # there are no scales to choose
    assert found["seconds"].keys() == {"accuracy", "equivariance"}


def test_equivariance_is_measured_on_windows_of_the_reflected_images():
    torch.manual_seed(1)
    model, some = build(CCNET), images().first(10)
    found = evaluate(model, images(), QUICK)["equivariance"]
    shifts = equivariance.drawn_shifts(10, 4, seed=0)
    padded = torch.nn.functional.pad(some.pixels.float(), (6,) * 4, mode="reflect")
    moved = [
        padded[n, :, 6 - down : 38 - down, 6 - right : 38 - right] for n, (down, right) in enumerate(shifts.tolist())
    ]
    still = outputs(model, normalized(some.pixels))
    expected = equivariance.compared(still, outputs(model, normalized(torch.stack(moved))), shifts)
    assert found["images"]["4"]["similarity"] == pytest.approx(expected.similarity, abs=1e-5)
    assert found["images"]["4"]["consistency"] == expected.consistency
    assert found.keys() == {"images", "noise", "images, zeros", "images, circular"}
    assert all(set(rows) == {"2", "4", "6"} for rows in found.values())


def test_the_seed_decides_shifts_and_noise():
    torch.manual_seed(1)
    model, few = build(CONVNET), Settings(images=6, shifts=(3,), draws=0)
    one, again = (evaluate(model, images(), few)["equivariance"] for _ in range(2))
    other = evaluate(model, images(), Settings(images=6, shifts=(3,), draws=0, seed=1))["equivariance"]
    assert one == again
    assert one["noise"] != other["noise"]


def test_ensembles_are_measured_on_as_many_images_as_asked():
    torch.manual_seed(1)
    found = evaluate(build(CCNET), images(), QUICK)["ensemble"]
    assert found["images"] == 12
    assert [row["k"] for row in found["members"]] == [1, 2]
    assert [len(row["accuracy"]) for row in found["members"]] == [2, 2]


def test_the_first_kernels_are_the_strongest_filters():
    torch.manual_seed(1)
    net = build(CONVNET)
    found = torch.tensor(first_kernels(net, filters=2)["filters"])
    strongest = net.convs[0].weight[net.convs[0].weight.flatten(1).norm(dim=1).argmax()]
    torch.testing.assert_close(found[0], strongest, rtol=5e-3, atol=1e-4)
    continuous = build(CCNET)
    sampled = torch.tensor(first_kernels(continuous, filters=4, resolution=7)["filters"])
    assert sampled.shape == (4, 3, 7, 7)
    middle = continuous.convs[0].kernel(torch.zeros(2))  # [Cout, Cin]
    closest = torch.cdist(sampled[:, :, 3, 3], middle.detach()).min(1).values
    assert closest.max() < 1e-2


def test_a_run_is_loaded_with_its_config_and_course(tmp_path):
    found = trained(write_run(tmp_path / "run", CCNET, seed=4))
    assert found.network == CCNET
    assert found.config["seed"] == 4
    assert [row["test_accuracy"] for row in found.course] == [pytest.approx(0.1), None, pytest.approx(0.3)]
    x = torch.randn(2, 3, 32, 32)
    expected, _ = load_weights(tmp_path / "run" / folder.WEIGHTS)
    torch.testing.assert_close(found.model(x), expected(x))
    alone = trained(tmp_path / "run" / folder.WEIGHTS)
    assert alone.config is None
    assert alone.course == []


def test_the_command_writes_all_that_the_report_needs(tmp_path, capsys, small_files):
    write_data(tmp_path / "data")
    run = write_run(tmp_path / "run", CCNET, seed=7)
    flags = [
        "--images",
        "6",
        "--members",
        "1",
        "2",
        "--draws",
        "2",
        "--ensemble-images",
        "8",
        "--shifts",
        "2",
        "--batch",
        "8",
    ]
    assert main(["cifar", "evaluate", str(run), "--data", str(tmp_path / "data"), *flags]) == 0
    said = capsys.readouterr().out
    assert "accuracy" in said
    assert "ensemble of 2" in said
    read = json.loads((run / "evaluation.json").read_text())
    assert read["network"]["kernel"] == "spline"
    assert read["config"]["seed"] == 7
    assert read["settings"]["images"] == 6
    assert read["settings"]["shifts"] == [2]
    assert len(read["course"]) == 3
    assert read["command"].startswith(f"contconv cifar evaluate {run} ")
    assert all(word in read["command"].split() for word in flags)
    assert read["results"]["images"] == PER_FILE
    elsewhere = tmp_path / "deep" / "one.json"
    weights = str(run / folder.WEIGHTS)
    command = ["cifar", "evaluate", weights, "--data", str(tmp_path / "data"), "--out", str(elsewhere), *flags]
    assert main(command) == 0
    assert json.loads(elsewhere.read_text())["results"]["accuracy"] == read["results"]["accuracy"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give either a run"),
        (["{run}", "--pretrained", "ccnet"], "give either a run"),
        (["--pretrained", "resnet"], "name.*'resnet'"),
        (["{tmp}/nowhere.safetensors"], "no such file"),
        (["{tmp}"], "has no model.safetensors"),
        (["{tmp}/broken.safetensors"], "no whole safetensors file"),
        (["{run}", "--images", "0"], "images must be at least 1, got 0"),
        (["{run}", "--shifts", "40"], "shifts must be smaller"),
        (["{run}", "--members", "0"], "members must be one or more numbers of at least 1"),
        (["{run}", "--data", "{tmp}/empty"], "CIFAR-10 is not in"),
    ],
)
def test_mistakes_are_one_line_that_says_what_is_wrong(tmp_path, capsys, small_files, words, message):
    write_data(tmp_path / "data")
    run = write_run(tmp_path / "run", CONVNET)
    (tmp_path / "broken.safetensors").write_bytes((run / folder.WEIGHTS).read_bytes()[:-100])
    given = [word.format(run=run, tmp=tmp_path) for word in words]
    if "--data" not in given:
        given += ["--data", str(tmp_path / "data")]
    assert main(["cifar", "evaluate", *given]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert re.search(message, said), said
