"""A call that makes no sense raises, with the argument's name: ValueError for values, TypeError for types."""

from math import inf, nan

import pytest
import torch
from problems import STRATEGY_NAMES
from torch import nn

import contconv
from contconv.kernels import FIXED, KERNELS

LAYER = contconv.ContinuousConv2d(4, 6, 3, groups=2)
KERNEL = contconv.SplineKernel(4, 6, (3, 3))
X = torch.zeros(1, 4, 5, 6)


class NoBasis(nn.Module):
    mixing = torch.zeros(1, 4, 4)


class WrongBasis(nn.Module):
    """Two functions, where its mixing is of three."""

    kernel_size = (3, 3)

    def __init__(self):
        super().__init__()
        self.mixing = nn.Parameter(torch.zeros(3, 6, 4))

    def basis(self, d):
        return d


def raises(error, match, call, **arguments):
    with pytest.raises(error, match=match):
        call(**arguments)


# Of a call

BAD_SCALES = [
    (0, ValueError),
    (0.0, ValueError),
    (-1, ValueError),
    (-0.5, ValueError),
    (nan, ValueError),
    (inf, ValueError),
    (-inf, ValueError),
    ((1, 0), ValueError),
    ((1, 1, 1), ValueError),
    ((1,), ValueError),
    ((), ValueError),
    ("2", TypeError),
    (2 + 1j, TypeError),
    (True, TypeError),
    ((1, None), TypeError),
    (torch.tensor(2.0), TypeError),
]
BAD_SIZES = [
    (0, ValueError),
    (-3, ValueError),
    ((4, 0), ValueError),
    ((4, 4, 4), ValueError),
    ((4,), ValueError),
    (4.0, TypeError),
    ("4", TypeError),
    (True, TypeError),
    ((4, None), TypeError),
    (torch.tensor(4), TypeError),
]


@pytest.mark.parametrize(("scale", "error"), BAD_SCALES, ids=str)
def test_scale_must_be_positive_finite_and_one_or_one_per_axis(scale, error):
    raises(error, "scale", lambda: LAYER(X, scale=scale))
    raises(error, "scale", contconv.continuous_conv, x=X, kernel=KERNEL, scale=scale)
    raises(error, "scale", contconv.ContinuousConv2d, in_channels=4, out_channels=6, kernel_size=3, scale=scale)
    raises(error, "scale", contconv.explain, layer=LAYER, x_or_shape=X, scale=scale)
    raises(error, "scale", lambda: contconv.projected_grid((5, 6), scale=scale))


@pytest.mark.parametrize(("size", "error"), BAD_SIZES, ids=str)
def test_size_must_be_whole_pixels_and_one_or_one_per_axis(size, error):
    raises(error, "size", lambda: LAYER(X, size=size))
    raises(error, "size", lambda: LAYER(X, scale=2, size=size))
    raises(error, "size", contconv.continuous_conv, x=X, kernel=KERNEL, size=size)
    raises(error, "size", contconv.explain, layer=LAYER, x_or_shape=X, size=size)
    raises(error, "size", lambda: contconv.projected_grid((5, 6), size=size))


@pytest.mark.parametrize(
    ("in_size", "error"), [(0, ValueError), ((5, -1), ValueError), (2.5, TypeError), ("5", TypeError)]
)
def test_in_size_must_be_whole_pixels(in_size, error):
    raises(error, "in_size", lambda: contconv.projected_grid(in_size, scale=1))


def test_the_function_needs_a_scale_or_a_size():
    raises(ValueError, "scale.*size", contconv.continuous_conv, x=X, kernel=KERNEL)
    raises(ValueError, "scale.*size", lambda: contconv.projected_grid(5))


@pytest.mark.parametrize(
    "shape", [(4, 5, 6), (5, 6), (1, 4, 5), (1, 4, 5, 6, 7), (1, 3, 5, 6), (1, 8, 5, 6), (1, 4, 0, 6)]
)
def test_x_must_have_the_layers_axes_and_channels_and_a_pixel(shape):
    raises(ValueError, "x ", lambda: LAYER(torch.zeros(shape)))
    raises(ValueError, "x ", contconv.explain, layer=LAYER, x_or_shape=shape)


