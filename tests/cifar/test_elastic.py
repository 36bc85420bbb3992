"""The pieces of `contconv cifar elastic`: ways to run, statistics, fine-tuning, latencies, consistency."""

import copy
from fractions import Fraction

import pytest
import torch
from synthetic import images
from torch.utils.flop_counter import FlopCounterMode

import contconv
from contconv.cifar.elastic import tuning as tuning_room
from contconv.cifar.elastic.consistency import consistencies
from contconv.cifar.elastic.latency import by_turns, ratios
from contconv.cifar.elastic.normalisation import calibrated
from contconv.cifar.elastic.settings import Settings, Tuning
from contconv.cifar.elastic.store import Store
from contconv.cifar.elastic.tuning import tuned
from contconv.cifar.elastic.ways import LAYERS, ORIGINAL, Way, drawn_factor, image_within, with_factors, within
from contconv.cifar.equivariance import drawn_shifts
from contconv.models.resnet import ResNet


@pytest.fixture(scope="module")
def original():
    torch.manual_seed(0)
    return ResNet(blocks=1).eval()


@pytest.fixture(scope="module")
def model(original):
    return contconv.convert(original, LAYERS)


def macs(run):
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops() / 2


def test_a_factor_on_a_layer_changes_the_maps_behind_it(model):
    way = with_factors(model, "early", {"conv1": Fraction(3, 4)})
    seen = {}
    hooks = [
        model.get_submodule(name).register_forward_hook(lambda _, __, y, name=name: seen.update({name: y.shape[-1]}))
        for name in ("conv1", "layer2.0", "layer3.0")
    ]
    with torch.no_grad(), way.running(model):
        model(torch.zeros(1, 3, 32, 32))
    for hook in hooks:
        hook.remove()
    assert seen == {"conv1": 24, "layer2.0": 12, "layer3.0": 6}
    assert way.share == pytest.approx((24 / 32) ** 2, abs=0.001)


def test_ways_within_a_budget_cost_what_they_say(original, model):
    """Against torch's own counter on the original network, for the resized image, and below the budget for all."""
    whole = macs(lambda: original(torch.zeros(1, 3, 32, 32)))
    ways = within(model, 0.5)
    assert {"early", "even", "resized image"} <= {way.name for way in ways}
    assert all(way.share <= 0.5 for way in ways)
    image = next(way for way in ways if way.side)
    assert macs(lambda: original(torch.zeros(1, 3, image.side, image.side))) / whole == pytest.approx(image.share)
    assert macs(lambda: original(torch.zeros(1, 3, image.side + 1, image.side + 1))) / whole > 0.5
    assert image_within(model, 1.0).side == 32


def test_random_factors_stay_in_their_range_and_are_often_one():
    source = torch.Generator().manual_seed(0)
    factors = [float(drawn_factor(0.6, 1.4, source, 1 / 3)) for _ in range(600)]
    assert 0.6 <= min(factors) < 0.64
    assert 1.33 < max(factors) <= 1.4
    assert 0.28 < factors.count(1.0) / 600 < 0.42


def test_calibration_takes_the_statistics_of_the_way(model):
    x = torch.randn(6, 3, 32, 32) + 1
    way = with_factors(model, "early", {"conv1": Fraction(3, 4)})
    found = calibrated(model, way, x)
    with torch.no_grad():
        maps = model.conv1(x, scale=Fraction(3, 4))
    assert torch.allclose(found.bn1.running_mean, maps.mean((0, 2, 3)), atol=1e-5)
    assert torch.allclose(found.bn1.running_var, maps.var((0, 2, 3)), atol=1e-4)
    assert not torch.allclose(model.bn1.running_mean, found.bn1.running_mean, atol=1e-2)  # the model is as it was
    assert not found.training


def test_an_image_is_resized_before_the_network():
    x = torch.rand(2, 3, 32, 32)
    assert Way("image", 0.5, side=20).seen(x).shape == (2, 3, 20, 20)
    assert torch.equal(ORIGINAL.seen(x), x)


