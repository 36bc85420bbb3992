"""A basis that is a net, sampled by the native kernel itself: the same as one that is stored."""

from dataclasses import dataclass

import pytest
import torch
from cases import relative_error
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode

import contconv
from contconv.native import nets, sampled
from contconv.strategies import engine

CONVS = {1: contconv.ContinuousConv1d, 2: contconv.ContinuousConv2d, 3: contconv.ContinuousConv3d}
SIZES, SCALES = (13, 11, 9), (0.6789, 0.7123, 0.8141)
CASES = {
    "1d": (1, 5, 7, {}),
    "2d": (2, 5, 7, {}),
    "3d": (3, 3, 4, {}),
    "groups": (2, 4, 8, {"groups": 2}),
    "reflect": (2, 4, 4, {"padding_mode": "reflect"}),
    "no bias": (2, 4, 4, {"bias": False}),
    "even": (2, 4, 4, {"kernel_size": 4}),
    "several panels": (2, 70, 40, {}),
    "many panels": (2, 64, 64, {"groups": 16}),
    "few outputs": (2, 19, 3, {}),
    "few outputs of a film": (3, 8, 6, {"padding_mode": "replicate"}),
}
MANY = "many filters"
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@dataclass(frozen=True)
class Way:
    """Where the net is sampled by the kernel: for each pixel of an image, for few filters, or for many."""

    strategy: str
    batch: int
    scales: tuple[float, ...]


WAYS = {
    "pixels": Way("factored", 1, SCALES),
    "pixels of a batch": Way("factored", 3, SCALES),
    "few filters": Way("phases", 3, (2 / 3, 0.75, 1.5)),
    MANY: Way("phases", 3, SCALES),
}
either_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@pytest.fixture(autouse=True)
def small_problems_have_many_filters_too(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "way" in request.fixturenames and request.getfixturevalue("way") is WAYS[MANY]:
        monkeypatch.setattr(engine, "FILTER_BYTES", 0)
    monkeypatch.setattr(engine, "MANY_OUTPUTS", 0)


def layer_of(
    axes: int, channels: int, out: int, options: dict, dtype: torch.dtype = torch.float32, strategy: str = "factored"
) -> torch.nn.Module:
    torch.manual_seed(0)
    return CONVS[axes](channels, out, **{"kernel_size": 3, **options}, strategy=strategy).to(dtype)


def image(axes: int, channels: int, batch: int = 1) -> Tensor:
    return torch.randn(batch, channels, *SIZES[:axes], generator=torch.Generator().manual_seed(1))


def trained(layer: torch.nn.Module, x: Tensor, scales: tuple[float, ...] = SCALES) -> list[Tensor]:
    """The output, and the gradients of x and of every parameter."""
    x = x.clone().requires_grad_()
    y = layer(x, scale=scales[: x.ndim - 2])
    weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(2)).to(y)
    return [y.detach(), *torch.autograd.grad((y * weight).sum(), [x, *layer.parameters()])]


def counting_uses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    uses: list[int] = []
    original = sampled.convolve
    monkeypatch.setattr(sampled, "convolve", lambda *arguments: (uses.append(1), original(*arguments))[1])
    return uses


@each_case
@either_way
def test_outputs_and_gradients_are_those_of_float64(isa, way, case, monkeypatch):
    axes, channels, out, options = case
    uses = counting_uses(monkeypatch)
    x = image(axes, channels, way.batch)
    got = trained(layer_of(axes, channels, out, options, strategy=way.strategy), x, way.scales)
    assert uses == [1]
    want = trained(layer_of(axes, channels, out, options, torch.float64), x.double(), way.scales)
    assert uses == [1]
    for number, (found, wanted) in enumerate(zip(got, want, strict=True)):
        assert relative_error(found, wanted) < (2e-6 if number == 0 else 1e-5)


@each_case
@either_way
def test_the_output_is_that_of_a_stored_basis_to_the_last_bit(isa, way, case, monkeypatch):
    axes, channels, out, options = case
    layer, x = layer_of(axes, channels, out, options, strategy=way.strategy), image(axes, channels, way.batch)
    in_place = trained(layer, x, way.scales)
    monkeypatch.setattr(sampled, "serves", lambda *_: False)
    stored = trained(layer, x, way.scales)
    assert torch.equal(in_place[0], stored[0])
    for a, b in zip(in_place, stored, strict=True):
        assert relative_error(a, b) < 1e-6


@either_way
def test_results_depend_neither_on_threads_nor_on_the_run(isa, threads, way):
    layer = contconv.ContinuousConv2d(32, 32, 3)
    x = torch.randn(way.batch, 32, 64, 64, generator=torch.Generator().manual_seed(1))  # more than one thread's
    results = []
    for count in (1, 2, 2):
        torch.set_num_threads(count)
        results.append(trained(layer, x, way.scales))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("kept", ["x", "mixing", "layers", "bias"])
