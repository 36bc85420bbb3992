"""What a convolution with a forward of its own does: it is tried out against all ways of padding that are known.

A copy of it, with random weights and in float64, must give the same numbers and gradients as its continuous twin would,
on inputs of many sizes, large and small numbers and zeros among them, in training and in evaluation. It must not change
itself, draw random numbers, have parameters of its own, or take more than its input. What the trials cannot show (a
switch that is off, a range that they do not reach) stays unseen.
"""

import copy
import inspect
import itertools
import math
import warnings
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils import parametrize, remove_weight_norm

from contconv.conversion.making import base_of, conv_twin, has_own_forward, losses, weight_norms
from contconv.conversion.placing import Placing, as_tensorflow, by_layer, by_options, by_zeros, padding_layers

MOST_SPLITS = 100  # of an unknown padding into before and after


class NotUnderstoodError(Exception):
    """Why a forward is none that a continuous layer could have, as the end of a sentence."""


def found_placing(module: nn.Module) -> Placing | str:
    """Where a convolution's windows lie, or why that is unknown; "" for what is none, or has other reasons."""
    if not isinstance(module, _ConvNd) or isinstance(module, LazyModuleMixin) or base_of(module) is None:
        return ""
    if not has_own_forward(module):
        return by_options(module)
    if losses(module) or not module.weight.is_floating_point():
        return ""
    try:
        with torch.device("cpu"), torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.enable_grad():
            return _tried(module)
    except NotUnderstoodError as reason:
        return str(reason)


def _tried(conv: _ConvNd) -> Placing:
    more = [name for name in _arguments(conv) if not (name == "output_size" and isinstance(conv, _ConvTransposeNd))]
    if more:
        raise NotUnderstoodError(f"which takes more than its input ({', '.join(more)})")
    own = _own_tensors(conv)
    if own:
        raise NotUnderstoodError(f"and with parameters or buffers of its own ({', '.join(own)})")
    probe = _probe(conv)
    for placing in _candidates(probe):
        if _agrees(probe, placing):
            return placing
    raise NotUnderstoodError("which was tried out: it is no convolution with its weights, padded in a way known here")


def _arguments(conv: _ConvNd) -> list[str]:
    """What a forward takes besides its input."""
    _, _, *more = inspect.signature(type(conv).forward).parameters  # self and x
    return more


def _own_tensors(conv: _ConvNd) -> list[str]:
    """Parameters and buffers which the twin would not have: of an adapter, a mask, a normalisation."""
    usual = {"weight", "bias", *(f"{hook.name}_{part}" for hook in weight_norms(conv) for part in "gv")}
    names = (name for name, _ in (*conv.named_parameters(), *conv.named_buffers()))
    return [name for name in names if name not in usual and "parametrizations." not in name]


def _probe(conv: _ConvNd) -> _ConvNd:
    """A copy in float64, on the CPU and with random weights, so that no padding passes for another by chance."""
    results = [value for value in vars(conv).values() if isinstance(value, Tensor) and not value.is_leaf]
    try:
        probe = copy.deepcopy(conv, {id(result): result.detach().clone() for result in results})
    except Exception as error:
        raise NotUnderstoodError(f"which cannot be tried out: copying it raises {_told(error)}") from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # weight_norm is deprecated
        for hook in weight_norms(probe):
            remove_weight_norm(probe, hook.name)
    if parametrize.is_parametrized(probe):  # by hand, for the copy shares its class with the original
        probe.__class__ = parametrize.type_before_parametrizations(probe)
        del probe._modules["parametrizations"]
    randomness = torch.Generator().manual_seed(0)
    for name in ("weight", "bias"):
        there = getattr(conv, name)
        if there is not None:
            drawn = torch.randn(there.shape, generator=randomness, dtype=torch.float64)
            probe._parameters[name] = nn.Parameter(drawn)
    return probe


def _candidates(probe: _ConvNd) -> Iterator[Placing]:
    """The ways in which it may be padded; options that are no convolution's exclude those that need them."""
    makers = [
        lambda: by_options(probe),
        *(lambda name=name, layer=layer: by_layer(probe, name, layer) for name, layer in padding_layers(probe).items()),
    ]
    if not isinstance(probe, _ConvTransposeNd):
        makers.append(lambda: as_tensorflow(probe))
    for make in makers:
        try:
            yield make()
        except (TypeError, ValueError):
            continue
    if not isinstance(probe, _ConvTransposeNd):
        yield from _splits(probe)


def _splits(probe: _ConvNd) -> Iterator[Placing]:
    """All ways to put before and after each axis what its output is larger by."""
    totals = [_padded(probe, axis) for axis in range(len(probe.kernel_size))]
    if min(totals) >= 0 and math.prod(total + 1 for total in totals) <= MOST_SPLITS:
        for lefts in itertools.product(*(range(total + 1) for total in totals)):
            yield by_zeros(probe, [(left, total - left) for left, total in zip(lefts, totals, strict=True)])


