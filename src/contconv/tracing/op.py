"""A whole continuous convolution as one operation of torch, `contconv::conv`, which tracers do not look into.

Planning is exact arithmetic and caches, which no tracer can follow, and the best strategy depends on sizes that a graph
knows as symbols only. So the operation runs the pipeline of an eager call; its gradients go through it again, for the
tape (the native kernel then does not compute what is not looked at).

    x, bias     as in `continuous_conv`; state: the kernel's parameters and buffers
    scales      the scale of each axis, separated by spaces: a fraction where it is known when the graph is made, else
                "r" (the next two numbers of `ratios` are its numerator and denominator) or "f" (the next of `floats`)
    sizes       the output size of each axis; -1 where it follows from a scale of `floats`
    options     the other arguments of `continuous_conv`
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from contconv.layout import CHANNELS_LAST
from contconv.native.ops import tape_only
from contconv.overrides import check_thread
from contconv.size import exact_scale, scaled_size
from contconv.tracing.owners import kernel_of, state_of

ARGUMENTS = (
    "Tensor x, Tensor? bias, Tensor[] state, str scales, SymInt[]? ratios, Tensor? floats, SymInt[] sizes, int kernel, "
    "int out_channels, ScalarType? autocast, bool channels_last, str padding_mode, bool antialias, str center, "
    "str? strategy, int? memory_limit, int[]? kernel_size"
)

_pipeline: list[Callable[..., Tensor]] = []


def served_by(pipeline: Callable[..., Tensor]) -> None:
    """Say who computes: `functional.computed`, which is in a room below."""
    _pipeline[:] = [pipeline]


class _Call(nn.Module):
    """A call of the pipeline as a module, so that `functional_call` can lend the kernel its state."""

    def __init__(self, kernel: nn.Module) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, x: Tensor, bias: Tensor | None, options: dict[str, Any]) -> Tensor:
        return _pipeline[0](x, self.kernel, bias, **options)


def computed(
    x: Tensor, bias: Tensor | None, state: Sequence[Tensor], scales: str, ratios: Sequence[int] | None,
    floats: Tensor | None, sizes: Sequence[int], number: int, out_channels: int, autocast: torch.dtype | None,
    channels_last: bool, padding_mode: str, antialias: bool, center: str, strategy: str | None,
    memory_limit: int | None, kernel_size: Sequence[int] | None,
) -> Tensor:  # fmt: skip
    """The eager pipeline on what the graph says."""
    check_thread()
    kernel = kernel_of(number)
    exact = read_scales(scales, ratios, floats)
    options = {
        "scale": exact,
        "size": tuple(
            scaled_size(n, s) if size < 0 else size for n, s, size in zip(x.shape[2:], exact, sizes, strict=True)
        ),
        "padding_mode": padding_mode,
        "antialias": antialias,
        "center": tuple(Fraction(c) for c in center.split()),
        "strategy": strategy,
        "memory_limit": memory_limit,
        "kernel_size": None if kernel_size is None else tuple(kernel_size),
    }
    lent = dict(zip((f"kernel.{name}" for name in state_of(kernel)), state, strict=True))
    with _autocast(x, autocast):
        y: Tensor = functional_call(_Call(kernel), lent, (x, bias, options))
    return y.contiguous(memory_format=CHANNELS_LAST[x.ndim] if channels_last else torch.contiguous_format)


def read_scales(scales: str, ratios: Sequence[int] | None, floats: Tensor | None) -> tuple[Fraction, ...]:
    """The exact scale of every axis.

    >>> read_scales("2/3 r f", (3, 4), torch.tensor([0.1], dtype=torch.float64))
    (Fraction(2, 3), Fraction(3, 4), Fraction(1, 10))
    """
    numbers = iter(ratios or ())
    values = iter([] if floats is None else floats.tolist())
    return tuple(
        Fraction(next(numbers), next(numbers))
        if word == "r"
        else exact_scale(next(values) if word == "f" else Fraction(word))
        for word in scales.split()
    )


def _autocast(x: Tensor, dtype: torch.dtype | None) -> AbstractContextManager[object]:
    return nullcontext() if dtype is None else torch.autocast(x.device.type, dtype)


def _forward(x: Tensor, bias: Tensor | None, state: Sequence[Tensor], *rest: Any) -> Tensor:
    with torch.no_grad():
        return computed(x, bias, state, *rest)


def _fake_forward(
    x: Tensor, bias: Tensor | None, state: Sequence[Tensor], scales: str, ratios: Sequence[int] | None,
    floats: Tensor | None, sizes: Sequence[int], number: int, out_channels: int, autocast: torch.dtype | None,
    channels_last: bool, *options: Any,
) -> Tensor:  # fmt: skip
    words = scales.split()
    out = [_unknown_size() if word == "f" and size == -1 else size for word, size in zip(words, sizes, strict=True)]
    return torch.empty(
        [x.shape[0], out_channels or x.shape[1], *out],
        dtype=autocast or x.dtype,
        device=x.device,
        memory_format=CHANNELS_LAST[x.ndim] if channels_last else torch.contiguous_format,
    )


def _unknown_size() -> int:
    """A size that only the call itself will tell. (`new_dynamic_size` of the context would ask for a setting.)"""
    size = torch.library.get_ctx()._shape_env.create_unbacked_symint()
    torch._check(size >= 1)
    return size


def _backward(
    dy: Tensor, need: Sequence[bool], x: Tensor, bias: Tensor | None, state: Sequence[Tensor], *rest: Any
) -> list[Tensor]:
    with torch.enable_grad():
        tensors = [None if tensor is None else tensor.detach() for tensor in (x, bias, *state)]
        wanted = [t.requires_grad_() for t, needed in zip(tensors, need, strict=True) if t is not None and needed]
        copy_of_x, copy_of_bias, *copies = tensors
        assert copy_of_x is not None
        with tape_only():
            y = computed(copy_of_x, copy_of_bias, copies, *rest)  # type: ignore[arg-type]
        found = torch.autograd.grad(y, wanted, dy, allow_unused=True, materialize_grads=True)
    return [_laid_out(gradient, tensor) for tensor, gradient in zip(wanted, found, strict=True)]


def _laid_out(gradient: Tensor, tensor: Tensor) -> Tensor:
    """The gradient in memory as the graph was told: as the tensor is, if that is dense."""
    told = torch.empty_like(tensor, device="meta").stride()
    return gradient if gradient.stride() == told else torch.empty_like(tensor).copy_(gradient)


def _fake_backward(
    dy: Tensor, need: Sequence[bool], x: Tensor, bias: Tensor | None, state: Sequence[Tensor], *rest: Any
) -> list[Tensor]:
    tensors = (x, bias, *state)
    return [torch.empty_like(t) for t, needed in zip(tensors, need, strict=True) if t is not None and needed]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, bias, state, scales, ratios, floats, *ctx.rest = inputs
    ctx.save_for_backward(x, bias, floats, *state)
    ctx.scales, ctx.ratios = scales, ratios


def _gradients(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    x, bias, floats, *state = ctx.saved_tensors
    need_x, need_bias, need_state, *others = ctx.needs_input_grad
    need = [need_x, need_bias, *need_state]
    arguments = (x, bias, state, ctx.scales, ctx.ratios, floats, *ctx.rest)
    found = iter(torch.ops.contconv.conv_backward(dy, need, *arguments))
    dx, dbias, *dstate = (next(found) if needed else None for needed in need)
    return dx, dbias, dstate, *(None for _ in others)


torch.library.define("contconv::conv", f"({ARGUMENTS}) -> Tensor")
torch.library.define("contconv::conv_backward", f"(Tensor dy, bool[] need, {ARGUMENTS}) -> Tensor[]")
torch.library.impl("contconv::conv", "CompositeExplicitAutograd", _forward)
torch.library.impl("contconv::conv_backward", "CompositeExplicitAutograd", _backward)
torch.library.register_fake("contconv::conv", _fake_forward)
torch.library.register_fake("contconv::conv_backward", _fake_backward)
torch.library.register_autograd("contconv::conv", _gradients, setup_context=_save)
