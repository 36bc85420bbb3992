"""A layer is a good PyTorch module."""

import copy
import io
import pickle
from fractions import Fraction

import pytest
import torch
from problems import (
    FIXED_CASES,
    KERNEL_CASES,
    LAYERS,
    LEARNED_CASES,
    STRATEGY_NAMES,
    TOLERANCE,
    Problem,
    assert_near,
    input_of,
    layer_of,
    run,
)
from torch import nn

import contconv
from contconv.kernels import KERNELS

PROBLEM = Problem((5, 6), (3, 2), scale=2 / 3, channels=(4, 4), groups=2)
STRIDED = Problem((6, 6), (3, 2), scale=0.5, channels=(4, 4), groups=2)  # which every strategy can do
each_kernel = pytest.mark.parametrize("kernel", KERNEL_CASES.values(), ids=str)
each_strategy = pytest.mark.parametrize("strategy", STRATEGY_NAMES)


# Calls


def test_a_layer_has_a_scale_of_its_own():
    layer, x = contconv.ContinuousConv2d(3, 5, 3, scale=(0.5, 2)), torch.randn(1, 3, 8, 8)
    assert layer(x).shape == (1, 5, 4, 16)
    assert torch.equal(layer(x), layer(x, scale=(0.5, 2)))


def test_the_scale_of_the_call_comes_before_that_of_the_layer():
    layer = contconv.ContinuousConv2d(3, 5, 3, scale=0.5)
    assert layer(torch.randn(1, 3, 8, 9), scale=(Fraction(3, 2), 0.61)).shape == (1, 5, 12, 6)


def test_a_size_alone_means_the_ratio_of_the_sizes_whatever_the_scale_of_the_layer():
    layer, x = contconv.ContinuousConv2d(3, 5, 3, scale=0.25), torch.randn(1, 3, 8, 9)
    assert torch.equal(layer(x, size=(4, 18)), layer(x, size=(4, 18), scale=(0.5, 2)))


def test_one_size_serves_every_axis():
    assert contconv.ContinuousConv2d(1, 1, 3)(torch.randn(1, 1, 8, 9), size=4).shape == (1, 1, 4, 4)


@pytest.mark.parametrize("bias", [True, False])
@each_kernel
def test_the_function_can_do_what_the_layer_can(kernel, bias):
    problem = kernel.fitted(
        Problem((5, 6), (3, 2), scale=2 / 3, center=Fraction(1, 3), padding_mode="circular", bias=bias)
    )
    layer, x = layer_of(problem, kernel), input_of(problem)
    y = contconv.continuous_conv(x, layer.kernel, layer.bias, **problem.call, **problem.options)
    assert torch.equal(layer(x, **problem.call), y)


def test_the_default_kernel_is_one_with_a_name():
    assert type(contconv.ContinuousConv2d(2, 3, 3).kernel) is contconv.InternalNet


def test_a_users_module_without_a_size_takes_that_of_the_layer():
    class Plane(nn.Module):
        def __init__(self):
            super().__init__()
            self.mixing = nn.Parameter(torch.randn(2, 5, 3))

        def basis(self, d):
            return d

    assert contconv.ContinuousConv2d(3, 5, 4, kernel=Plane())(torch.randn(1, 3, 8, 8), scale=0.7).shape == (1, 5, 6, 6)


# Memory


@pytest.mark.parametrize("problem", [PROBLEM, STRIDED], ids=str)
@each_strategy
@each_kernel
def test_channels_last_in_channels_last_out(kernel, strategy, problem):
    problem = kernel.fitted(problem)
    x = input_of(problem)
    y = run(problem, kernel, strategy, x.contiguous(memory_format=torch.channels_last))
    if y is not None:
        assert y.is_contiguous(memory_format=torch.channels_last)
        assert not y.is_contiguous()
        assert_near(y, run(problem, kernel, strategy, x).detach(), 1e-12)
        y.sum().backward()


