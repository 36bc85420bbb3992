"""In half precision, layers are as exact as a convolution: within twice the error of `nn.Conv2d` against float64, or
within one rounding of that precision where a machine's convolutions round less than twice."""

import copy
from functools import cache
from itertools import product
from math import sqrt

import pytest
import torch
from torch import Tensor, nn

import contconv
from contconv import ContinuousConv1d, ContinuousConv2d, ContinuousConv3d
from contconv.kernels import KERNELS
from contconv.strategies import STRATEGIES

WAYS = {
    "autocast-bfloat16": (torch.bfloat16, True),
    "autocast-float16": (torch.float16, True),
    "bfloat16": (torch.bfloat16, False),
    "float16": (torch.float16, False),
}
SCALES = {"same": 1, "half": 1 / 2, "two-thirds": 2 / 3, "irrational": sqrt(0.5), "up": 1.5}
LEARNED = [(name, strategy) for name, strategy in product(KERNELS, STRATEGIES)]
FIXED = {"cubic": contconv.Cubic, "gaussian": lambda: contconv.Gaussian([[2.0, 1.0], [1.0, 2.0]], 5)}


def results(module: nn.Module, x: Tensor, **call) -> dict[str, Tensor]:
    """The output and the gradients of x and of all parameters (as one), each in float64."""
    x = x.clone().requires_grad_()
    y = module(x, **call)
    y.backward(torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).bfloat16().to(y.dtype))
    gradients = torch.cat([p.grad.double().flatten() for p in module.parameters()])
    return {"y": y.detach().double(), "x": x.grad.double(), "parameters": gradients}


def errors(module: nn.Module, axes: int, way: str, **call) -> dict[str, float]:
    """Relative errors of the low precision against float64, of numbers that both can hold."""
    dtype, autocast = WAYS[way]
    x = torch.randn(2, 8, *(10 if axes < 3 else 5,) * axes, generator=torch.Generator().manual_seed(2)).to(dtype)
    module = copy.deepcopy(module).to(dtype)
    want = results(copy.deepcopy(module).double(), x.double(), **call)
    if autocast:
        with torch.autocast("cpu", dtype):
            got = results(module.float(), x.float(), **call)
    else:
        got = results(module, x, **call)
    return {name: ((got[name] - want[name]).norm() / want[name].norm()).item() for name in want}


@cache
def errors_of_a_convolution(way: str, axes: int) -> dict[str, float]:
    torch.manual_seed(0)
    conv = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[axes]
    return errors(conv(8, 8, 3, padding=1), axes, way)


def assert_as_exact_as_a_convolution(layer, way: str, **call) -> None:
    allowed, rounding = errors_of_a_convolution(way, layer.axes), torch.finfo(WAYS[way][0]).eps / 2
    for name, error in errors(layer, layer.axes, way, **call).items():
        assert error <= max(2 * allowed[name], rounding), f"{name}: {error:.2e}, a convolution {allowed[name]:.2e}"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("name", "strategy"), LEARNED)
def test_learned_kernels(name, strategy, way):
    torch.manual_seed(0)
    layer = ContinuousConv2d(8, 8, 3, kernel=name)
    for scale in SCALES.values():
        if not contconv.explain(layer, (2, 8, 10, 10), scale=scale).reasons[strategy]:
            asked = copy.deepcopy(layer)
            asked.strategy = strategy
            assert_as_exact_as_a_convolution(asked, way, scale=scale)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FIXED)
@pytest.mark.parametrize("antialias", [False, True])
def test_fixed_kernels(name, way, antialias):
    kernel = FIXED[name]()
    layer = ContinuousConv2d(8, 8, kernel.kernel_size, kernel=kernel, groups=8, antialias=antialias)
    for scale in SCALES.values():
        assert_as_exact_as_a_convolution(layer, way, scale=scale)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("conv", [ContinuousConv1d, ContinuousConv3d])
def test_any_number_of_axes(conv, way):
    assert_as_exact_as_a_convolution(conv(8, 8, 3), way, scale=0.7)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_basis_sees_displacements_in_float32(dtype):
    """Displacements of 1/1000 pixel, which eight bits cannot tell apart, make different weights."""
    seen = []

    class Watched(contconv.InternalNet):
        def basis(self, d):
            seen.append(d.dtype)
            return super().basis(d)

    layer = ContinuousConv2d(4, 4, 3, kernel=Watched(4, 4, (3, 3)))
    with torch.autocast("cpu", dtype):
        layer(torch.randn(1, 4, 9, 9), scale=0.7)
    layer.to(dtype)(torch.randn(1, 4, 9, 9, dtype=dtype), scale=0.7)
    assert set(seen) == {torch.float32}
