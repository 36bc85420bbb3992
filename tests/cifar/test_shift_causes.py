"""`contconv cifar equivariance`: each way changes the one thing that it says, and nothing else."""

from functools import partial

import pytest
import torch
from runs import CCNET, CONVNET, PER_FILE, images, write_data, write_run
from torch import nn
from torch.nn import functional as F

from contconv.cifar import data
from contconv.cifar.equivariance import shifted_back
from contconv.cifar.evaluation import Settings as Evaluated
from contconv.cifar.evaluation import evaluate
from contconv.cifar.shift_causes import Settings, blur, causes, moved_map, smoothed
from contconv.cli import main
from contconv.models.networks import KERNEL_CHOICES, Network, build

FEW = Settings(images=6)


class Pooled(nn.Module):
    """Means of 4x4 pixels, without any padding."""

    def responses(self, x):
        return F.avg_pool2d(x, 4)


class PaddedPooled(Pooled):
    """The same, but ten pixels of the image's border are overwritten: what a padding may do to a deep network."""

    def responses(self, x):
        x = x.clone()
        x[..., :10, :] = 3
        return super().responses(x)


@pytest.mark.parametrize("network", [CONVNET, CCNET])
def test_the_first_way_is_what_evaluate_measures(network):
    torch.manual_seed(1)
    model = build(network)
    found = causes(model, images().first(6).pixels, FEW)
    expected = evaluate(model, images(), Evaluated(images=6, draws=0))["equivariance"]
    for largest in (2, 4, 6):
        assert found["images"]["as the paper measures"][largest] == pytest.approx(
            expected["images"][str(largest)]["similarity"], abs=1e-5
        )


def test_far_borders_matter_to_a_network_that_sees_borders_and_to_no_other():
    ways = causes(PaddedPooled(), images().first(6).pixels, FEW)["noise"]
    assert ways["borders far away"][6] > ways["as the paper measures"][6] + 0.05
    free = causes(Pooled(), images().first(6).pixels, FEW)["noise"]
    assert free["borders far away"][6] == pytest.approx(free["as the paper measures"][6], abs=0.05)
    assert ways["borders far away"][6] == pytest.approx(free["borders far away"][6], abs=1e-6)


def test_a_map_is_moved_exactly():
    still = torch.randn(3, 2, 12, 12)
    moved = moved_map(torch.empty(0), still, 0, torch.tensor([[4, 0], [-8, 4], [0, 0]]))
    for one, (down, right) in enumerate([(1, 0), (-2, 1), (0, 0)]):
        torch.testing.assert_close(moved[one], still[one].roll((down, right), (1, 2)))
    waves = torch.cos(2 * torch.pi * torch.arange(12.0) / 12).expand(1, 1, 12, 12)
    quarter = moved_map(torch.empty(0), waves, 0, torch.tensor([[0, 1]]))
    torch.testing.assert_close(quarter[0, 0, 0], torch.cos(2 * torch.pi * (torch.arange(12.0) - 0.25) / 12))
    back = shifted_back(quarter, torch.tensor([[0, 1]]))
    assert (back - waves)[..., 2:-2].abs().max() < 0.01  # the same direction as the measurement's own


def test_smooth_kernels_keep_the_sum_of_their_taps_and_the_model_as_it_was():
    torch.manual_seed(1)
    model = build(CONVNET)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    smooth = smoothed(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    for ours, theirs in zip(smooth.convs, model.convs, strict=True):
        torch.testing.assert_close(ours.weight.sum((2, 3)), theirs.weight.sum((2, 3)), atol=1e-5, rtol=1e-5)
        assert ours.weight.var() < theirs.weight.var()
    assert torch.equal(smooth.head.first.weight, model.head.first.weight)
    *others, last = zip(smoothed(model, last=1).convs, model.convs, smooth.convs, strict=True)
    assert all(torch.equal(ours.weight, sharp.weight) for ours, sharp, _ in others)
    assert torch.equal(last[0].weight, last[2].weight)


@pytest.mark.parametrize("kernel", KERNEL_CHOICES)
def test_the_filters_of_every_kernel_are_blurred(kernel):
    torch.manual_seed(1)
    model = build(Network("ccnet", kernel, width=4, hidden=8))
    for before, after in zip(model.convs, smoothed(model).convs, strict=True):
        channels, taps = before.in_channels, before.kernel_size[0]
        impulses = torch.zeros(channels, channels, 9, 9)
        impulses[range(channels), range(channels), 4, 4] = 1
        with torch.no_grad():
            sharp, smooth = (layer(impulses, scale=1) - layer.bias.view(-1, 1, 1) for layer in (before, after))
        window = (..., slice(3, 3 + taps), slice(3, 3 + taps))  # displacements from -1 on
        expected = torch.zeros_like(sharp)
        expected[window] = blur(taps) @ sharp[window] @ blur(taps)
        assert sharp[window].abs().max() > 0
        torch.testing.assert_close(smooth, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("taps", [1, 2, 3, 4])
def test_the_blur_is_a_b_splines(taps):
    matrix = blur(taps)
    torch.testing.assert_close(matrix.sum(0), torch.ones(taps))
    torch.testing.assert_close(matrix, matrix.T)
    if taps > 2:
        torch.testing.assert_close(matrix[:3, 1], torch.tensor([1 / 6, 2 / 3, 1 / 6]))


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"images": 0}, "images must be at least 1, got 0"),
        ({"context": 3}, "context must be a multiple of 4, by which the maps are smaller, got 3"),
        ({"shifts": ()}, "shifts must be one or more numbers of at least 1"),
    ],
)
def test_wrong_settings_are_refused(wrong, reason):
    with pytest.raises(ValueError, match=reason):
        Settings(**wrong)


def test_more_context_than_there_is_to_reflect_is_refused():
    with pytest.raises(ValueError, match=r"must be less than the images' 32 pixels together, got 6 \+ 28"):
        causes(build(CONVNET), images().first(2).pixels, Settings(context=28))


def test_the_command_prints_a_table(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(data, "read", partial(data.read, per_file=PER_FILE))
    write_data(tmp_path / "data")
    run = write_run(tmp_path / "run", CCNET, seed=2)
    assert main(["cifar", "equivariance", str(run), "--data", str(tmp_path / "data"), "--images", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| similarity | ±2 | ±4 | ±6 |"
    assert len(lines) == 2 + 2 * 5
    assert lines[2].startswith("| images, as the paper measures | 0.")
