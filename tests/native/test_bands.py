"""Bands of the output that take turns: many filters and few input channels, whose gradients are made in one pass over
grad_y, and what is factored."""

import pytest
import torch
from cases import layer_gradients, relative_error
from torch import Tensor, nn

import contconv
from contconv.strategies import engine

CONVS = {1: contconv.ContinuousConv1d, 2: contconv.ContinuousConv2d, 3: contconv.ContinuousConv3d}
SIZES = {1: (211,), 2: (61, 17), 3: (31, 6, 9)}
SCALES = (0.6789, 0.7123, 0.8141)


@pytest.fixture(autouse=True)
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """All filters are many, however small the problem."""
    monkeypatch.setattr(engine, "FILTER_BYTES", 0)


def gradients(layer: nn.Module, x: Tensor, wanted: str = "") -> dict[str, Tensor]:
    return layer_gradients(layer, x, SCALES[: x.ndim - 2], wanted)


def problem(axes: int, channels: tuple[int, int], batch: int = 3, **options: object) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    layer = CONVS[axes](*channels, **{"kernel_size": 3, **options}, strategy="phases")
    return layer, torch.randn(batch, channels[0], *SIZES[axes])


@pytest.mark.parametrize("padding_mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("kernel", ["internal", "spline", "internal-per-tap"])
@pytest.mark.parametrize(
    ("axes", "channels", "kernel_size"),
    [(1, (3, 32), 5), (2, (3, 32), 3), (2, (1, 7), 5), (2, (8, 70), 3), (2, (10, 40), 3), (3, (3, 16), 2)],
)
def test_all_gradients_are_those_of_float64(isa, axes, channels, kernel_size, kernel, padding_mode):
    layer, x = problem(axes, channels, kernel_size=kernel_size, kernel=kernel, padding_mode=padding_mode)
    have = gradients(layer, x)
    want = gradients(layer.double(), x.double())
    for name, wanted in want.items():
        assert relative_error(have[name], wanted) < 1e-5, name


def test_gradients_depend_neither_on_threads_nor_on_what_else_is_wanted(isa, threads):
    layer, x = problem(2, (3, 32))
    torch.set_num_threads(1)
    want = gradients(layer, x)
    torch.set_num_threads(2)
    for wanted in ("", "x", "mixing"):
        for name, gradient in gradients(layer, x, wanted).items():
            assert torch.equal(gradient, want[name]), (wanted, name)


def test_a_batch_longer_than_a_block(isa):
    layer, x = problem(2, (3, 20), batch=130)
    have = gradients(layer, x)
    for name, wanted in gradients(layer.double(), x.double()).items():
        assert relative_error(have[name], wanted) < 1e-5, name


def test_an_empty_batch_says_nothing(isa):
    layer, x = problem(2, (3, 20), batch=0)
    assert not any(gradient.count_nonzero() for gradient in gradients(layer, x).values())


WAYS = {
    "bands of phases, which come again": (23 / 19, 1, "internal"),
    "the same for several images": (23 / 19, 3, "internal"),
    "bands of outputs": (23 / 19, 2, "spline"),
    "bands of outputs, with copies": (5 / 4, 1, "internal"),
    "images": (5 / 4, 5, "internal"),
}


@pytest.mark.parametrize("channels", [(3, 20), (34, 16)], ids=["one panel", "two panels"])
@pytest.mark.parametrize(("scale", "batch", "kernel"), WAYS.values(), ids=WAYS)
def test_chunks_of_what_is_factored_have_all_gradients(isa, threads, scale, batch, kernel, channels):
    torch.manual_seed(0)
    layer = contconv.ContinuousConv2d(*channels, 3, kernel=kernel, strategy="factored")
    x = torch.randn(batch, channels[0], 61, 40)
    torch.set_num_threads(1)
    alone = layer_gradients(layer, x, (scale, 0.71))
    torch.set_num_threads(2)
    have = layer_gradients(layer, x, (scale, 0.71))
    for name, wanted in layer_gradients(layer.double(), x.double(), (scale, 0.71)).items():
        assert torch.equal(have[name], alone[name]), name
        assert relative_error(have[name], wanted) < 1e-5, name


LONG = {
    "few rows": ((4, 150), (1.1, 1.37345)),
    "one row of many columns, which come again": ((1, 211), (1, 23 / 19)),
    "films whose frames stay": ((5, 30, 24), (1, 1.37345, 1.4142)),
    "few frames": ((2, 3, 90), (1.5, 0.8, 1.37345)),
}


@pytest.mark.parametrize("channels", [(3, 20), (20, 3), (17, 9)], ids=["few inputs", "few outputs", "neither"])
@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize(("size", "scale"), LONG.values(), ids=LONG)
def test_what_is_factored_is_cut_along_its_longest_axis(isa, threads, size, scale, batch, channels):
    torch.manual_seed(1)  # with 0 a unit of the net is so near its kink that float64 sees the other side
    layer = CONVS[len(size)](*channels, 3, strategy="factored")
    x = torch.randn(batch, channels[0], *size)
    torch.set_num_threads(1)
    alone = layer_gradients(layer, x, scale)
    torch.set_num_threads(2)
    have = layer_gradients(layer, x, scale)
    for name, wanted in layer_gradients(layer.double(), x.double(), scale).items():
        assert torch.equal(have[name], alone[name]), name
        assert relative_error(have[name], wanted) < 1e-5, name


@pytest.mark.parametrize("channels", [(3, 20), (20, 3), (17, 9)], ids=["few inputs", "few outputs", "neither"])
def test_sums_over_thousands_of_taps_stay_exact(isa, channels):
    torch.manual_seed(0)
    layer = contconv.ContinuousConv2d(*channels, 3, antialias=True, padding_mode="replicate", strategy="factored")
    x = torch.rand(1, channels[0], 128, 96)  # of one sign, so that errors add up
    with torch.no_grad():
        have, want = layer(x, scale=0.025), layer.double()(x.double(), scale=0.025)
    assert relative_error(have, want) < 4e-6


@pytest.mark.parametrize("strategy", ["phases", "factored"])
@pytest.mark.parametrize("channels", [(3, 20), (17, 9)], ids=["few inputs", "neither"])
def test_gradients_are_sums_over_thousands_of_taps_as_well(isa, channels, strategy):
    torch.manual_seed(0)
    layer = contconv.ContinuousConv2d(*channels, 3, antialias=True, padding_mode="replicate", strategy=strategy)
    x = torch.rand(1, channels[0], 160, 96)
    have = layer_gradients(layer, x, 0.0125)
    for name, wanted in layer_gradients(layer.double(), x.double(), 0.0125).items():
        assert relative_error(have[name], wanted) < (1e-5 if name == "x" else 4e-6), name
