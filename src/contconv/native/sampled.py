"""Convolutions whose basis is a small net that the native kernel samples itself.

Where hardly two output pixels share a phase, as in one image at an arbitrary scale, the basis is larger than the image,
and its gradient as well: algorithms `FOR_PIXELS` make both for some pixels at a time, in cache, and store neither. With
filters, "made-filters" and "filters" take one call for what are several otherwise.
"""

import ctypes
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from contconv.native import library, nets, ops
from contconv.native.counting import count, counted
from contconv.native.flops import backward_flops, forward_flops
from contconv.native.gradients import over_pixels
from contconv.precision import full_precision
from contconv.transforms import refuse_tangent

FOR_PIXELS = ("factored-output", "few-outputs")
ALGORITHMS = ("filters", "made-filters", *FOR_PIXELS)


@dataclass(frozen=True)
class Sampling:
    """Where the net is sampled, and for whom."""

    tables: Sequence[Tensor]
    """Of the three axes, as `ops.axis_table` makes them."""
    offsets: Sequence[Tensor]
    """[phases, K] float32: the displacements of the taps, of the three axes."""
    axes: int
    """The net looks at so many of them, the last ones."""
    slope: float
    groups: int
    algorithm: str
    """One of `ALGORITHMS`."""

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise ValueError(f"algorithm must be one of {', '.join(ALGORITHMS)}, got {self.algorithm!r}")
        for table, offset in zip(self.tables, self.offsets, strict=True):
            if offset.dtype != torch.float32 or not offset.is_contiguous() or offset.shape[1] != table.shape[1] - 1:
                raise ValueError(f"offsets must be contiguous float32 [phases, {table.shape[1] - 1}], got {offset}")

    @property
    def code(self) -> int:
        """Of the algorithm."""
        return ops.ALGORITHMS[self.algorithm]

    def basis_shape(self, functions: int) -> torch.Size:
        """[P0, P1, P2, T, R]."""
        return torch.Size((*self.places, functions))

    @cached_property
    def places(self) -> tuple[int, ...]:
        """[P0, P1, P2, T]."""
        phases, taps = zip(*(offset.shape for offset in self.offsets), strict=True)
        return *phases, math.prod(taps)

    def points(self) -> Tensor:
        """[P0 * P1 * P2 * T, axes]."""
        placed = []
        for number in range(3 - self.axes, 3):
            shape = [1] * 6
            shape[number], shape[3 + number] = self.offsets[number].shape
            placed.append(self.offsets[number].reshape(shape))
        whole = [offset.shape[0] for offset in self.offsets] + [offset.shape[1] for offset in self.offsets]
        return torch.stack([along.expand(whole) for along in placed], dim=-1).reshape(-1, self.axes)


def serves(x: Tensor, parameters: Sequence[Tensor], mixing: Tensor, bias: Tensor | None, slope: float) -> bool:
    """Whether `convolve` can: plain tensors and plain autograd."""
    tensors = (x, mixing, *parameters) if bias is None else (x, mixing, bias, *parameters)
    return nets.fits(parameters, slope) and nets.serves(*tensors)


def convolve(
    x: Tensor, parameters: Sequence[Tensor], mixing: Tensor, bias: Tensor | None, sampling: Sampling
) -> Tensor:
    """`ops.convolve`, the basis being the units that `nets.units` makes; differentiable any number of times.

    x: [N, D, H, W, Cin]; parameters: weight and bias of each layer in turn; mixing: [R, Cout, Cin / groups].
    """
    return _Sampled.apply(sampling, x, mixing, bias, *parameters)