@either_way
def test_only_gradients_that_are_wanted(isa, way, kept):
    layer, x = layer_of(2, 5, 7, {}, strategy=way.strategy), image(2, 5, way.batch)
    want = dict(zip(("y", "x", *dict(layer.named_parameters())), trained(layer, x, way.scales), strict=True))
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_(kept in name)
    x.requires_grad_(kept == "x")
    y = layer(x, scale=way.scales[:2])
    (y * torch.randn(y.shape, generator=torch.Generator().manual_seed(2))).sum().backward()
    found = {"x": x.grad, **{name: parameter.grad for name, parameter in layer.named_parameters()}}
    for name, grad in found.items():
        assert (grad is not None) == (kept in name)
        if name == "bias" == kept:  # alone it is summed in another order
            assert relative_error(grad, want[name].double()) < 1e-6
        else:
            assert grad is None or torch.equal(grad, want[name])


@either_way
def test_derivatives_of_derivatives(isa, way):
    layer, twin = layer_of(2, 3, 4, {}, strategy=way.strategy), layer_of(2, 3, 4, {}, torch.float64)
    x = image(2, 3, way.batch)

    def second(layer: torch.nn.Module, x: Tensor) -> tuple[Tensor, ...]:
        inputs = [x.clone().requires_grad_(), *layer.parameters()]
        y = layer(inputs[0], scale=way.scales[:2])
        first = torch.autograd.grad(y.pow(3).sum(), inputs, create_graph=True)
        return torch.autograd.grad(sum(grad.square().sum() for grad in first), inputs)

    for found, wanted in zip(second(layer, x), second(twin, x.double()), strict=True):
        assert relative_error(found, wanted) < 1e-5


@either_way
def test_gradients_in_batches(isa, way):
    layer, x = layer_of(2, 3, 4, {}, strategy=way.strategy), image(2, 3, way.batch).requires_grad_()
    inputs = [x, *layer.parameters()]
    y = layer(x, scale=way.scales[:2])
    weights = torch.randn(3, *y.shape, generator=torch.Generator().manual_seed(3))
    batched = torch.autograd.grad(y, inputs, weights, is_grads_batched=True, retain_graph=True)
    for number, weight in enumerate(weights):
        for found, wanted in zip(batched, torch.autograd.grad(y, inputs, weight, retain_graph=True), strict=True):
            assert relative_error(found[number], wanted.double()) < 1e-5


def test_who_looks_on_gets_a_stored_basis(monkeypatch):
    layer, x = layer_of(2, 3, 4, {}), image(2, 3)
    uses = counting_uses(monkeypatch)
    want = layer(x, scale=SCALES[:2]).detach()
    assert uses == [1]
    mapped = torch.func.vmap(lambda one: layer(one, scale=SCALES[:2]))(x[None])[0]
    _, along = torch.func.jvp(lambda one: layer(one, scale=SCALES[:2]), (x,), (x,))
    for found in (mapped, along + layer.bias[:, None, None]):
        torch.testing.assert_close(found, want)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        layer(x, scale=SCALES[:2]).sum().backward()
    assert uses == [1]


@pytest.mark.parametrize(
    ("batch", "scale", "antialias", "training"),
    [(2, SCALES[:2], False, True), (1, 2 / 3, False, True), (1, SCALES[:2], True, True), (1, SCALES[:2], False, False)],
    ids=["images of few pixels", "phases come again", "stretched", "inference"],
)
def test_where_samples_serve_more_than_once_they_are_stored(batch, scale, antialias, training, monkeypatch):
    uses = counting_uses(monkeypatch)
    monkeypatch.setattr(engine, "MANY_OUTPUTS", 1024)
    layer = contconv.ContinuousConv2d(3, 4, 3, antialias=antialias, strategy="factored")
    with torch.set_grad_enabled(training):
        layer(image(2, 3, batch), scale=scale)
    assert uses == []


def test_somebodys_own_basis_is_his_own(monkeypatch):
    class Doubled(contconv.InternalNet):
        def basis(self, d: Tensor) -> Tensor:
            return 2 * super().basis(d)

    torch.manual_seed(0)
    plain = contconv.ContinuousConv2d(3, 4, 3, bias=False, strategy="factored")
    kernel = Doubled(3, 4, (3, 3))
    kernel.load_state_dict(plain.kernel.state_dict())
    doubled = contconv.ContinuousConv2d(3, 4, 3, bias=False, kernel=kernel, strategy="factored")
    x = image(2, 3)
    torch.testing.assert_close(doubled(x, scale=SCALES[:2]), 2 * plain(x, scale=SCALES[:2]))