@pytest.mark.parametrize("kind", ["elastic", "resized"])
def test_interrupted_tuning_ends_with_the_same_weights(kind, original, data, tmp_path, monkeypatch):
    train, _ = images(data)
    config = Tuning(batch=20)

    def run(place):
        fresh = contconv.convert(original, LAYERS) if kind == "elastic" else copy.deepcopy(original)
        return tuned(kind, fresh, train, config, 0, tmp_path / place, "weights").state_dict()

    whole = run("whole")
    step, calls = tuning_room._step, []

    def stopping(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        step(*arguments)

    monkeypatch.setattr(tuning_room, "SAVE_EVERY", 1)
    monkeypatch.setattr(tuning_room, "_step", stopping)
    with pytest.raises(KeyboardInterrupt):
        run("parts")
    parts = run("parts")
    assert len(calls) == 5  # two steps, the one that was stopped, and the two that were left
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    before = original.state_dict()
    assert torch.equal(parts["bn1.running_mean"], before["bn1.running_mean"])  # frozen
    assert not torch.equal(parts["bn1.weight"], before["bn1.weight"])


def test_tuning_goes_on_from_its_own_checkpoint_only(original, data, tmp_path):
    train, _ = images(data)
    tuned("blurpool", copy.deepcopy(original), train, Tuning(batch=40), 0, tmp_path, "weights")
    with pytest.raises(ValueError, match="it belongs to another config"):
        tuned("blurpool", copy.deepcopy(original), train, Tuning(batch=40), 1, tmp_path, "weights")
    with pytest.raises(ValueError, match="batch must be at most the number of images, 80, got 128"):
        tuned("blurpool", original, train, Tuning(), 0, tmp_path, "weights")


def test_latencies_are_taken_by_turns_and_compared_within_a_round():
    order = []
    seconds = by_turns({name: lambda name=name: order.append(name) or 1.0 for name in "ab"}, rounds=3)
    assert order == ["a", "b"] * (2 + 3)
    assert seconds == {"a": [1.0] * 3, "b": [1.0] * 3}
    measured = {"base": [1.0, 2.0, 4.0], "half": [0.5, 1.0, 9.0]}
    assert ratios(measured, "base") == {"base": 1.0, "half": 0.5}  # the disturbed round does not count


def test_consistency_counts_images_that_keep_their_class():
    """One bright row: its number is the class, which a shift across it changes, and one along it does not."""
    pixels = torch.zeros(40, 3, 32, 32, dtype=torch.uint8)
    pixels[:, :, 15] = 255
    shifts = drawn_shifts(40, 2, seed=3)
    kept = consistencies(lambda x: x.sum((1, 3)).argmax(1), pixels, (2,), seed=3)
    assert kept == {"2": pytest.approx(100 * (shifts[:, 0] == 0).double().mean().item())}
    assert 0 < kept["2"] < 50
    assert consistencies(lambda x: x.amax((1, 2, 3)) > 0, pixels, (2, 4), seed=0) == {"2": 100.0, "4": 100.0}
    with pytest.raises(ValueError, match="shifts must be smaller than the images"):
        consistencies(lambda x: x[:, 0, 0, 0], pixels, (32,), seed=0)


def test_the_store_measures_once_and_refuses_other_settings(tmp_path):
    path, calls = tmp_path / "result.json", []

    def measure():
        calls.append(1)
        return {"accuracy": 90.0}

    for _ in range(2):
        store = Store(path, {"images": 4, "weights": "a"})
        assert store.once("name", measure) == {"accuracy": 90.0}
    assert len(calls) == 1
    with pytest.raises(ValueError, match="holds other measurements \\(images is 4 there and 5 here\\)"):
        Store(path, {"images": 5, "weights": "a"})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Settings(images=0), "images must be at least 1, got 0"),
        (lambda: Settings(factors=()), "factors must be one or more positive numbers"),
        (lambda: Settings(spread=1.0), "spread must be between 0 and 1"),
        (lambda: Tuning(epochs=-1), "epochs must be at least 0, got -1"),
        (lambda: Tuning(lowest=2.0), "lowest must be positive and at most highest"),
        (lambda: Tuning(statistics="none"), "statistics must be frozen or batch"),
    ],
)
def test_settings_that_mean_nothing_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
