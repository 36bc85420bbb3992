"""Training: the same weights however often it is interrupted, the same course on two processes, the recipes."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from synthetic import TINY, config, images, run
from torch import nn

from contconv.cifar import checkpoint, draws, training
from contconv.cifar.log import rows
from contconv.cifar.muon import Muon
from contconv.cifar.recipe import PAPER, SHORT, Recipe, learning_rate, optimizers, recipe
from contconv.cifar.training import sequences_of
from contconv.models.networks import Network, build, load_weights
from contconv.sequences import output_sizes

SCRIPT = Path(__file__).parent / "synthetic.py"
CONVNET = Network("convnet", width=4, hidden=16)


def spoiled_at(step, spoil, monkeypatch):
    """Make `spoil` happen in the middle of a step."""
    original = training.Run.batch

    def batch(self, *arguments):
        if self.state.step == step:
            spoil()
        return original(self, *arguments)

    monkeypatch.setattr(training.Run, "batch", batch)


def same_weights(one, other):
    first, second = load_file(one / "model.safetensors"), load_file(other / "model.safetensors")
    assert first.keys() == second.keys()
    return all(torch.equal(first[name], second[name]) for name in first)


def step_of(out):
    with safe_open(out / checkpoint.NAME, "pt") as file:
        return json.loads(file.metadata()["state"])["step"]


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


def killed(out, epochs):
    """Start a run in a process of its own, and kill it at some moment of the two epochs after its first save."""
    before = step_of(out) if (out / checkpoint.NAME).exists() else 0
    process = subprocess.Popen([sys.executable, str(SCRIPT), str(out), "1", str(epochs)])
    while not (out / checkpoint.NAME).exists() or step_of(out) == before:
        assert process.poll() is None, "the run ended by itself"
        time.sleep(0.001)
    *_, last = rows(out / "epochs.csv")
    time.sleep(random.SystemRandom().uniform(0, 2) * float(last["seconds"]))
    process.kill()
    assert process.wait() == -signal.SIGKILL


def test_a_run_killed_at_random_moments_ends_with_the_same_weights(data, tmp_path):
    epochs = 10
    for _ in range(2):
        killed(tmp_path / "killed", epochs)
    assert 0 < step_of(tmp_path / "killed") < 10 * epochs
    run(tmp_path / "killed", epochs)
    run(tmp_path / "whole", epochs)
    assert same_weights(tmp_path / "killed", tmp_path / "whole")
    assert (tmp_path / "killed" / "steps.csv").read_text() == (tmp_path / "whole" / "steps.csv").read_text()
    names = {path.name for path in (tmp_path / "killed").iterdir()}
    assert names == {path.name for path in (tmp_path / "whole").iterdir()}


@pytest.mark.parametrize(
    "what",
    [
        {"network": TINY},
        {"network": CONVNET},
        {"diffusion": (2.0,)},
        {"consistency": 2.0},
        {"agreement": 2.0, "agreement_from": 0.5},
    ],
    ids=["ccnet", "convnet", "diffusion", "consistency", "agreement"],
)
def test_an_error_in_any_step_loses_only_the_steps_since_the_last_epoch(data, tmp_path, monkeypatch, what):
    epoch = 20 if "consistency" in what else 10  # steps
    run(tmp_path / "whole", epochs=3, **what)

    def fail():
        raise OSError("the lights went out")

    with monkeypatch.context() as patched:
        spoiled_at(epoch + 7, fail, patched)
        with pytest.raises(OSError, match="lights"):
            run(tmp_path / "out", epochs=3, **what)
    assert step_of(tmp_path / "out") == epoch
    run(tmp_path / "out", epochs=3, **what)
    assert same_weights(tmp_path / "out", tmp_path / "whole")
    assert (tmp_path / "out" / "steps.csv").read_text() == (tmp_path / "whole" / "steps.csv").read_text()


def test_an_interrupt_saves_the_step_it_came_in(data, tmp_path, monkeypatch):
    run(tmp_path / "whole", epochs=3)
    with monkeypatch.context() as patched:
        spoiled_at(14, lambda: signal.raise_signal(signal.SIGINT), patched)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "out", epochs=3)
    assert step_of(tmp_path / "out") == 15
    run(tmp_path / "out", epochs=3)
    assert same_weights(tmp_path / "out", tmp_path / "whole")
    for name in ("steps.csv", "epochs.csv"):
        ours, theirs = (rows(tmp_path / out / name) for out in ("out", "whole"))
        assert [row["loss"] for row in ours] == [row["loss"] for row in theirs]


def test_a_finished_run_is_not_run_again(data, tmp_path, monkeypatch):
    result = run(tmp_path / "out", epochs=1)
    monkeypatch.setattr(training.Run, "step", None)
    assert run(tmp_path / "out", epochs=1) == result


def test_a_save_that_fails_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    model = build(CONVNET)
    state = checkpoint.State(model, optimizers(SHORT, model), torch.zeros(2, 3), step=1)
    checkpoint.save(tmp_path, state, {})
    before = (tmp_path / checkpoint.NAME).read_bytes()
    state.step = 2

    def full(descriptor):
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        checkpoint.save(tmp_path, state, {})
    assert (tmp_path / checkpoint.NAME).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint.NAME]


def test_what_a_kill_in_the_middle_of_a_save_leaves_is_swept_away(data, tmp_path):
    left = tmp_path / "out" / ".checkpoint.abc123.safetensors"
    left.parent.mkdir()
    left.write_bytes(b"half a check")
    run(tmp_path / "out", epochs=1)
    assert not left.exists()


def test_a_damaged_or_foreign_checkpoint_is_refused_with_what_to_do(data, tmp_path, monkeypatch):
    out = tmp_path / "out"
    with monkeypatch.context() as patched:
        spoiled_at(12, lambda: signal.raise_signal(signal.SIGINT), patched)
        with pytest.raises(KeyboardInterrupt):
            run(out, epochs=2)
    whole = (out / checkpoint.NAME).read_bytes()
    for content in (b"", whole[: len(whole) // 2], b"\x80\x04 pickled"):
        (out / checkpoint.NAME).write_bytes(content)
        with pytest.raises(ValueError, match=r"cannot go on from .*checkpoint.safetensors: .* delete it to begin anew"):
            run(out, epochs=2)
    (out / checkpoint.NAME).write_bytes(whole)
    with pytest.raises(
        ValueError, match=r"another config \(recipe.epochs is 2 there and 3 here; seed is 0 there and 5 here\)"
    ):
        run(out, epochs=3, seed=5)
    (out / "config.json").unlink()
    with pytest.raises(ValueError, match="belongs to another config"):
        run(out, epochs=3)


@pytest.mark.parametrize("compared", [{}, {"consistency": 0.5}, {"agreement": 0.5}], ids=str)
def test_two_processes_have_the_course_of_one(data, tmp_path, compared):
    epochs = 1 if "consistency" in compared else 2  # of twenty steps or ten
    more = [f"{name}={value}" for name, value in compared.items()]
    command = [sys.executable, str(SCRIPT), str(tmp_path / "two"), "2", str(epochs), *more]
    subprocess.run(command, check=True)
    run(tmp_path / "one", epochs=epochs, **compared)
    assert json.loads((tmp_path / "two" / "config.json").read_text())["processes"] == 2
    one, two = (rows(tmp_path / name / "steps.csv") for name in ("one", "two"))
    assert len(one) == len(two) == 20
    for row, other in zip(one, two, strict=True):
        assert float(row["loss"]) == pytest.approx(float(other["loss"]), abs=1e-5)
        assert float(row["accuracy"]) == pytest.approx(float(other["accuracy"]), abs=1e-12)
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    most = 5e-3 if compared else 1e-4  # Muon makes much of the rounding where a gradient is almost nothing
    assert all(torch.allclose(first[name], second[name], atol=most) for name in first)
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
    with pytest.raises(ValueError, match="batch must be a multiple of 12, for 3 processes that compare images two by two, got 8"):
        training.check_batch(config(1, consistency=1.0), 80, 3)
    with pytest.raises(ValueError, match="batch must be a multiple of 6, for 3 processes that compare images two by two, got 8"):
        training.check_batch(config(1, agreement=1.0), 80, 3)
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


def test_every_epoch_has_every_image_once_in_an_order_of_its_own():
    first, second = draws.order(0, 0, 100), draws.order(0, 1, 100)
    assert torch.equal(first.sort().values, torch.arange(100))
    assert torch.equal(second.sort().values, torch.arange(100))
    assert not torch.equal(first, second)
    assert not torch.equal(first, draws.order(1, 0, 100))


def test_the_papers_recipe():
    for model, rate, drops in (("ccnet", 5e-4, (200, 300)), ("convnet", 1e-3, (150, 250))):
        paper = recipe("paper", model)
        assert paper == PAPER[model]
        assert (paper.epochs, paper.batch, paper.weight_decay, paper.label_smoothing) == (400, 64, 5e-4, 0)
        rates = [learning_rate(paper, 781 * epoch, 781 * 400) for epoch in range(400)]
        for epoch, value in enumerate(rates):
            assert value == pytest.approx(rate * 0.1 ** sum(epoch >= drop for drop in drops))
        (adam,) = optimizers(paper, build(CONVNET))
        assert type(adam) is torch.optim.Adam
        assert adam.param_groups[0]["weight_decay"] == 5e-4


@pytest.mark.parametrize("network", [Network("convnet"), Network("ccnet"), Network("ccnet", "taps")], ids=str)
def test_the_papers_recipe_starts_with_signals_that_reach_the_end(network):
    """PyTorch's own variance shrinks them so much that Adam's weight decay wins over the gradient, for good."""
    x = torch.randn(64, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    spread = {}
    for initial in ("default", "kaiming"):
        torch.manual_seed(0)
        model = build(network, initial)
        with torch.no_grad():
            logits = model(x)
        spread[initial] = (logits - logits.mean(0)).std().item()
    assert spread["default"] < 0.01
    assert 0.2 < spread["kaiming"] < 5
    if network.model == "ccnet":
        weights = model.convs[3].kernel(torch.zeros(2))  # [64, 64] of 3x3
        assert weights.var().item() == pytest.approx(2 / (9 * 64), rel=0.3)
    assert recipe("paper", network.model).initial == "kaiming"


def test_one_cycle_rises_to_its_peak_and_falls_to_nothing():
    rates = [learning_rate(SHORT, step, 1000) for step in range(1000)]
    top = rates.index(max(rates))
    assert rates[top] == SHORT.learning_rate
    assert rates[0] == pytest.approx(SHORT.learning_rate / 25)
    assert rates[:top] == sorted(rates[:top])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert rates[-1] < 1e-4 * SHORT.learning_rate


@pytest.mark.parametrize("decoupled", [False, True])
def test_the_optimizer_is_adam_by_hand_whatever_the_layout_of_the_weights(decoupled):
    plain = Recipe(1, 1, 0.01, "drops", weight_decay=0.1, decoupled=decoupled)
    layer = nn.Conv2d(3, 5, 3).to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    weight = layer.weight.detach().double()
    (adam,) = optimizers(plain, layer)
    first = second = torch.zeros_like(weight)
    for step in range(1, 4):
        adam.zero_grad()
        layer(x).square().sum().backward()
        gradient = layer.weight.grad.double() + (0 if decoupled else 0.1 * weight)
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        update = (first / (1 - 0.9**step)) / ((second / (1 - 0.999**step)).sqrt() + 1e-8)
        weight = weight * (1 - 0.01 * 0.1 if decoupled else 1) - 0.01 * update
        adam.step()
        assert torch.allclose(layer.weight.double(), weight, atol=1e-6)


@pytest.mark.parametrize("network", [CONVNET, TINY])
def test_filters_move_by_muon_and_the_rest_by_adam(network):
    model = build(network)
    adam, muon = optimizers(recipe("short", network.model, filter_rate=0.02), model)
    moved = {id(p) for group in muon.param_groups for p in group["params"]}
    others = {id(p) for group in adam.param_groups for p in group["params"]}
    assert moved == {id(p) for p in model.parameters() if p.ndim > 2}
    assert others == {id(p) for p in model.parameters() if p.ndim <= 2}
    assert {group["share"] for group in muon.param_groups} == {0.02 / SHORT.learning_rate}


@pytest.mark.parametrize(
    ("shape", "out_dim"), [((6, 3, 3, 3), 0), ((6, 2, 1, 1), 0), ((9, 6, 4), -2), ((4, 9, 6, 5), -2)]
)
def test_muon_steps_along_the_singular_vectors_of_the_momentum(shape, out_dim):
    weight = nn.Parameter(torch.randn(shape))
    start, momentum = weight.detach().clone(), torch.zeros(shape)
    muon = Muon([{"params": [weight], "out_dim": out_dim}], lr=0.1, weight_decay=0.5)
    for _ in range(3):
        weight.grad = torch.randn(shape)
        momentum = 0.95 * momentum + 0.05 * weight.grad
        before = weight.detach().clone()
        muon.step()
        step = (before * (1 - 0.1 * 0.5) - weight.detach()) / 0.1
        ahead = 0.05 * weight.grad + 0.95 * momentum
        step, ahead = (t.movedim(out_dim, 0).flatten(1) for t in (step, ahead))
        left, _, right = torch.linalg.svd(ahead, full_matrices=False)
        values = left.T @ step @ right.T
        assert torch.allclose(values, values.diag().diag(), atol=1e-3)
        assert values.diag().min() > 0.5
        assert values.diag().max() < 1.3
    assert not torch.equal(weight, start)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"filter_rate": 0.0}, "filter_rate must be positive, got 0.0"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch": -1}, "batch must be at least 1, got -1"),
        ({"learning_rate": 0.0}, "learning_rate must be positive, got 0.0"),
        ({"weight_decay": -0.1}, "weight_decay must be at least 0"),
        ({"diffusion": (1.0, float("nan"))}, "diffusion must be finite numbers of at least 0, got 1, nan"),
        ({"consistency": -1.0}, "consistency must be at least 0 and finite, got -1.0"),
        ({"consistency": float("nan")}, "consistency must be at least 0 and finite, got nan"),
        ({"consistency": 1.0, "batch": 33}, "batch must be even with a consistency, .* got 33"),
        ({"agreement": float("inf")}, "agreement must be at least 0 and finite, got inf"),
        ({"agreement": 1.0, "consistency": 1.0}, "give one of consistency and agreement"),
        ({"agreement_from": 1.0}, "agreement_from must be at least 0 and less than 1, got 1.0"),
        ({"label_smoothing": 1.0}, "label_smoothing must be at least 0 and less than 1"),
    ],
)
def test_what_recipes_refuse(changes, reason):
    with pytest.raises(ValueError, match=reason):
        recipe("short", "ccnet", **changes)


@pytest.mark.parametrize("changes", [{"network": CONVNET}, {"random_scales": False}], ids=str)
def test_agreement_needs_random_scales(changes):
    with pytest.raises(ValueError, match="agreement is that of ccnet's maps at random scales, got "):
        config(1, agreement=1.0, **changes)