@pytest.mark.parametrize(
    "shape", [(4,), (4, 5), (1, 4, 5, 5, 5, 5), (1, 3, 5, 6), (1, 16, 5, 6), (1, 0, 5, 6), (1, 4, 5, 0)]
)
def test_x_must_fit_the_kernel_of_the_function(shape):
    raises(ValueError, "x ", contconv.continuous_conv, x=torch.zeros(shape), kernel=KERNEL, scale=1)


def test_a_kernel_of_two_axes_needs_two_axes():
    raises(ValueError, "kernel", contconv.continuous_conv, x=torch.zeros(1, 4, 9), kernel=KERNEL, scale=1)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.complex64], ids=str)
def test_x_must_be_real_numbers(dtype):
    raises(TypeError, "x ", lambda: LAYER(torch.zeros(1, 4, 5, 6, dtype=dtype)))
    raises(TypeError, "x ", lambda: contconv.continuous_conv(torch.zeros(1, 4, 5, 6, dtype=dtype), KERNEL, scale=1))
    raises(
        TypeError,
        "x ",
        lambda: contconv.continuous_conv(torch.zeros(1, 4, 5, 6, dtype=dtype), contconv.Cubic(), scale=1),
    )


@pytest.mark.parametrize("x", [None, [[1.0]], 3.0, "x"], ids=str)
def test_x_must_be_a_tensor(x):
    raises(TypeError, "x ", lambda: LAYER(x))
    raises(TypeError, "x ", lambda: contconv.continuous_conv(x, KERNEL, scale=1))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_x_and_the_layer_must_have_one_dtype(dtype):
    raises(TypeError, r"x is torch\.", lambda: LAYER(X.to(dtype)))


def test_the_bias_must_have_the_dtype_of_x():
    raises(TypeError, "bias", lambda: contconv.continuous_conv(X, KERNEL, torch.zeros(6).double(), scale=1))
    raises(TypeError, "bias", lambda: contconv.continuous_conv(X, contconv.Cubic(), torch.zeros(4).double(), scale=1))


def test_x_and_the_layer_must_be_on_one_device():
    raises(ValueError, "x is on meta", lambda: LAYER(X.to("meta")))
    raises(
        ValueError,
        "bias is on meta",
        lambda: contconv.continuous_conv(X, KERNEL, torch.zeros(6, device="meta"), scale=1),
    )


@pytest.mark.parametrize("shape", [(), (1,), (4,), (6, 1)])
def test_the_bias_must_be_one_number_per_output_channel(shape):
    raises(ValueError, "bias", lambda: contconv.continuous_conv(X, KERNEL, torch.zeros(shape), scale=1))


@pytest.mark.parametrize("bias", [True, 1.0, [0.0] * 6], ids=str)
def test_the_bias_must_be_a_tensor(bias):
    raises(TypeError, "bias", lambda: contconv.continuous_conv(X, KERNEL, bias, scale=1))


@pytest.mark.parametrize("in_size", [(1, 6), (2, 6), (5, 2)])
def test_reflect_padding_must_be_narrower_than_the_input(in_size):
    layer = contconv.ContinuousConv2d(4, 6, 6, padding_mode="reflect")
    raises(ValueError, "padding_mode='reflect'", lambda: layer(torch.zeros(1, 4, *in_size)))


def test_reflect_padding_can_reach_the_far_border_and_no_further():
    layer = contconv.ContinuousConv1d(1, 1, 3, padding_mode="reflect")
    assert layer(torch.zeros(1, 1, 2), scale=1).shape == (1, 1, 2)
    raises(ValueError, "padding_mode='reflect'", lambda: layer(torch.zeros(1, 1, 2), scale=1, size=5))


@pytest.mark.parametrize("mode", ["same", "constant", "", None, 0, ["zeros"]], ids=str)
def test_padding_mode_must_be_one_of_four(mode):
    match = "padding_mode.*zeros.*reflect.*replicate.*circular"
    raises((ValueError, TypeError), match, lambda: contconv.ContinuousConv2d(4, 6, 3, padding_mode=mode))
    raises((ValueError, TypeError), match, lambda: contconv.continuous_conv(X, KERNEL, scale=1, padding_mode=mode))


@pytest.mark.parametrize(
    ("center", "error"),
    [(nan, ValueError), (inf, ValueError), ((0, 0, 0), ValueError), ("0", TypeError), (None, TypeError)],
    ids=str,
)
def test_center_must_be_finite_and_one_or_one_per_axis(center, error):
    raises(error, "center", lambda: contconv.ContinuousConv2d(4, 6, 3, center=center))
    raises(error, "center", lambda: contconv.continuous_conv(X, KERNEL, scale=1, center=center))