@each_strategy
@pytest.mark.parametrize("channels", [(4, 1), (1, 4), (1, 1)], ids=str)
def test_one_channel_trains_from_channels_last_too(channels, strategy):
    """With one channel a tensor is of both formats at once."""
    problem, kernel = Problem((6, 6), (3, 2), scale=0.5, channels=channels), KERNEL_CASES["internal"]
    x = input_of(problem).contiguous(memory_format=torch.channels_last).requires_grad_()
    y = run(problem, kernel, strategy, x)
    if y is not None:
        y.sum().backward()
        assert x.grad.isfinite().all()


LAST = torch.channels_last
LAYOUTS = {
    "contiguous": torch.randn(2, 3, 6, 5),
    "channels last": torch.randn(2, 3, 6, 5).to(memory_format=LAST),
    "one channel": torch.randn(2, 1, 6, 5),
    "one channel, last": torch.randn(2, 1, 6, 5).to(memory_format=LAST),
    "one pixel": torch.randn(2, 3, 1, 1),
    "one pixel, channels last": torch.randn(2, 3, 1, 1).to(memory_format=LAST),
    "one number": torch.randn(2, 1, 1, 1),
    "one column, channels last": torch.randn(2, 1, 6, 1).to(memory_format=LAST),
    "one of the channels": torch.randn(2, 3, 6, 5).to(memory_format=LAST)[:, :1],
    "a crop": torch.randn(2, 3, 6, 9).to(memory_format=LAST)[..., 2:7],
    "a sequence": torch.randn(2, 5, 3).movedim(-1, 1)[..., None],
    "columns first": torch.randn(2, 4, 5, 3).permute(0, 3, 2, 1),
    "columns first, one row": torch.randn(2, 4, 1, 3).permute(0, 3, 2, 1),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_format_is_the_one_that_a_convolution_answers_in(name):
    x = LAYOUTS[name]
    layer, conv = contconv.ContinuousConv2d(x.shape[1], 4, 3), nn.Conv2d(x.shape[1], 4, 3, padding=2)
    want = conv(x)
    assert layer(x, size=want.shape[2:]).stride() == want.stride()


@each_strategy
@each_kernel
def test_channels_last_3d_in_channels_last_3d_out(kernel, strategy):
    problem = kernel.fitted(Problem((4, 4, 4), (3, 2, 2), scale=0.5))
    y = run(problem, kernel, strategy, input_of(problem).contiguous(memory_format=torch.channels_last_3d))
    assert y is None or y.is_contiguous(memory_format=torch.channels_last_3d)


@pytest.mark.parametrize("problem", [PROBLEM, STRIDED], ids=str)
@each_strategy
@each_kernel
def test_a_view_gives_what_its_copy_gives(kernel, strategy, problem):
    problem = kernel.fitted(problem)
    height, width = problem.in_size
    view = torch.randn(width, 2, 2 * height, 8, dtype=torch.float64).permute(1, 3, 2, 0)[:, ::2, ::2]
    assert not view.is_contiguous()
    y = run(problem, kernel, strategy, view)
    if y is not None:
        assert_near(y, run(problem, kernel, strategy, view.contiguous()).detach(), 1e-12)
        assert y.is_contiguous()


@each_strategy
@each_kernel
def test_an_expanded_input_gives_what_its_copy_gives(kernel, strategy):
    problem = kernel.fitted(STRIDED)
    x = torch.randn(1, 1, *problem.in_size, dtype=torch.float64).expand(2, 4, -1, -1)
    y = run(problem, kernel, strategy, x)
    if y is not None:
        assert_near(y, run(problem, kernel, strategy, x.contiguous()).detach(), 1e-12)


@pytest.mark.parametrize("problem", [PROBLEM, STRIDED], ids=str)
@each_strategy
@each_kernel
def test_an_empty_batch_gives_an_empty_batch_and_zero_gradients(kernel, strategy, problem):
    problem = kernel.fitted(problem)
    x = input_of(problem, batch=0).requires_grad_()
    y = run(problem, kernel, strategy, x)
    if y is not None:
        whole = run(problem, kernel, strategy, input_of(problem))
        assert y.shape == (0, *whole.shape[1:])
        y.sum().backward()
        assert x.grad.shape == x.shape


@each_kernel
def test_the_input_is_left_as_it_was(kernel):
    problem = kernel.fitted(PROBLEM)
    x = input_of(problem)
    before = x.clone()
    layer_of(problem, kernel)(x, **problem.call)
    assert torch.equal(x, before)


@each_kernel
def test_the_same_call_twice_gives_the_same(kernel):
    problem = kernel.fitted(PROBLEM)
    layer, x = layer_of(problem, kernel), input_of(problem)
    assert torch.equal(layer(x, **problem.call), layer(x, **problem.call))


# Devices and dtypes


@pytest.mark.parametrize("problem", [PROBLEM, STRIDED], ids=str)
@each_strategy
@pytest.mark.parametrize("kernel", LEARNED_CASES.values(), ids=str)
def test_on_the_meta_device_shapes_come_without_values(kernel, strategy, problem):
    x = input_of(problem)
    y = run(problem, kernel, strategy, x.to("meta"), device="meta")
    if y is not None:
        assert y.device.type == "meta"
        assert y.shape == run(problem, kernel, strategy, x).shape


def test_a_layer_made_on_the_meta_device_can_be_filled_later():
    layer = contconv.ContinuousConv2d(4, 6, 3, device="meta", dtype=torch.float64)
    assert all(p.is_meta for p in layer.parameters())
    layer = layer.to_empty(device="cpu")
    layer.reset_parameters()
    assert layer(torch.randn(1, 4, 5, 5, dtype=torch.float64), scale=0.7).isfinite().all()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", KERNELS)
def test_every_parameter_has_the_dtype_asked_for(name, dtype):
    layer = contconv.ContinuousConv2d(4, 6, 3, kernel=name, dtype=dtype)
    assert {p.dtype for p in layer.parameters()} == {dtype}
    assert layer(torch.randn(1, 4, 5, 5, dtype=dtype), scale=0.7).dtype == dtype


@each_kernel
def test_a_layer_can_change_its_dtype_after_it_has_run(kernel):
    problem = kernel.fitted(PROBLEM)
    layer, x = layer_of(problem, kernel), input_of(problem)
    before = layer(x, **problem.call).detach()
    assert_near(layer.float()(x.float(), **problem.call), before)
    assert_near(layer.double()(x, **problem.call), before, 1e-6)


@pytest.mark.parametrize("problem", [PROBLEM, STRIDED], ids=str)
@each_strategy
@each_kernel
def test_autocast_does_as_it_does_to_a_convolution(kernel, strategy, problem):
    problem = kernel.fitted(problem)
    x = input_of(problem, dtype=torch.float32).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = run(problem, kernel, strategy, x, dtype=torch.float32)
        convolved = nn.Conv2d(problem.channels[0], 1, 1)(x)
    if y is not None:
        assert y.dtype == convolved.dtype == torch.bfloat16
        assert_near(y, layer_of(problem, kernel, dtype=torch.float32)(x, **problem.call).detach())
        (gradient,) = torch.autograd.grad(y.sum(), x)
        assert gradient.dtype == torch.float32


# Saving


@each_kernel
def test_a_copy_is_equal_and_independent(kernel):
    problem = kernel.fitted(PROBLEM)
    layer, x = layer_of(problem, kernel), input_of(problem)
    y = layer(x, **problem.call).detach()
    twin = copy.deepcopy(layer)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
    assert torch.equal(twin(x, **problem.call), y)


@each_kernel
def test_a_pickled_layer_comes_back_the_same(kernel):
    problem = kernel.fitted(PROBLEM)
    layer, x = layer_of(problem, kernel), input_of(problem)
    y = layer(x, **problem.call).detach()
    assert torch.equal(pickle.loads(pickle.dumps(layer))(x, **problem.call), y)


KEYS = {
    "internal": [
        "kernel.mixing",
        "kernel.layers.0.weight",
        "kernel.layers.0.bias",
        "kernel.layers.1.weight",
        "kernel.layers.1.bias",
    ],
    "spline": ["kernel.mixing"],
}
KEYS["internal-per-tap"] = KEYS["internal"]


@pytest.mark.parametrize("name", KERNELS)
def test_the_state_holds_parameters_and_nothing_else_before_and_after_a_call(name):
    layer = contconv.ContinuousConv2d(4, 6, 3, kernel=name)
    assert set(layer.state_dict()) == {"bias", *KEYS[name]}
    layer(torch.randn(1, 4, 5, 5), scale=0.7)
    assert set(layer.state_dict()) == {"bias", *KEYS[name]}


@pytest.mark.parametrize("kernel", LEARNED_CASES.values(), ids=str)
def test_a_saved_state_makes_an_equal_layer(kernel):
    layer, x = layer_of(PROBLEM, kernel), input_of(PROBLEM)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other = layer_of(PROBLEM, kernel)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.fill_(7)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(x, **PROBLEM.call), layer(x, **PROBLEM.call))