def test_a_flop_counter_counts_the_net_at_every_tap():
    layer, x = layer_of(2, 3, 4, {}), image(2, 3).requires_grad_()
    with FlopCounterMode(display=False) as counter:
        y = layer(x, scale=SCALES[:2])
    outputs = y.shape[-1] * y.shape[-2]
    net = 9 * nets.macs(1, layer.kernel.net_parameters())
    assert counter.get_total_flops() == 2 * outputs * (17 * 3 * (9 + 4) + net)
    with FlopCounterMode(display=False) as counter:
        y.sum().backward()
    spread, mixed = 17 * 3 * 9, 17 * 3 * 4
    assert counter.get_total_flops() == 2 * outputs * (3 * spread + 2 * mixed + 4 * net)


@pytest.mark.parametrize("most_bytes", [engine.FILTER_BYTES, 0], ids=["few", "many"])
def test_a_flop_counter_counts_the_net_at_every_tap_of_every_filter(most_bytes, monkeypatch):
    monkeypatch.setattr(engine, "FILTER_BYTES", most_bytes)
    layer, x = layer_of(2, 3, 4, {}, strategy="phases"), image(2, 3, 2).requires_grad_()
    with FlopCounterMode(display=False) as counter:
        y = layer(x, scale=2 / 3)
    applied, made = y.shape[0] * y.shape[-1] * y.shape[-2] * 9 * 12, 17 * 4 * 9 * 12
    net = 4 * 9 * nets.macs(1, layer.kernel.net_parameters())
    assert counter.get_total_flops() == 2 * (applied + made + net)
    with FlopCounterMode(display=False) as counter:
        y.sum().backward()
    assert counter.get_total_flops() == 2 * (2 * applied + 3 * made + 4 * net)


def test_what_is_sampled_must_make_sense():
    table = torch.zeros(2, 4, dtype=torch.int32)
    with pytest.raises(ValueError, match=r"offsets must be contiguous float32 \[phases, 3\]"):
        sampled.Sampling([table] * 3, [torch.zeros(1, 2)] * 3, 2, 0.01, 1, "factored-output")
    with pytest.raises(
        ValueError,
        match="algorithm must be one of filters, made-filters, factored-output, few-outputs, got 'factored-input'",
    ):
        sampled.Sampling([table] * 3, [torch.zeros(1, 3)] * 3, 2, 0.01, 1, "factored-input")


@pytest.mark.parametrize("scale", [SCALES[:2], 2 / 3], ids=["in place", "stored"])
def test_autocast_around_backward_alone_changes_nothing(scale):
    layer, x = layer_of(2, 5, 7, {}), image(2, 5, 2).requires_grad_()
    inputs = [x, *layer.parameters()]

    def gradients(enabled: bool, create_graph: bool) -> tuple[Tensor, ...]:
        y = layer(x, scale=scale)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            return torch.autograd.grad(y, inputs, torch.ones_like(y), create_graph=create_graph)

    for create_graph in (False, True):
        for found, wanted in zip(gradients(True, create_graph), gradients(False, create_graph), strict=True):
            assert relative_error(found.detach(), wanted.detach().double()) < 1e-5


def test_a_small_image_needs_little_memory(threads):
    torch.set_num_threads(2)
    for channels, limit in ((1, 320_000), (5, 560_000), (16, 320_000)):  # for few outputs, mixed inputs are kept
        layer = contconv.ContinuousConv2d(channels, channels, 3, memory_limit=limit, strategy="factored")
        said = contconv.explain(layer, image(2, channels).requires_grad_(), scale=SCALES[:2])
        assert said.costs["factored"].bytes <= limit
        layer(image(2, channels), scale=SCALES[:2]).sum().backward()
    many = contconv.ContinuousConv3d(1, 1, 7, kernel=contconv.InternalNet(1, 1, (7, 7, 7), hidden=(128,)))
    said = contconv.explain(many, image(3, 1), scale=SCALES)
    assert said.costs["factored"].bytes >= 2 * 7**3 * 129 * 4  # one pixel's basis and its gradient


@pytest.mark.parametrize("scale", [SCALES[:2], 2 / 3], ids=["in place", "stored"])
def test_tangents_of_gradients_are_refused_and_not_dropped(scale):
    layer, x = layer_of(2, 5, 7, {}), image(2, 5, 2).requires_grad_()
    y = layer(x, scale=scale)
    with forward_ad.dual_level():
        gradient = forward_ad.make_dual(torch.ones_like(y), torch.ones_like(y))
        with pytest.raises(NotImplementedError, match="no forward derivative: call the layer"):
            torch.autograd.grad(y, x, gradient)
        twin = layer.double()(x.double(), scale=scale)
        (found,) = torch.autograd.grad(twin, x, gradient.double())
        assert forward_ad.unpack_dual(found).tangent is not None
