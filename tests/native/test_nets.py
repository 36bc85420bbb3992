"""Small nets natively: what operations of torch give in float64, in every instruction set; what only they can do."""

from itertools import pairwise

import pytest
import torch
from cases import relative_error
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode

import contconv
from contconv.native import library, nets

SLOPE = 0.01
NETS = [
    (17802, (2, 16, 16)),  # more than one thread's
    (36, (2, 16, 16)),
    (1001, (3, 5, 40, 7)),
    (500, (1, 33)),
    (7, (20, 64, 3)),
    (100, (2, *[4] * 8)),
    (0, (2, 16, 16)),
]
each_net = pytest.mark.parametrize(("points", "widths"), NETS, ids=str)


def drawn(points: int, widths: tuple[int, ...]) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    source = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=source)

    layers = [(normal(o, i).requires_grad_(), normal(o).requires_grad_()) for i, o in pairwise(widths)]
    return normal(points, widths[0]), layers


def flat(layers: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
    return [tensor for layer in layers for tensor in layer]


def units(points: Tensor, layers: list[tuple[Tensor, Tensor]]) -> Tensor:
    return nets.units(points, flat(layers), SLOPE)


def in_double(layers: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
    return [
        (weight.detach().double().requires_grad_(), bias.detach().double().requires_grad_()) for weight, bias in layers
    ]


def used(y: Tensor) -> bool:
    return "_Units" in type(y.grad_fn).__name__


@each_net
def test_units_and_gradients_are_those_of_float64(isa: str, points: int, widths: tuple[int, ...]) -> None:
    d, layers = drawn(points, widths)
    twins = in_double(layers)
    got, want = units(d, layers), units(d.double(), twins)
    assert used(got)
    assert not used(want)
    assert got.shape == (points, widths[-1] + 1)
    assert (got[:, -1] == 1).all()
    grad_y = torch.randn(got.shape, generator=torch.Generator().manual_seed(1))
    if points:
        assert relative_error(got, want.detach()) < 2e-6
    grads = torch.autograd.grad(got, flat(layers), grad_y)
    for found, wanted in zip(grads, torch.autograd.grad(want, flat(twins), grad_y.double()), strict=True):
        assert torch.equal(found, wanted.float()) if points == 0 else relative_error(found, wanted) < 1e-5


@each_net
def test_results_depend_neither_on_threads_nor_on_the_run(
    isa: str, threads: None, points: int, widths: tuple[int, ...]
) -> None:
    d, layers = drawn(points, widths)
    results = []
    for count in (1, 2, 2):
        torch.set_num_threads(count)
        y = units(d, layers)
        results.append((y, *torch.autograd.grad(y.square().sum(), flat(layers))))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_derivatives_of_derivatives(isa: str) -> None:
    d, layers = drawn(30, (2, 16, 16))
    twins = in_double(layers)

    def second(points: Tensor, net: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, ...]:
        first = torch.autograd.grad(units(points, net).pow(3).sum(), flat(net), create_graph=True)
        return torch.autograd.grad(sum(grad.square().sum() for grad in first), flat(net))

    for found, wanted in zip(second(d, layers), second(d.double(), twins), strict=True):
        assert relative_error(found, wanted) < 1e-5


def test_only_gradients_that_are_wanted(isa: str) -> None:
    d, layers = drawn(30, (2, 16, 16))
    layers[0][0].requires_grad_(False)
    wanted = flat(layers)[1:]
    for create_graph in (False, True):
        grads = torch.autograd.grad(units(d, layers).sum(), wanted, create_graph=create_graph)
        assert all(grad.abs().sum() > 0 for grad in grads)


def gradients(y: Tensor, parameters: list[Tensor], create_graph: bool) -> list[Tensor]:
    return [grad.detach() for grad in torch.autograd.grad(y.square().sum(), parameters, create_graph=create_graph)]


def test_layers_that_have_something_in_common(isa: str) -> None:
    """One layer twice, and one made from the other: a gradient is no other where it is to be differentiated."""
    d, [(weight, bias)] = drawn(30, (16, 16))
    for other in (weight, weight.clone(), weight * 2):
        twins = [weight.detach().double().requires_grad_(), bias.detach().double().requires_grad_()]
        doubled = twins[0] if other is weight else twins[0] * (other / weight).detach().mean().round().double()
        wanted = gradients(units(d.double(), [(twins[0], twins[1]), (doubled, twins[1])]), twins, False)
        for create_graph in (False, True):
            y = units(d, [(weight, bias), (other, bias)])
            assert used(y)
            found = torch.autograd.grad(y.square().sum(), [weight, bias], create_graph=create_graph, retain_graph=True)
            assert all(relative_error(a.detach(), b) < 1e-5 for a, b in zip(found, wanted, strict=True))


def test_hooks_run_once(isa: str) -> None:
    d, layers = drawn(30, (2, 16, 16))
    wanted = gradients(units(d, layers), flat(layers), False)
    for tensor in flat(layers):
        tensor.register_hook(lambda grad: 10 * grad)
    for create_graph in (False, True):
        found = gradients(units(d, layers), flat(layers), create_graph)
        assert all(relative_error(a, 10 * b) < 1e-5 for a, b in zip(found, wanted, strict=True))


def test_saved_tensors_come_back_in_another_layout(isa: str) -> None:
    d, layers = drawn(30, (2, 16, 16))
    wanted = gradients(units(d, layers), flat(layers), False)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: t.mT.contiguous() if t.ndim == 2 else t, lambda t: t.mT if t.ndim == 2 else t
    ):
        y = units(d, layers)
    found = torch.autograd.grad(y, flat(layers), 2 * y.detach())
    assert all(relative_error(a, b) < 1e-6 for a, b in zip(found, wanted, strict=True))


def test_gradients_are_batched_and_have_tangents(isa: str) -> None:
    d, layers = drawn(4, (2, 16, 16))
    y = units(d, layers)
    seeds = torch.randn(3, *y.shape)
    batched = torch.autograd.grad(y, flat(layers), seeds, is_grads_batched=True, retain_graph=True)
    each = [torch.autograd.grad(y, flat(layers), seed, retain_graph=True) for seed in seeds]
    for found, alone in zip(batched, zip(*each, strict=True), strict=True):
        torch.testing.assert_close(found, torch.stack(alone))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(seeds[0], seeds[1])
        for grad, tangent in zip(torch.autograd.grad(y, flat(layers), dual), each[1], strict=True):
            torch.testing.assert_close(forward_ad.unpack_dual(grad).tangent, tangent)


def test_gradients_of_a_whole_layer_are_batched(isa: str) -> None:
    layer = contconv.ContinuousConv2d(1, 1, 3, scale=0.7)
    y = layer(torch.randn(1, 1, 5, 5)).flatten()
    parameters = list(layer.kernel.layers.parameters())
    batched = torch.autograd.grad(y, parameters, torch.eye(len(y)), is_grads_batched=True, retain_graph=True)
    for i in range(len(y)):
        for found, alone in zip(batched, torch.autograd.grad(y[i], parameters, retain_graph=True), strict=True):
            torch.testing.assert_close(found[i], alone, rtol=1e-4, atol=1e-6)


def test_tensors_that_are_not_what_lies_in_memory(isa: str) -> None:
    d, layers = drawn(4, (2, 16, 16))
    torch.testing.assert_close(units(torch._neg_view(-d), layers), units(d, layers))


def test_nan_and_inf_stay_with_their_point(isa: str) -> None:
    d, layers = drawn(100, (2, 16, 16))
    d[3, 1], d[50, 0] = float("nan"), float("inf")
    got, want = units(d, layers), units(d.double(), in_double(layers))
    assert (got[:, -1] == 1).all()  # even there
    assert torch.equal(got[:, :-1].isnan(), want[:, :-1].isnan())
    assert torch.equal(got[:, :-1].isinf(), want[:, :-1].isinf())
    assert got[3, :-1].isnan().all()


def test_points_and_weights_in_any_layout(isa: str) -> None:
    d, layers = drawn(50, (2, 16, 16))
    scattered = [(weight.detach().T.contiguous().T.requires_grad_(), bias) for weight, bias in layers]
    got, want = units(d.T.contiguous().T, scattered), units(d, layers)
    assert torch.equal(got, want)
    wanted = torch.autograd.grad(want.square().sum(), flat(layers))
    for create_graph in (False, True):
        y = units(d.T.contiguous().T, scattered)
        grads = torch.autograd.grad(y.square().sum(), flat(scattered), create_graph=create_graph)
        assert all(relative_error(grad, known) < 1e-5 for grad, known in zip(grads, wanted, strict=True))


def test_layers_that_do_not_fit(isa: str) -> None:
    d, layers = drawn(5, (2, 16, 16))
    with pytest.raises(ValueError, match=r"after 2 units .* \[16, 2\] .* but has \[16, 3\]"):
        units(d, [(torch.zeros(16, 3), layers[0][1]), layers[1]])
    with pytest.raises(ValueError, match=r"bias \[16\], but has .* \[4\]"):
        units(d, [(layers[0][0], torch.zeros(4)), layers[1]])


def test_what_only_torch_can_do_is_left_to_torch(isa: str) -> None:
    d, layers = drawn(6, (2, 16, 16))
    want = units(d, layers).detach()
    assert not used(units(d.clone().requires_grad_(), layers))
    for widths in ((2, *[4] * 9), (2, 300)):  # more layers than the kernel has room for, wider ones
        assert not used(units(*drawn(6, widths)))
    one_by_one = torch.func.vmap(lambda point: units(point[None], layers)[0])(d)
    torch.testing.assert_close(one_by_one, want)
    _, slope = torch.func.jvp(lambda points: units(points, layers), (d,), (torch.ones_like(d),))
    assert slope.shape == want.shape
    with torch.autocast("cpu", torch.bfloat16):
        assert units(d, layers).dtype == torch.bfloat16
    frozen = [(weight.detach(), bias.detach()) for weight, bias in layers]
    traced = torch.jit.trace(lambda points: units(points, frozen), d)
    torch.testing.assert_close(traced(2 * d), units(2 * d, frozen))


def test_a_flop_counter_hears_of_it(isa: str) -> None:
    d, layers = drawn(50, (2, 16, 16))
    with FlopCounterMode(display=False) as counter:
        y = units(d, layers)
    assert counter.get_total_flops() == 2 * 50 * (2 * 16 + 16 * 16)
    with counter:
        y.sum().backward()
    assert counter.get_total_flops() > 2 * 50 * (2 * 16 + 16 * 16)


def test_structures_have_the_room_that_the_kernel_expects() -> None:
    source = (library.Path(library.__file__).parent / "cpp" / "problem.h").read_text()
    assert f"CONTCONV_MOST_LAYERS = {library.MOST_LAYERS}" in source