REPRS = [
    contconv.ContinuousConv2d(3, 5, 3),
    contconv.ContinuousConv1d(4, 6, 4, scale=0.61, kernel="spline", groups=2, bias=False),
    contconv.ContinuousConv2d(4, 6, (3, 2), scale=(Fraction(2, 3), 0.5**0.5), kernel="internal-per-tap"),
    contconv.ContinuousConv3d(
        2, 2, (1, 2, 3), scale=Fraction(1, 10**6 + 3), padding_mode="reflect", center=(0, 0.5, -1)
    ),
    contconv.ContinuousConv2d(3, 3, 4, kernel=contconv.Cubic(-0.5), groups=3, antialias=True, strategy="reference"),
    contconv.ContinuousConv2d(3, 3, 6, kernel=contconv.Lanczos(normalize=False), groups=3),
    contconv.ContinuousConv1d(3, 3, 2, kernel=contconv.Linear(), groups=3, padding_mode="replicate"),
    contconv.ContinuousConv2d(3, 3, (4, 5), kernel=contconv.Gaussian([[2.0, 1], [1, 2.0]], (4, 5)), groups=3),
    contconv.ContinuousConv2d(3, 3, 4, kernel=contconv.Gaussian(0.7, 4), groups=3),
    contconv.ContinuousConv2d(3, 5, 3, kernel=contconv.InternalNet(3, 5, (3, 3), hidden=(8, 4, 8), init="xavier")),
    contconv.ContinuousConv2d(3, 5, 3, kernel=contconv.SplineKernel(3, 5, (3, 3), init="kaiming"), memory_limit=2**20),
]


