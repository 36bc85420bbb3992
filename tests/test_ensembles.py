"""An ensemble is the mean or the median of one model's outputs over its sequences, and otherwise that model."""

import pytest
import torch
from torch import nn

from contconv import ensemble, sample_scales
from contconv.ensembles import ScaleEnsemble, draw_sequences
from contconv.models import CCNet


class Scaled(nn.Module):
    """Multiplies by a weight and by the first scale of the sequence; by 10 if there is none."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(2.0))
        self.seen = []

    def forward(self, x, scales=None, plus=0.0):
        self.seen.append(scales)
        return self.weight * x * (10 if scales is None else scales[0]) + plus


class Resizing(nn.Module):
    def forward(self, x, scales=None):
        return x[: scales[0]]


X = torch.tensor([1.0, -3.0])


def test_logits_are_averaged():
    assert ensemble(Scaled(), [[1], [2], [6]])(X).tolist() == [6.0, -18.0]


@pytest.mark.parametrize(("sequences", "factor"), [([[1], [2], [60]], 4), ([[60], [1], [2], [4]], 6), ([[3]], 6)])
def test_the_median_is_the_middle_and_of_an_even_number_the_mean_of_the_middle_two(sequences, factor):
    assert ensemble(Scaled(), sequences, reduce="median")(X).tolist() == [factor * 1.0, factor * -3.0]


def test_the_default_sequence_can_be_a_member():
    assert ensemble(Scaled(), [[1]], default=True)(X).tolist() == [11.0, -33.0]
    assert ensemble(Scaled(), [None, [1]])(X).tolist() == [11.0, -33.0]


def test_drawn_sequences_are_those_of_the_sampler_and_begin_alike_for_every_number():
    generator = torch.Generator().manual_seed(4)
    expected = [sample_scales(7, 1 / 4, generator=generator) for _ in range(3)]
    assert ensemble(Scaled(), 3, layers=7, target=1 / 4, seed=4).sequences == expected
    assert draw_sequences(2, 7, 1 / 4, seed=4) == expected[:2]
    assert draw_sequences(2, 7, 1 / 4, seed=5) != expected[:2]


def test_an_ensemble_of_ccnet_is_the_mean_of_its_passes():
    net = CCNet("spline", width=4, hidden=8)
    x = torch.randn(2, 3, 32, 32)
    made = ensemble(net, 3, layers=7, target=1 / 4, seed=1)
    expected = torch.stack([net(x, scales=one) for one in made.sequences]).mean(0)
    torch.testing.assert_close(made(x), expected)


def test_the_state_is_the_models_own_also_inside_another_module():
    model = Scaled()
    made = ensemble(model, [[1]])
    assert list(made.state_dict()) == ["weight"]
    made.load_state_dict({"weight": torch.tensor(5.0)})
    assert model.weight.item() == 5
    outer = nn.Sequential(nn.Linear(2, 2), ensemble(Scaled(), [[1]]))
    assert list(outer.state_dict()) == ["0.weight", "0.bias", "1.weight"]
    outer.load_state_dict({**outer.state_dict(), "1.weight": torch.tensor(7.0)})
    assert outer[1].model.weight.item() == 7
    assert outer[0].weight.shape == (2, 2)


def test_training_mode_gradients_and_options_reach_the_model():
    model = Scaled()
    made = ensemble(model, [[1], [3]])
    assert made.eval().model.training is False
    assert made.train().model.training is True
    made(X, plus=1.0).sum().backward()
    assert model.weight.grad.item() == pytest.approx(-4.0)  # mean of 1 and 3, times 1 - 3
    with torch.no_grad():
        assert not made(X).requires_grad


def test_it_says_what_it_is():
    assert "sequences=2, reduce='median'" in repr(ensemble(Scaled(), [[1], [2]], reduce="median"))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ensemble(nn.Identity(), [[1]]), TypeError, "model must take `scales=`"),
        (lambda: ensemble(lambda x: x, [[1]]), TypeError, "model must be a module, got function"),
        (lambda: ensemble(Scaled(), []), ValueError, "sequences must hold at least one"),
        (lambda: ensemble(Scaled(), 2), ValueError, "layers and target must be given"),
        (lambda: ensemble(Scaled(), 0, layers=7, target=1 / 4), ValueError, "sequences must be at least 1"),
        (lambda: ensemble(Scaled(), True), TypeError, "sequences must be how many"),
        (lambda: ensemble(Scaled(), 2.0), TypeError, "sequences must be how many"),
        (lambda: ensemble(Scaled(), [[1], 3]), TypeError, "number 1 is 3"),
        (lambda: ensemble(Scaled(), [[1]], reduce="mode"), ValueError, "reduce must be one of mean, median"),
        (lambda: ensemble(Resizing(), [[1], [2]])(X), ValueError, "must all lead to one shape"),
    ],
)
def test_errors_name_the_argument(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_model_that_returns_no_tensor_is_refused():
    class Pair(nn.Module):
        def forward(self, x, scales=None):
            return x, x

    with pytest.raises(TypeError, match=r"must return a tensor .* got tuple"):
        ScaleEnsemble(Pair(), [None])(X)