@pytest.mark.parametrize("strategy", ["fast", "", 3, ["conv"]], ids=str)
def test_strategy_must_be_one_that_there_is(strategy):
    match = "strategy.*" + ".*".join(STRATEGY_NAMES)
    raises((ValueError, TypeError), match, lambda: contconv.ContinuousConv2d(4, 6, 3, strategy=strategy))
    raises((ValueError, TypeError), match, lambda: contconv.continuous_conv(X, KERNEL, scale=1, strategy=strategy))


@pytest.mark.parametrize(
    ("limit", "error"), [(0, ValueError), (-1, ValueError), (1e6, TypeError), ("1 GiB", TypeError)], ids=str
)
def test_memory_limit_must_be_bytes(limit, error):
    raises(error, "memory_limit", lambda: contconv.ContinuousConv2d(4, 6, 3, memory_limit=limit))
    raises(error, "memory_limit", lambda: contconv.continuous_conv(X, KERNEL, scale=1, memory_limit=limit))


def test_memory_limit_must_be_enough_for_one_row():
    layer = contconv.ContinuousConv2d(4, 6, 3, memory_limit=1)
    raises(ValueError, "memory_limit=1 is less than", lambda: layer(X, scale=0.7))


def test_a_strategy_asked_for_by_name_never_becomes_another():
    layer = contconv.ContinuousConv2d(4, 6, 3, strategy="conv")
    raises(ValueError, r"conv.*cannot run.*phases", lambda: layer(X, scale=1.5))


@pytest.mark.parametrize(
    "kernel", ["internal-per-tap", contconv.Table(torch.zeros(6, 4, 3, 3))], ids=["internal", "table"]
)
def test_a_kernel_of_taps_cannot_be_stretched(kernel):
    raises(ValueError, "antialias", lambda: contconv.ContinuousConv2d(4, 6, 3, kernel=kernel, antialias=True))
    module = contconv.ContinuousConv2d(4, 6, 3, kernel=kernel).kernel
    raises(ValueError, "antialias", lambda: contconv.continuous_conv(X, module, scale=0.5, antialias=True))


# Of a layer


@pytest.mark.parametrize("value", [0, -1, 1.5, "4", None, True], ids=str)
@pytest.mark.parametrize("name", ["in_channels", "out_channels", "groups", "kernel_size"])
def test_channels_groups_and_kernel_size_are_positive_ints(name, value):
    error = ValueError if value in (0, -1) and value is not True else TypeError
    arguments = {"in_channels": 4, "out_channels": 6, "kernel_size": 3, "groups": 1, name: value}
    raises(error, name, contconv.ContinuousConv2d, **arguments)


@pytest.mark.parametrize(("channels", "groups", "name"), [((4, 6), 3, "in_channels"), ((6, 4), 3, "out_channels")])
def test_groups_must_divide_the_channels(channels, groups, name):
    raises(ValueError, f"{name}.*groups", lambda: contconv.ContinuousConv2d(*channels, 3, groups=groups))
    for make in KERNELS.values():
        raises(ValueError, f"{name}.*groups", lambda make=make: make(*channels, (3, 3), groups=groups))


@pytest.mark.parametrize("kernel_size", [(3,), (3, 3, 3), (3, 0), ()], ids=str)
def test_kernel_size_must_be_one_or_one_per_axis(kernel_size):
    raises(ValueError, "kernel_size", lambda: contconv.ContinuousConv2d(4, 6, kernel_size))


@pytest.mark.parametrize("name", ["cubic", "Internal", ""])
def test_kernel_must_be_a_name_that_there_is(name):
    raises(ValueError, "kernel.*" + ".*".join(KERNELS), lambda: contconv.ContinuousConv2d(4, 6, 3, kernel=name))


@pytest.mark.parametrize("kernel", [3, nn.Linear(2, 2), NoBasis(), contconv.Cubic, torch.zeros(6, 4, 3, 3)], ids=str)
def test_kernel_must_have_a_basis_and_a_mixing(kernel):
    raises(TypeError, "kernel.*basis.*mixing", lambda: contconv.ContinuousConv2d(4, 6, 3, kernel=kernel))
    raises(TypeError, "kernel.*basis.*mixing", lambda: contconv.continuous_conv(X, kernel, scale=1))