@pytest.mark.parametrize("layer", REPRS, ids=repr)
def test_a_repr_evaluates_to_an_equal_layer(layer):
    names = {**vars(contconv), "Fraction": Fraction, "torch": torch}
    other = eval(repr(layer), names)
    assert type(other) is type(layer)
    assert repr(other) == repr(layer)
    other.load_state_dict(layer.state_dict())
    x = torch.randn(1, layer.in_channels, *(9,) * len(layer.kernel_size))
    assert torch.equal(other(x), layer(x))
    assert torch.equal(other(x, size=5), layer(x, size=5))


@pytest.mark.parametrize("kernel", FIXED_CASES.values(), ids=str)
def test_a_layer_with_a_fixed_kernel_learns_its_bias_only(kernel):
    problem = kernel.fitted(PROBLEM)
    assert [name for name, _ in layer_of(problem, kernel).named_parameters()] == ["bias"]


@pytest.mark.parametrize("axes", LAYERS)
def test_layers_train(axes):
    """A few steps of gradient descent at changing scales lower the loss."""
    layer = LAYERS[axes](2, 2, 3)
    x, optimizer = torch.randn(4, 2, *(6,) * axes), torch.optim.Adam(layer.parameters(), lr=1e-2)
    losses = []
    for step in range(40):
        loss = (layer(x, scale=(0.5, 0.7, 1, 1.3)[step % 4]) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[-4:]) < 0.7 * sum(losses[:4])
