"""Training ends with the same weights however often it is interrupted, and nothing that was saved is lost."""

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
from synthetic import CONVNET, TINY, run, same_weights

from contconv.cifar import checkpoint, training
from contconv.cifar.log import rows
from contconv.cifar.recipe import SHORT, optimizers
from contconv.models.networks import build

SCRIPT = Path(__file__).parent / "synthetic.py"


def spoiled_at(step, spoil, monkeypatch):
    """Make `spoil` happen in the middle of a step."""
    original = training.Run.batch

    def batch(self, *arguments):
        if self.state.step == step:
            spoil()
        return original(self, *arguments)

    monkeypatch.setattr(training.Run, "batch", batch)


def step_of(out):
    with safe_open(out / checkpoint.NAME, "pt") as file:
        return json.loads(file.metadata()["state"])["step"]


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
        {"agreement": 2.0, "agreement_every": 3},
        {"agreement": 2.0, "agreement_every": 2, "agreement_noise": 1.0},
    ],
    ids=["ccnet", "convnet", "diffusion", "consistency", "agreement", "agreement-every-3", "agreement-noise"],
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