def test_a_basis_must_have_as_many_functions_as_the_mixing():
    raises(ValueError, "kernel.*basis", lambda: contconv.continuous_conv(X, WrongBasis(), scale=1))


@pytest.mark.parametrize("batch", [1, 2])
def test_an_internal_net_must_stay_whole(batch):
    call = {"x": torch.zeros(batch, 3, 8, 8), "scale": (0.6789, 0.7123)}
    layer = contconv.ContinuousConv2d(3, 5, 3)
    layer.kernel.mixing = nn.Parameter(torch.zeros(9, 5, 3))
    raises(ValueError, r"kernel's basis has 17 functions, its mixing 9; they must agree", layer, **call)
    layer = contconv.ContinuousConv2d(3, 5, 3)
    layer.kernel.layers[0] = nn.Linear(2, 16, bias=False)
    raises(ValueError, r"layers\[0\] of the kernel must have a bias", layer, **call)


def test_the_kernel_must_fit_the_layer():
    for kernel in (contconv.SplineKernel(4, 5, (3, 3)), contconv.SplineKernel(4, 6, (3, 3), groups=2)):
        raises(ValueError, "kernel", lambda kernel=kernel: contconv.ContinuousConv2d(4, 6, 3, kernel=kernel))
    raises(ValueError, "kernel_size", lambda: contconv.ContinuousConv2d(4, 6, 4, kernel=KERNEL))
    raises(ValueError, "kernel", lambda: contconv.ContinuousConv1d(4, 6, 3, kernel=KERNEL))


@pytest.mark.parametrize(("out_channels", "groups"), [(4, 1), (8, 4), (4, 2)])
def test_a_fixed_kernel_needs_a_layer_that_keeps_channels_apart(out_channels, groups):
    raises(
        ValueError,
        "channel",
        lambda: contconv.ContinuousConv2d(4, out_channels, 2, kernel=contconv.Linear(), groups=groups),
    )


def test_a_fixed_kernel_brings_its_own_size():
    raises(ValueError, "kernel_size", lambda: contconv.ContinuousConv2d(4, 4, 3, kernel=contconv.Cubic(), groups=4))


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"stride": 2}, "ContinuousConv2d has no stride: give scale=1/2 for a stride of 2"),
        ({"padding": 1}, "ContinuousConv2d has no padding: none is needed"),
        ({"colour": 1}, "ContinuousConv2d has no colour"),
        ({"bias": torch.zeros(2)}, "bias must be True or False, got Tensor"),
        ({"antialias": "no"}, "antialias must be True or False, got str"),
    ],
    ids=str,
)
def test_options_of_other_layers_are_refused_with_what_to_give_instead(option, words):
    with pytest.raises(TypeError, match=words):
        contconv.ContinuousConv2d(3, 2, 3, **option)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("by", ["layer", "function"])
def test_torch_jit_trace_is_told_what_to_use_instead(by):
    layer = contconv.ContinuousConv2d(3, 4, 3, scale=2 / 3)
    function = layer if by == "layer" else lambda x: contconv.continuous_conv(x, layer.kernel, scale=2 / 3)
    with pytest.raises(NotImplementedError, match="cannot follow continuous layers: use"):
        torch.jit.trace(function, torch.ones(1, 3, 6, 6))


def test_the_dtype_of_a_layer_must_be_of_floating_point():
    with pytest.raises(ValueError, match=r"dtype must be a floating-point type, got torch.int32"):
        contconv.ContinuousConv2d(3, 2, 3, dtype=torch.int32)


def test_what_is_explained_must_be_a_layer_and_a_shape():
    with pytest.raises(TypeError, match="layer must be a ContinuousConv1d, 2d or 3d, got Conv2d"):
        contconv.explain(torch.nn.Conv2d(3, 2, 3), (1, 3, 8, 8))
    with pytest.raises(TypeError, match="x_or_shape must be a tensor or its shape"):
        contconv.explain(contconv.ContinuousConv2d(3, 2, 3), 64)


# Of a kernel


@pytest.mark.parametrize("name", KERNELS)
def test_init_must_be_one_that_there_is(name):
    raises(ValueError, "init.*default.*xavier.*kaiming", lambda: KERNELS[name](4, 6, (3, 3), init="orthogonal"))


