"""Small nets of linear and leaky layers, at many points: one operation for all layers, which keeps none of them for the
way back."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contconv.native import library
from contconv.native.counting import count
from contconv.precision import autocasts
from contconv.transforms import differentiated, traced, transformed

PLAIN = (Tensor, nn.Parameter)


def units(points: Tensor, layers: Sequence[tuple[Tensor, Tensor]], slope: float) -> Tensor:
    """[N, D] -> [N, width + 1]: the units of the last layer at every point, and one more that is always 1.

    layers: a weight [out, in] and a bias [out] each, one after the other with LeakyReLU(slope) behind each.

    >>> units(torch.tensor([[1.0], [-1.0]]), [(torch.tensor([[2.0]]), torch.tensor([0.0]))], 0.5)
    tensor([[ 2.,  1.],
            [-1.,  1.]])
    """
    parameters = [tensor for layer in layers for tensor in layer]
    if _serves(points, parameters):
        return _Units.apply(points, slope, *parameters)
    return _units(points, parameters, slope)


def _units(points: Tensor, parameters: Sequence[Tensor], slope: float) -> Tensor:
    """The same, in operations of torch."""
    hidden = points
    for i in range(0, len(parameters), 2):
        weight, bias = parameters[i : i + 2]
        if i + 2 == len(parameters):  # the unit that is always 1: nothing comes in, a bias of 1
            weight, bias = F.pad(weight, (0, 0, 0, 1)), F.pad(bias, (0, 1), value=1.0)
        hidden = F.leaky_relu(F.linear(hidden, weight, bias), slope, inplace=True)
    return hidden


def _serves(points: Tensor, parameters: Sequence[Tensor]) -> bool:
    """Whether the native kernel can: plain float32 tensors on the CPU, whose values are there, with plain autograd."""
    return (
        all(type(t) in PLAIN and t.dtype == torch.float32 and t.device.type == "cpu" for t in (points, *parameters))
        and len(parameters) <= 2 * library.MOST_LAYERS
        and not points.requires_grad
        and not (transformed() or differentiated() or traced() or autocasts(points.device))
        and torch._C._get_tracing_state() is None  # torch.jit.trace
        and library.available()
    )


class _Units(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, points: Tensor, slope: float, *parameters: Tensor) -> Tensor:
        ctx.save_for_backward(points, *parameters)
        ctx.slope = slope
        points, parameters = points.contiguous(), tuple(p.contiguous() for p in parameters)
        y = points.new_empty(len(points), parameters[-1].shape[0] + 1)
        library.net_forward(_net(points, parameters, slope), points.data_ptr(), y.data_ptr())
        count(_macs(points, parameters))
        return y

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        points, *parameters = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody wants to differentiate this, too
            needed = [p for p, needs in zip(parameters, ctx.needs_input_grad[2:], strict=True) if needs]
            found = iter(torch.autograd.grad(_units(points, parameters, ctx.slope), needed, grad_y, create_graph=True))
            return (None, None, *(next(found) if needs else None for needs in ctx.needs_input_grad[2:]))
        points, grad_y, parameters = points.contiguous(), grad_y.contiguous(), [p.contiguous() for p in parameters]
        grads = [torch.empty_like(p) for p in parameters]
        net = _net(points, parameters, ctx.slope)
        library.net_backward(net, points.data_ptr(), grad_y.data_ptr(), _addresses(grads))
        count(3 * _macs(points, parameters))
        return (None, None, *grads)


def _net(points: Tensor, parameters: Sequence[Tensor], slope: float) -> library.Net:
    widths = (points.shape[1], *(weight.shape[0] for weight in parameters[::2]))
    shapes = [(*pair, pair[:1]) for pair in zip(widths[1:], widths, strict=False)]
    for (out, before, only), weight, bias in zip(shapes, parameters[::2], parameters[1::2], strict=True):
        if weight.shape != (out, before) or bias.shape != only:
            raise ValueError(
                f"a layer after {before} units must have a weight [{out}, {before}] and a bias [{out}], "
                f"but has {list(weight.shape)} and {list(bias.shape)}"
            )
    return library.Net(
        len(points), len(widths) - 1, torch.get_num_threads(), widths,
        tuple(p.data_ptr() for p in parameters[::2]), tuple(p.data_ptr() for p in parameters[1::2]), slope,
    )  # fmt: skip


def _addresses(grads: Sequence[Tensor]) -> library.NetGradients:
    return library.NetGradients(tuple(g.data_ptr() for g in grads[::2]), tuple(g.data_ptr() for g in grads[1::2]))


def _macs(points: Tensor, parameters: Sequence[Tensor]) -> int:
    return len(points) * sum(weight.numel() for weight in parameters[::2])