def _padded(probe: _ConvNd, axis: int) -> int:
    """How many pixels an axis is padded by, from the input size at which one more window fits in."""
    stride, reach = probe.stride[axis], _reaches(probe)[axis]
    sizes = [_smallest(probe)] * len(probe.kernel_size)
    before = None
    for size in range(sizes[axis], sizes[axis] + stride + 1):
        sizes[axis] = size
        out = _ran(probe, torch.zeros(1, probe.in_channels, *sizes, dtype=torch.float64)).shape[2 + axis]
        if before is not None and out > before:
            return stride * (out - 1) + reach + 1 - size
        before = out
    return -1


def _agrees(probe: _ConvNd, placing: Placing) -> bool:
    """Whether the twin with these windows computes what the probe does."""
    twin = conv_twin(probe, "spline", placing)
    for number, size in enumerate(_trial_sizes(probe)):
        x = _trial_input(probe, size)
        for training in (True, False):
            expected, found = _ran(probe.train(training), x), twin(x)
            if found.shape != expected.shape or not _near(found, expected):
                return False
        if number == 0:
            _check_gradients(probe, twin, x)
    _check_dtype(probe, twin, x)
    return True


def _ran(probe: _ConvNd, x: Tensor) -> Tensor:
    """The probe's output, if nothing else comes of it."""
    kept, weights = _state(probe), [parameter.detach().clone() for parameter in probe.parameters()]
    randomness = torch.get_rng_state()
    try:
        y = probe(x)
    except Exception as error:
        raise NotUnderstoodError(f"which was tried out and raised {_told(error)}") from error
    if not isinstance(y, Tensor):
        raise NotUnderstoodError(f"which returns no tensor but {type(y).__name__}")
    if not torch.equal(torch.get_rng_state(), randomness):
        raise NotUnderstoodError("which draws random numbers")
    if _state(probe) != kept or not all(map(torch.equal, probe.parameters(), weights)):
        raise NotUnderstoodError("which changes the layer when it runs")
    return y


def _state(probe: _ConvNd) -> list[tuple[str, int]]:
    """Which objects a module has as attributes, parameters and layers."""
    attributes = [(name, id(value)) for name, value in vars(probe).items() if name != "training"]
    return attributes + [(name, id(value)) for name, value in (*probe.named_parameters(), *probe.named_modules())]


def _check_gradients(probe: _ConvNd, twin: nn.Module, x: Tensor) -> None:
    """The gradients' norms must agree: a transposed convolution's weight lies in another order."""

    def norms(module: nn.Module, weight: Tensor) -> list[float]:
        inputs = [x.clone().requires_grad_(), weight, *([] if probe.bias is None else [module.get_parameter("bias")])]
        y = module(inputs[0])
        weights = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view_as(y)
        found = torch.autograd.grad((y * weights).sum(), inputs, allow_unused=True) if y.requires_grad else []
        return [0.0 if gradient is None else gradient.norm().item() for gradient in found]

    found, expected = norms(twin, twin.get_parameter("kernel.weight")), norms(probe, probe.weight)
    if len(found) != len(expected) or not all(map(partial(math.isclose, rel_tol=1e-9), found, expected)):
        raise NotUnderstoodError("which was tried out: its gradients are not those of a convolution")


def _check_dtype(probe: _ConvNd, twin: nn.Module, x: Tensor) -> None:
    """A forward that takes inputs of another type than its weights must stay, for the twin takes none."""
    try:
        probe(x.float())
    except Exception:
        return
    try:
        twin(x.float())
    except Exception as error:
        raise NotUnderstoodError("which takes inputs of another type than its weights") from error


def _near(found: Tensor, expected: Tensor) -> bool:
    """Whether each image agrees up to rounding, by its own largest number."""
    largest = expected.flatten(1).abs().amax(1)
    return bool(((found - expected).flatten(1).abs().amax(1) <= 1e-9 * largest).all())


def _trial_input(probe: _ConvNd, size: tuple[int, ...]) -> Tensor:
    """[3, Cin, *size]: numbers of order 1, of order 1000, and of order 1 but for a corner of zeros."""
    randomness = torch.Generator().manual_seed(sum(size))
    x = torch.randn(3, probe.in_channels, *size, generator=randomness, dtype=torch.float64)
    x[1] *= 1000
    x[2].view(-1, *size)[(slice(None), *(slice(n // 2) for n in size))] = 0
    return x


def _trial_sizes(probe: _ConvNd) -> list[tuple[int, ...]]:
    """Input sizes in which a stride leaves many remainders, on each axis another at a time."""
    stride, smallest = max(probe.stride), _smallest(probe)
    steps = sorted({0, 1, 2, 3, 4, stride - 1, stride, stride + 1, 2 * stride})
    axes = range(len(probe.kernel_size))
    return [tuple(smallest + steps[(number + 2 * axis) % len(steps)] for axis in axes) for number in range(len(steps))]


def _smallest(probe: _ConvNd) -> int:
    """A size that every window, and every reflection, fits in."""
    pads = [int(pixels) for layer in padding_layers(probe).values() for pixels in layer.padding]  # type: ignore[union-attr]
    return max(*_reaches(probe), *pads, 0) + 2


def _reaches(probe: _ConvNd) -> list[int]:
    """From the first tap of a window to its last, along each axis."""
    return [dilation * (taps - 1) for taps, dilation in zip(probe.kernel_size, probe.dilation, strict=True)]


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