@pytest.mark.parametrize("hidden", [(), (16, 0), (-1,)], ids=str)
def test_hidden_layers_must_have_a_width(hidden):
    raises(ValueError, "hidden", lambda: contconv.InternalNet(4, 6, (3, 3), hidden=hidden))


@pytest.mark.parametrize(
    ("name", "arguments", "error", "match"),
    [
        ("cubic", {"a": nan}, ValueError, "a must"),
        ("cubic", {"a": "b"}, TypeError, "a must"),
        ("lanczos", {"n": 0}, ValueError, "n must"),
        ("lanczos", {"n": 2.5}, TypeError, "n must"),
        ("gaussian", {"covariance": 0.0, "kernel_size": 4}, ValueError, "covariance"),
        ("gaussian", {"covariance": -1.0, "kernel_size": 4}, ValueError, "covariance"),
        ("gaussian", {"covariance": nan, "kernel_size": 4}, ValueError, "covariance"),
        ("gaussian", {"covariance": (1.0, -1.0), "kernel_size": 4}, ValueError, "covariance"),
        ("gaussian", {"covariance": [[1.0, 2.0], [2.0, 1.0]], "kernel_size": 4}, ValueError, "covariance"),
        ("gaussian", {"covariance": [[1.0, 0.5], [0.0, 1.0]], "kernel_size": 4}, ValueError, "covariance"),
        ("gaussian", {"covariance": [[1.0, 0.5]], "kernel_size": 4}, ValueError, "covariance"),
        ("gaussian", {"covariance": "wide", "kernel_size": 4}, TypeError, "covariance"),
        ("gaussian", {"covariance": 1.0, "kernel_size": 0}, ValueError, "kernel_size"),
        ("gaussian", {"covariance": 1.0, "kernel_size": 4.0}, TypeError, "kernel_size"),
        ("gaussian", {"covariance": (1.0, 1.0), "kernel_size": (4, 4, 4)}, ValueError, "kernel_size"),
    ],
    ids=str,
)
def test_a_fixed_kernel_checks_what_it_is_given(name, arguments, error, match):
    raises(error, match, FIXED[name], **arguments)


@pytest.mark.parametrize(
    ("taps", "options", "error", "match"),
    [
        (torch.tensor(1.0), {}, ValueError, "taps"),
        (torch.zeros(2, 2, 2, 2, 2, 2), {}, ValueError, "taps"),
        (torch.zeros(0), {}, ValueError, "taps"),
        (torch.tensor([1, 2, 1]), {}, TypeError, "taps"),
        ([1.0, 2.0, 1.0], {}, TypeError, "taps"),
        (torch.tensor([1.0, -1.0]), {}, ValueError, "taps"),
        (torch.zeros(2, 2, 3), {"normalize": True}, ValueError, "normalize"),
    ],
    ids=str,
)
def test_a_table_checks_its_taps(taps, options, error, match):
    raises(error, match, lambda: contconv.Table(taps, **options))


# Of scales


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"n": 0}, ValueError),
        ({"n": 2.0}, TypeError),
        ({"target": 0}, ValueError),
        ({"target": nan}, ValueError),
        ({"target": "1/4"}, TypeError),
        ({"axes": 0}, ValueError),
        ({"std": -0.1}, ValueError),
        ({"std": nan}, ValueError),
        ({"std": inf}, ValueError),
        ({"max_denominator": 0}, ValueError),
    ],
    ids=str,
)
def test_sample_scales_checks_what_it_is_given(arguments, error):
    (name,) = arguments
    raises(error, name, lambda: contconv.sample_scales(**{"n": 3, "target": 0.25, **arguments}))


@pytest.mark.parametrize(
    ("in_size", "scales", "error", "match"),
    [
        ((32, 32), [], ValueError, "scales"),
        ((32, 32), [(0.5, 0.5), (0.5,)], ValueError, "scales"),
        ((32, 32), [0.5, 0.5], TypeError, "scales"),
        ((32, 32), [(0.5, 0.0)], ValueError, "scale"),
        ((32, 32, 32), [(0.5, 0.5)], ValueError, "in_size"),
        ((32, 0), [(0.5, 0.5)], ValueError, "in_size"),
    ],
    ids=str,
)
def test_output_sizes_checks_what_it_is_given(in_size, scales, error, match):
    raises(error, match, lambda: contconv.output_sizes(in_size, scales))
