"""The command line: what it prints, what it writes, and its exit codes."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from contconv import Cubic, continuous_conv
from contconv.cli import main
from contconv.commands.parsing import scales, sizes
from contconv.experiments import misalign, registry
from contconv.experiments.record import Claim, Result


@pytest.fixture
def photo(tmp_path):
    """Noise of middling greys: no kernel overshoots what 8 bits hold, which Pillow would clip after each axis."""
    pixels = np.random.default_rng(0).integers(96, 160, (20, 30, 3), dtype=np.uint8)
    path = tmp_path / "photo.png"
    Image.fromarray(pixels).save(path)
    return path


def refused(capsys, *arguments):
    """The one line that a bad command line gets."""
    assert main([str(argument) for argument in arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_resize_writes_what_the_library_computes(photo, tmp_path, capsys):
    out = tmp_path / "out.png"
    assert main(["resize", str(photo), "--scale", "0.61x1.37", "--kernel", "cubic", str(out)]) == 0
    assert "20x30 -> 13x42" in capsys.readouterr().out
    x = torch.from_numpy(np.array(Image.open(photo))).movedim(-1, 0)[None].double() / 255
    y = continuous_conv(x, Cubic(-0.5), scale=(0.61, 1.37), padding_mode="replicate", antialias=True)
    expected = (y[0].clamp(0, 1) * 255).round().movedim(0, -1).numpy().astype(np.uint8)
    assert np.array_equal(np.array(Image.open(out)), expected)


@pytest.mark.parametrize(("kernel", "resample"), [("linear", "BILINEAR"), ("cubic", "BICUBIC"), ("lanczos", "LANCZOS")])
@pytest.mark.parametrize("size", [(10, 13), (40, 50), (9, 61)])
def test_resize_agrees_with_pillow_away_from_the_border(photo, tmp_path, kernel, resample, size):
    out = tmp_path / "out.png"
    assert main(["resize", str(photo), str(out), "--size", f"{size[0]}x{size[1]}", "--kernel", kernel]) == 0
    pillow = Image.open(photo).resize(size[::-1], getattr(Image.Resampling, resample))
    ours, theirs = (np.array(image).astype(int) for image in (Image.open(out), pillow))
    rows, columns = (max(2, int(3.5 * max(1, out / n) + 1)) for out, n in zip(size, (20, 30), strict=True))
    inside = np.s_[rows:-rows, columns:-columns] if min(size) > 2 * rows else np.s_[4:-4, 5:-5]
    difference = np.abs(ours - theirs)[inside]
    assert difference.size > 0
    assert difference.max() <= 2  # Pillow rounds its weights, and its result after each axis


def test_resize_without_antialiasing_differs_when_shrinking(photo, tmp_path):
    for name, flags in (("soft.png", []), ("sharp.png", ["--no-antialias"])):
        assert main(["resize", str(photo), str(tmp_path / name), "--scale", "0.4", *flags]) == 0
    soft, sharp = (np.array(Image.open(tmp_path / name)).astype(int) for name in ("soft.png", "sharp.png"))
    assert soft.shape == sharp.shape == (8, 12, 3)
    assert np.abs(soft - sharp).max() > 5


def test_what_cannot_be_seen_does_not_bleed(tmp_path):
    pixels = np.zeros((16, 16, 4), np.uint8)
    pixels[:, 8:] = (255, 0, 0, 255)
    pixels[:, :8] = (0, 255, 0, 0)  # green, but invisible
    Image.fromarray(pixels).save(tmp_path / "in.png")
    assert (
        main(["resize", str(tmp_path / "in.png"), str(tmp_path / "out.png"), "--scale", "0.7", "--kernel", "linear"])
        == 0
    )
    out = np.array(Image.open(tmp_path / "out.png"))
    assert (out[out[..., 3] > 0][:, 1] == 0).all()
    assert ((out[..., 3] > 0) & (out[..., 3] < 255)).any()


def test_greys_stay_grey_and_deep_ones_deep(tmp_path):
    Image.fromarray(np.full((9, 9), 77, np.uint8)).save(tmp_path / "grey.png")
    Image.fromarray(np.full((9, 9), 40000, np.uint16)).save(tmp_path / "deep.png")
    for name, value in (("grey", 77), ("deep", 40000)):
        out = tmp_path / f"{name}-out.png"
        assert main(["resize", str(tmp_path / f"{name}.png"), str(out), "--scale", "1.7"]) == 0
        assert np.array_equal(np.array(Image.open(out)), np.full((16, 16), value))


def test_bad_requests_get_one_line_and_exit_code_two(photo, tmp_path, capsys):
    out = tmp_path / "out.png"
    (tmp_path / "text.jpg").write_text("no image")
    assert "not an image" in refused(capsys, "resize", tmp_path / "text.jpg", out, "--scale", "2")
    assert "no such file" in refused(capsys, "resize", tmp_path / "none.jpg", out, "--scale", "2")
    assert "give either --scale or --size" in refused(capsys, "resize", photo, out)
    assert "--scale must be positive" in refused(capsys, "resize", photo, out, "--scale", "0")
    assert "--scale must be positive" in refused(capsys, "resize", photo, out, "--scale", "1/0")
    assert "--scale must have one number or 2" in refused(capsys, "resize", photo, out, "--scale", "1x2x3")
    assert "GiB of memory" in refused(capsys, "resize", photo, out, "--scale", "100000")
    assert "unknown image format" in refused(capsys, "resize", photo, tmp_path / "out.abc", "--scale", "2")
    assert "--input must have one to three axes" in refused(
        capsys, "explain", "--channels", 3, 3, "--input", "4x4x4x4", "--scale", "1"
    )
    assert "no results of experiments" in refused(capsys, "report", tmp_path)
    assert not out.exists()


@pytest.mark.parametrize(
    "arguments", [[], ["nonsense"], ["experiment"], ["resize", "--scale"], ["experiment", "imitate", "--steps", "x"]]
)
def test_bad_usage_exits_with_two(arguments):
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["imitate", "--steps", "0"], "--steps must be at least 1"),
        (["imitate", "--methods"], "--methods must name at least one"),
        (["imitate", "--photo", "missing.png"], "no such file"),
        (["imitate", "--scale", "-1", "1"], "--scale must be between"),
        (["imitate", "--methods", "gaussian", "--sigma", "0", "1"], "--sigma must be at least"),
        (["generalize", "--seeds", "0"], "--seeds must be at least 1"),
        (["misalign", "--blurs", "0"], "--blurs must be at least 1"),
        (["conv-special-case", "--steps", "0"], "--steps must be at least 1"),
    ],
)
def test_bad_options_of_experiments_get_one_line(tmp_path, capsys, arguments, reason):
    assert main(["experiment", *arguments, "--out", str(tmp_path)]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("contconv: ")
    assert reason in last
    assert not list(tmp_path.iterdir())


def test_explain_says_which_strategy(capsys):
    assert main(["explain", "--channels", "32", "32", "--kernel", "3", "--input", "64x64", "--scale", "2/3"]) == 0
    printed = capsys.readouterr().out
    assert "2 x 2 phases" in printed
    assert "->" in printed


def test_an_experiment_that_fails_exits_with_one(tmp_path, monkeypatch, capsys):
    false = Result((Claim("a false claim", "paper", "wanted", "ours", False, (0.0,)),), {})
    experiment = registry.Experiment(misalign.Misalign, lambda config: false, "A statement.", {})
    monkeypatch.setitem(registry.EXPERIMENTS, "misalign", experiment)
    assert main(["experiment", "misalign", "--out", str(tmp_path)]) == 1
    assert "FAIL  a false claim" in capsys.readouterr().out
    assert "fails" in (tmp_path / "report.html").read_text()


def test_the_docs_are_made_from_the_results_and_have_their_figures_beside_them(tmp_path):
    out, docs = tmp_path / "out", tmp_path / "docs" / "reproducing.md"
    assert main(["experiment", "misalign", "--blurs", "3", "--out", str(out)]) == 0
    assert main(["report", str(out), "--docs", str(docs)]) == 0
    assert "contconv experiment misalign --blurs 3" in docs.read_text()
    assert "(images/misalign.png)" in docs.read_text()
    assert (docs.parent / "images" / "misalign.png").read_bytes() == (out / "figures" / "misalign.png").read_bytes()


def test_an_interrupt_leaves_what_is_finished(tmp_path, monkeypatch, capsys):
    def interrupted(config):
        raise KeyboardInterrupt

    quick = registry.Experiment(misalign.Misalign, misalign.run, "A statement.", {"blurs": 3})
    broken = registry.Experiment(misalign.Misalign, interrupted, "Another.", {})
    monkeypatch.setattr(registry, "EXPERIMENTS", {"misalign": quick, "generalize": broken})
    monkeypatch.setattr("contconv.commands.experiment.EXPERIMENTS", registry.EXPERIMENTS)
    monkeypatch.setattr("contconv.experiments.runner.EXPERIMENTS", registry.EXPERIMENTS)
    assert main(["experiment", "all", "--quick", "--out", str(tmp_path)]) == 130
    assert "what was finished is kept" in capsys.readouterr().err
    assert (tmp_path / "misalign.json").exists()
    assert (tmp_path / "report.html").exists()


def test_scales_and_sizes_as_typed():
    assert [str(s) for s in scales("2/3", 2)] == ["2/3", "2/3"]
    assert [str(s) for s in scales("0.61x1.37", 2)] == ["61/100", "137/100"]
    assert sizes("300x400", 2, "--size") == (300, 400)
    with pytest.raises(ValueError, match="--size must be sizes in pixels"):
        sizes("300x-4", 2, "--size")


def test_without_the_extra_the_command_names_it():
    code = "import sys; sys.modules['tyro'] = None; from contconv.cli import main; sys.exit(main(['explain']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert "contconv[cli]" in done.stderr
