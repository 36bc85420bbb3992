"""The figures about ensembles: accuracies, pairs, and what is significant."""

import pytest
import torch

from contconv import ensemble
from contconv.cifar import scale_ensembles
from contconv.cifar.accuracy import accuracy, logits
from contconv.cifar.statistics import gain, spread, student_p
from contconv.models import CCNet

# Two-sided p of t by degrees of freedom, from printed tables: t at p = 0.05 and p = 0.01.
TABLE = {
    1: (12.706, 63.657),
    2: (4.303, 9.925),
    3: (3.182, 5.841),
    4: (2.776, 4.604),
    5: (2.571, 4.032),
    9: (2.262, 3.250),
}


@pytest.mark.parametrize("freedom", TABLE)
def test_students_t_is_that_of_the_tables(freedom):
    five, one = TABLE[freedom]
    assert student_p(five, freedom) == pytest.approx(0.05, abs=1e-4)
    assert student_p(-one, freedom) == pytest.approx(0.01, abs=1e-4)
    assert student_p(0.0, freedom) == 1


def test_a_gain_is_judged_by_its_spread():
    assert gain([0.5, 0.6, 0.4, 0.5, 0.55]).p < 0.001
    assert gain([0.5, -0.6, 0.4, -0.5, 0.55]).p > 0.5
    assert gain([1.0]).p == 1
    assert gain([0.0, 0.0]).p == 1
    assert gain([1.0, 1.0]) == (1.0, 0.0, 0.0)
    assert spread([1.0, 3.0]) == pytest.approx(2**0.5)


@pytest.fixture(scope="module")
def found():
    torch.manual_seed(2)
    net = CCNet("spline", width=4, hidden=8)
    x, labels = torch.randn(60, 3, 32, 32), torch.randint(10, (60,))
    default = accuracy(logits(net, x), labels)
    return net, x, labels, scale_ensembles.curve(net, x, labels, default, members=(1, 2, 3), draws=2, seed=1, batch=25)


def test_the_accuracy_is_that_of_the_public_ensemble(found):
    net, x, labels, curve = found
    for draw in range(2):
        for row in curve["members"]:
            made = ensemble(net, row["k"], layers=7, target=1 / 4, seed=1000 + draw)
            with torch.no_grad():
                expected = 100 * (made(x).argmax(1) == labels).double().mean().item()
            assert row["accuracy"][draw] == pytest.approx(expected)


def test_the_pairs_are_the_first_member_the_members_and_the_default(found):
    net, x, labels, curve = found
    default = accuracy(logits(net, x), labels)
    assert curve["default"] == default
    two = curve["members"][1]
    for name, against in {
        "over_one": [singles[0] for singles in curve["alone"]],
        "over_members": [sum(singles[:2]) / 2 for singles in curve["alone"]],
        "over_default": [default, default],
    }.items():
        gains = [value - other for value, other in zip(two["accuracy"], against, strict=True)]
        assert two[name]["mean"] == pytest.approx(sum(gains) / 2)
    assert curve["members"][0]["over_one"] == {"mean": 0.0, "std": 0.0, "p": 1.0}


def test_batches_do_not_change_what_is_said(found):
    net, x, labels, _ = found
    torch.testing.assert_close(logits(net, x, batch=7), logits(net, x, batch=60))
    assert net.training  # as before
    with pytest.raises(ValueError, match="labels must be one per image"):
        accuracy(torch.ones(3, 2), labels)