class _Sampled(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, sampling: Sampling, x: Tensor, mixing: Tensor, bias: Tensor | None, *parameters: Tensor
    ) -> Tensor:
        ctx.sampling = sampling
        ctx.save_for_backward(x, mixing, *parameters)
        call = _Call(sampling, x, mixing, parameters)
        bias = None if bias is None else bias.contiguous()
        y = x.new_empty(x.shape[0], *(table.shape[0] for table in sampling.tables), mixing.shape[-2])
        if ops.writes_output():
            with _named("contconv::forward"):
                library.forward(call.problem, call.inputs(bias=bias), y.data_ptr(), sampling.code)
        if counted():
            t0, t1, t2 = (table.shape for table in sampling.tables)
            flops = forward_flops(x.shape, t0, t1, t2, call.basis, mixing.shape, None, sampling.groups, sampling.code)
            count(flops // 2 + call.net_macs)
        return y

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        x, mixing, *parameters = ctx.saved_tensors
        refuse_tangent(grad_y)
        need_x, need_mixing, need_bias, *need_parameters = ctx.needs_input_grad[1:]
        # Whoever calls backward may be another than who called forward: one who differentiates it, batches it, ...
        if torch.is_grad_enabled() or not nets.serves(x, grad_y, mixing, *parameters):
            with full_precision(x.device):  # autocast may be on where backward is called
                stored = _stored_gradients(ctx.sampling, x, grad_y, mixing, parameters)
            return None, *stored[:2], over_pixels(grad_y) if need_bias else None, *stored[2:]
        call = _Call(ctx.sampling, x, mixing, parameters)
        grad_x = torch.empty_like(call.x) if need_x else None
        grad_mixing = torch.empty_like(call.mixing) if need_mixing else None
        grads = [torch.empty_like(p) for p in call.parameters] if any(need_parameters) else []
        grad_bias = grad_y.new_empty(mixing.shape[-2]) if need_bias else None
        to = library.Gradients(ops.address(grad_x), None, ops.address(grad_mixing), bias=ops.address(grad_bias))
        if grads:
            to.net = ctypes.pointer(nets.addresses(grads))
        grad_y = grad_y.contiguous()
        with _named("contconv::backward"):
            library.backward(call.problem, call.inputs(grad_y=grad_y), to, ctx.sampling.code)
        if counted():
            t0, t1, t2 = (table.shape for table in ctx.sampling.tables)
            flops = backward_flops(
                x.shape, grad_y.shape, t0, t1, t2, call.basis, mixing.shape, ctx.sampling.groups, ctx.sampling.code,
                need_x, bool(grads), need_mixing,
            )  # fmt: skip
            count(flops // 2 + (4 if grads else 1) * call.net_macs)
        return None, grad_x, grad_mixing, grad_bias, *(grads if grads else (None for _ in parameters))


def _named(operation: str) -> AbstractContextManager[Any]:
    """For a profiler, if there is one, what it would see if this were an operation of its own."""
    profiled = torch._C._autograd._profiler_enabled()
    return torch.profiler.record_function(operation) if profiled else nullcontext()


class _Call:
    """What the native kernel is handed; it holds on to the tensors whose addresses that has."""

    def __init__(self, sampling: Sampling, x: Tensor, mixing: Tensor, parameters: Sequence[Tensor]) -> None:
        self.sampling = sampling
        self.x, self.mixing, self.parameters = x.contiguous(), mixing.contiguous(), [p.contiguous() for p in parameters]
        self.basis = sampling.basis_shape(len(parameters[-1]) + 1)
        weights = (torch.float32, self.basis)
        self.problem = ops.problem_of(self.x, sampling.tables, weights, self.mixing, sampling.groups, sampling.code)
        points = torch.Size((math.prod(sampling.places), sampling.axes))
        self.net = nets.net_of(points, self.parameters, sampling.slope)

    @property
    def net_macs(self) -> int:
        if self.sampling.algorithm not in FOR_PIXELS:
            return nets.macs(math.prod(self.basis[:4]), self.parameters)
        outputs = math.prod(table.shape[0] for table in self.sampling.tables)  # of an image: the others have the same
        return nets.macs(outputs * self.basis[3], self.parameters)

    def inputs(self, *, grad_y: Tensor | None = None, bias: Tensor | None = None) -> library.Inputs:
        return library.Inputs(
            self.x.data_ptr(), ops.address(grad_y), None, self.mixing.data_ptr(), ops.address(bias),
            ctypes.pointer(self.net), tuple(offset.data_ptr() for offset in self.sampling.offsets),
        )  # fmt: skip


def _stored_gradients(
    sampling: Sampling, x: Tensor, grad_y: Tensor, mixing: Tensor, parameters: Sequence[Tensor]
) -> list[Tensor]:
    """Of x, mixing and every parameter, in operations that can be differentiated, batched, traced."""
    points = sampling.points()
    basis = nets.all_units(points, parameters, sampling.slope)[-1]
    grad_x, grad_basis, grad_mixing = torch.ops.contconv.backward(
        x, grad_y, *sampling.tables, basis.reshape(sampling.basis_shape(basis.shape[-1])), mixing, sampling.groups,
        sampling.code, True, True, True,
    )  # fmt: skip
    gradient = grad_basis.reshape(basis.shape)
    return [grad_x, grad_mixing, *nets.parameter_gradients(points, parameters, sampling.slope, gradient)]
