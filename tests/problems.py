"""The catalogue: problems and kernels as data. A test is a product of these with the registries of the package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import product
from math import sqrt

import numpy as np
import oracle
import pytest
import torch
from torch import Tensor, nn

import contconv
from contconv.kernels import FIXED, KERNELS
from contconv.strategies import STRATEGIES

LAYERS = {1: contconv.ContinuousConv1d, 2: contconv.ContinuousConv2d, 3: contconv.ContinuousConv3d}
PADDING_MODES = ("zeros", "reflect", "replicate", "circular")

# How far a result may be from the exact one, as a share of the largest value.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}


@dataclass(frozen=True)
class Problem:
    """A call of a layer. `scale` and `size` are those of the call; `groups=None` is one group per channel."""

    in_size: tuple[int, ...]
    kernel_size: tuple[int, ...]
    scale: float | Fraction | tuple | None = None
    size: tuple[int, ...] | None = None
    channels: tuple[int, int] = (2, 4)
    groups: int | None = 1
    padding_mode: str = "zeros"
    antialias: bool = False
    center: float | Fraction | tuple = 0
    bias: bool = True

    @property
    def call(self) -> dict:
        return {name: value for name in ("scale", "size") if (value := getattr(self, name)) is not None}

    @property
    def options(self) -> dict:
        return {"padding_mode": self.padding_mode, "antialias": self.antialias, "center": self.center}

    def __str__(self) -> str:
        name = f"{numbers(self.in_size)}-K{numbers(self.kernel_size)}"
        name += f"-by{numbers(self.scale)}" if self.scale is not None else ""
        name += f"-to{numbers(self.size)}" if self.size is not None else ""
        name += f"-{self.padding_mode}-groups{self.groups or 'all'}"
        name += "-antialias" if self.antialias else ""
        return name + (f"-center{numbers(self.center)}" if self.center else "")


def numbers(value) -> str:
    return "x".join(map(str, value if isinstance(value, tuple) else (value,))).replace("/", "|")


# Kernels, each with the formula that the oracle has for it


class Waves(nn.Module):
    """A user's own kernel: nothing of ours but the two names, `basis` and `mixing`."""

    def __init__(self, in_channels, out_channels, kernel_size, *, groups=1, device=None, dtype=None):
        super().__init__()
        self.kernel_size = kernel_size
        self.frequency = nn.Parameter(torch.ones(3, len(kernel_size), device=device, dtype=dtype))
        self.mixing = nn.Parameter(torch.ones(3, out_channels, in_channels // groups, device=device, dtype=dtype))

    def basis(self, d: Tensor) -> Tensor:
        return torch.cos(d @ self.frequency.to(d.dtype).T)


def waves(parameters, kernel_size):
    return lambda d, j: np.tensordot(np.cos(parameters["frequency"] @ np.array(d)), parameters["mixing"], 1)


@dataclass(frozen=True)
class KernelCase:
    """How to make a kernel, and `formula(parameters, kernel_size) -> weight(d, j)` of the oracle."""

    name: str
    make: Callable[..., nn.Module]
    formula: Callable
    size: Callable[[int], tuple[int, ...]] | None = None  # of D axes, where the kernel has its own
    normalize: bool = False
    learned: bool = True
    per_tap: bool = False  # has no weights between its taps, so it cannot be stretched

    def __str__(self) -> str:
        return self.name

    def fitted(self, problem: Problem) -> Problem:
        """The problem with the sizes and channels that this kernel can have."""
        if self.size is None:
            return problem if problem.groups else replace(problem, groups=problem.channels[0])
        c = problem.channels[0]
        return replace(problem, kernel_size=self.size(len(problem.in_size)), channels=(c, c), groups=c)


def learned(name: str, make, formula) -> KernelCase:
    return KernelCase(name, make, formula, per_tap="per-tap" in name)


def fixed(name: str, make: Callable[[int], nn.Module], formula, size, normalize=True, per_tap=False) -> KernelCase:
    """`make(D)` and `formula(D)` are of the number of axes alone."""
    return KernelCase(
        name,
        lambda i, o, kernel_size, **_: make(len(kernel_size)),
        lambda _, kernel_size: formula(len(kernel_size)),
        size,
        normalize,
        learned=False,
        per_tap=per_tap,
    )


def rotated_covariance(axes: int) -> np.ndarray:
    """Wider along one diagonal than along the other; a Gaussian with it is not separable."""
    return 0.8 * np.eye(axes) + 0.3 * (1 - np.eye(axes))


TAPS = torch.tensor([[1.0, 2.0, 0.5], [0.5, 3.0, 1.0], [2.0, 1.0, 0.25], [0.125, 1.0, 1.5]], dtype=torch.float64)


def taps(axes: int) -> Tensor:
    """[4], [4, 3] or [4, 3, 2]: no two symmetric."""
    return (TAPS[:, 0], TAPS, TAPS[..., None] * torch.tensor([1.0, 0.5], dtype=torch.float64))[axes - 1]


def gaussian(axes: int) -> nn.Module:
    return FIXED["gaussian"](rotated_covariance(axes).tolist(), kernel_size=(4, 3, 5)[:axes])


FIXED_CASES = {
    "linear": fixed("linear", lambda d: FIXED["linear"](), lambda d: oracle.linear(), lambda d: (2,) * d),
    "cubic": fixed("cubic", lambda d: FIXED["cubic"](a=-0.6), lambda d: oracle.cubic(-0.6), lambda d: (4,) * d),
    "lanczos": fixed("lanczos", lambda d: FIXED["lanczos"](n=3), lambda d: oracle.lanczos(3), lambda d: (6,) * d),
    "gaussian": fixed(
        "gaussian",
        gaussian,
        lambda d: oracle.gaussian(rotated_covariance(d), (4, 3, 5)[:d]),
        lambda d: (4, 3, 5)[:d],
    ),
    "lanczos-not-normalized": fixed(
        "lanczos-not-normalized",
        lambda d: FIXED["lanczos"](n=2, normalize=False),
        lambda d: oracle.lanczos(2),
        lambda d: (4,) * d,
        normalize=False,
    ),
    "table": fixed(
        "table",
        lambda d: contconv.Table(taps(d), channelwise=True),
        lambda d: oracle.table(taps(d).numpy()),
        lambda d: (4, 3, 2)[:d],
        per_tap=True,
    ),
}


def table_of_conv(in_channels, out_channels, kernel_size, *, groups=1, device=None, dtype=None):
    shape = (out_channels, in_channels // groups, *kernel_size)
    return contconv.Table(nn.Parameter(torch.ones(shape, device=device, dtype=dtype)))


LEARNED_CASES = {
    **{name: learned(name, make, oracle.LEARNED.get(name)) for name, make in KERNELS.items()},
    "folded-spline": learned("folded-spline", partial(contconv.SplineKernel, fold=True), oracle.folded_spline),
    "waves": learned("waves", Waves, waves),
    "table-of-conv": KernelCase(
        "table-of-conv", table_of_conv, lambda p, kernel_size: oracle.table(p["taps"]), per_tap=True
    ),
}

KERNEL_CASES = {**LEARNED_CASES, **FIXED_CASES}


# From data to tensors


def layer_of(problem: Problem, kernel: KernelCase, *, strategy=None, dtype=torch.float64, device=None) -> nn.Module:
    """The layer that the problem asks for, with every parameter drawn at random: the same ones each time, and numbers
    that float32 has too, so that a layer can go from one dtype to the other and stay the same."""
    d = len(problem.in_size)
    made = kernel.make(*problem.channels, problem.kernel_size, groups=problem.groups, dtype=dtype, device=device)
    layer = LAYERS[d](
        *problem.channels,
        problem.kernel_size,
        kernel=made,
        groups=problem.groups,
        bias=problem.bias,
        strategy=strategy,
        dtype=dtype,
        device=device,
        **problem.options,
    ).to(dtype)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    return layer


def input_of(problem: Problem, *, batch: int = 2, dtype=torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    shape = (batch, problem.channels[0], *problem.in_size)
    return torch.randn(shape, generator=generator).to(dtype)


def expected(problem: Problem, kernel: KernelCase, layer: nn.Module, x: Tensor, pixels=None) -> np.ndarray:
    """What the oracle says; raises `oracle.Refused` where there is no answer."""
    arrays = {name: p.detach().double().numpy() for name, p in layer.kernel.named_parameters()}
    return oracle.continuous_conv(
        x.double().numpy(),
        kernel.formula(arrays, problem.kernel_size),
        problem.kernel_size,
        layer.bias.detach().double().numpy() if problem.bias else None,
        groups=problem.groups,
        normalize=kernel.normalize,
        pixels=pixels,
        **problem.call,
        **problem.options,
    )


def some_pixels(out_size: tuple[int, ...], count: int) -> list[tuple[int, ...]]:
    """All output pixels, or where there are more than `count` the corners and some from all over."""
    pixels = list(product(*map(range, out_size)))
    if len(pixels) <= count:
        return pixels
    corners = list(product(*({0, n - 1} for n in out_size)))
    return [*corners, *pixels[1 :: len(pixels) // count + 1]]


def at_pixels(y: Tensor, pixels: list[tuple[int, ...]]) -> Tensor:
    """[N, C, *out] -> [N, C, len(pixels)]"""
    return torch.stack([y[(..., *n)] for n in pixels], dim=-1)


def assert_near(got: Tensor, want: np.ndarray | Tensor, tolerance: float | None = None, about: str = "") -> None:
    tolerance = TOLERANCE[got.dtype] if tolerance is None else tolerance
    want = torch.as_tensor(want).double()
    assert got.shape == want.shape, about
    assert got.isfinite().all(), about
    if got.numel():
        error = ((got.double() - want).abs().max() / want.abs().max().clamp_min(1)).item()
        assert error <= tolerance, f"{about} differs by {error:.2e}, more than {tolerance:.0e}"


# The catalogue

SIZES = {1: (7,), 2: (5, 6), 3: (4, 3, 4)}
KERNEL_SIZES = {"odd": (3, 1, 3), "even": (2, 4, 2), "mixed": (2, 3, 1)}

# Scale 1/k has one phase per axis; at 2/3, 3/2 and so on some; at an irrational one every output is its own.
SCALES = {
    "same": {"scale": 1},
    "half": {"scale": 0.5},
    "third": {"scale": Fraction(1, 3)},
    "two-thirds": {"scale": 2 / 3},
    "three-halves": {"scale": 1.5},
    "double": {"scale": 2},
    "irrational": {"scale": sqrt(0.5)},
    "per-axis": {"scale": (Fraction(3, 4), 1.3, 0.5)},
    "stride-per-axis": {"scale": (0.5, 1, Fraction(1, 3))},
    "size": {"size": (4, 7, 3)},
    "smaller-than-scaled": {"scale": 1.25, "size": (4, 3, 2)},
    "larger-than-scaled": {"scale": (0.5, 1, 2), "size": (6, 8, 7)},
    "one-pixel": {"scale": 0.75, "size": (1, 1, 1)},
    "far-outside": {"scale": 1, "size": (15, 13, 6)},
}


def of_axes(values: dict, axes: int) -> dict:
    return {name: value[:axes] if isinstance(value, tuple) else value for name, value in values.items()}


def shapes() -> list[Problem]:
    """Every padding x number of axes x groups x odd and even kernel, at a scale of one phase and at one of several."""
    return [
        Problem(SIZES[d], KERNEL_SIZES[k][:d], **of_axes(SCALES[s], d), groups=g, padding_mode=p, channels=(4, 4))
        for d, p, g, k in product(SIZES, PADDING_MODES, (1, 2, None), KERNEL_SIZES)
        for s in (("stride-per-axis", "half", "same")[d - 1], ("three-halves", "irrational", "two-thirds")[d - 1])
    ]


def scales() -> list[Problem]:
    """Every way to ask for a scale or a size, with every option that moves or stretches the kernel."""
    options = (
        {},
        {"antialias": True, "padding_mode": "replicate"},
        {"center": Fraction(-1, 2), "bias": False},
        {"center": (0.3, -1.75, Fraction(1, 3)), "antialias": True, "padding_mode": "circular"},
    )
    problems = [
        Problem(SIZES[d], KERNEL_SIZES["mixed"][:d], **of_axes(s, d), **of_axes(o, d))
        for d, s in product(SIZES, SCALES.values())
        for o in (options if d < 3 else options[::3])
    ]
    return list(dict.fromkeys(problems))  # on one axis some are the same


def few() -> list[Problem]:
    """One of each kind, for tests that are dear."""
    return [
        Problem((5,), (3,), scale=0.5, padding_mode="replicate"),
        Problem((4, 5), (2, 3), scale=(2 / 3, 1.5), padding_mode="reflect", channels=(2, 2), groups=2),
        Problem((4, 4), (3, 2), scale=1, center=Fraction(1, 4), padding_mode="circular"),
        Problem((5, 4), (3, 3), scale=sqrt(0.5), size=(3, 4), antialias=True),
        Problem((3, 2, 3), (2, 1, 3), scale=Fraction(1, 2)),
    ]


def pairs(problems: list[Problem], kernels: dict[str, KernelCase] = KERNEL_CASES) -> list[tuple[Problem, KernelCase]]:
    """Every problem with every kernel that can be asked it."""
    return [
        (kernel.fitted(problem), kernel)
        for problem, kernel in product(problems, kernels.values())
        if not (kernel.per_tap and problem.antialias)
    ]


STRATEGY_NAMES = list(STRATEGIES)


def run(problem: Problem, kernel: KernelCase, strategy: str, x: Tensor, **made) -> Tensor | None:
    """The output by this strategy; None where it gives its reasons why not, in `explain` and in the error alike."""
    return run_layer(layer_of(problem, kernel, **made), problem, strategy, x)


def run_layer(layer: nn.Module, problem: Problem, strategy: str, x: Tensor) -> Tensor | None:
    """`run` of a layer that is there already."""
    layer.strategy = None
    reasons = contconv.explain(layer, x, **problem.call).reasons[strategy]
    layer.strategy = strategy
    if not reasons:
        return layer(x, **problem.call)
    with pytest.raises(ValueError, match=f"{strategy}.*cannot run") as error:
        layer(x, **problem.call)
    assert all(reason in str(error.value) for reason in reasons)
    return None
