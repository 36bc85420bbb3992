"""Small nets of linear and leaky layers, at many points: one operation for all layers, which keeps none of them for the
way back."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contconv.native import library
from contconv.native.counting import count
from contconv.precision import autocasts, full_precision
from contconv.transforms import differentiated, traced, transformed, unobserved

PLAIN = (Tensor, nn.Parameter)
WIDEST = 128  # units of a layer: matrix products of torch do better with more


def units(points: Tensor, parameters: Sequence[Tensor], slope: float) -> Tensor:
    """[N, D] -> [N, width + 1]: the units of the last layer at every point, and one more that is always 1.

    parameters: a weight [out, in] and a bias [out] of each layer in turn, with LeakyReLU(slope) behind each.

    >>> units(torch.tensor([[1.0], [-1.0]]), [torch.tensor([[2.0]]), torch.tensor([0.0])], 0.5)
    tensor([[ 2.,  1.],
            [-1.,  1.]])
    """
    if fits(parameters, slope) and points.ndim == 2 and not points.requires_grad and serves(points, *parameters):
        return _Units.apply(points, slope, *parameters)
    return all_units(points, parameters, slope)[-1]


def fits(parameters: Sequence[Tensor], slope: float) -> bool:
    """Whether the net is one that the native kernel is made for."""
    biases = parameters[1::2]
    return 0 < len(biases) <= library.MOST_LAYERS and max(bias.shape[0] for bias in biases) <= WIDEST and slope > 0


def all_units(points: Tensor, parameters: Sequence[Tensor], slope: float) -> list[Tensor]:
    """The units of every layer, in operations of torch."""
    hidden = [points]
    for i in range(0, len(parameters), 2):
        weight, bias = parameters[i : i + 2]
        if i + 2 == len(parameters):  # the unit that is always 1: nothing comes in, a bias of 1
            weight, bias = F.pad(weight, (0, 0, 0, 1)), F.pad(bias, (0, 1), value=1.0)
        hidden.append(F.leaky_relu(F.linear(hidden[-1], weight, bias), slope, inplace=True))
    return hidden


def parameter_gradients(points: Tensor, parameters: Sequence[Tensor], slope: float, grad_y: Tensor) -> list[Tensor]:
    """Of every parameter, in operations of torch, so that they can be differentiated, batched, traced."""
    *hidden, last = all_units(points, parameters, slope)
    units, gradient = last[:, :-1], grad_y[:, :-1]
    gradients: list[Tensor] = []
    for before, weight in zip(reversed(hidden), reversed(parameters[::2]), strict=True):
        gradient = torch.where(units > 0, gradient, slope * gradient)
        gradients = [gradient.mT @ before, gradient.sum(0), *gradients]
        units, gradient = before, gradient @ weight
    return gradients


def serves(*tensors: Tensor) -> bool:
    """Whether the native kernel can: plain float32 on the CPU, as it lies in memory, with plain autograd."""
    if torch._C._get_tracing_state() is not None:  # torch.jit.trace
        return False
    plain, keys_of = _plain_keys(), torch._C._dispatch_keys
    for t in tensors:
        if type(t) not in PLAIN or t.dtype != torch.float32 or keys_of(t).raw_repr() not in plain:
            return False
    watched = transformed() or differentiated() or traced() or autocasts(tensors[0].device)
    return library.available() and not watched


@cache
def _plain_keys() -> frozenset[int]:
    """What torch dispatches on where a tensor is what lies in the CPU's memory: not sparse, negated, batched, ..."""
    with unobserved():
        plain = torch.empty(0, device="cpu")
        with torch.inference_mode():
            return frozenset(torch._C._dispatch_keys(t).raw_repr() for t in (plain, torch.empty(0, device="cpu")))


class _Units(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, points: Tensor, slope: float, *parameters: Tensor) -> Tensor:
        ctx.save_for_backward(points, *parameters)
        ctx.slope = slope
        points, parameters = points.contiguous(), tuple(p.contiguous() for p in parameters)
        y = points.new_empty(len(points), len(parameters[-1]) + 1)
        library.net_forward(net_of(points.shape, parameters, slope), points.data_ptr(), y.data_ptr())
        count(macs(len(points), parameters))
        return y

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        points, *parameters = ctx.saved_tensors
        # Whoever calls backward may be another than who called forward: one who differentiates it, batches it, ...
        if torch.is_grad_enabled() or not serves(points, grad_y, *parameters):
            with full_precision(points.device):  # autocast may be on where backward is called
                return (None, None, *parameter_gradients(points, parameters, ctx.slope, grad_y))
        points, grad_y, parameters = points.contiguous(), grad_y.contiguous(), [p.contiguous() for p in parameters]
        grads = [torch.empty_like(p) for p in parameters]
        net = net_of(points.shape, parameters, ctx.slope)
        library.net_backward(net, points.data_ptr(), grad_y.data_ptr(), addresses(grads))
        count(3 * macs(len(points), parameters))
        return (None, None, *grads)


def net_of(points: torch.Size, parameters: Sequence[Tensor], slope: float) -> library.Net:
    """The checked net, for points [N, D]: weight and bias of each layer in turn, contiguous."""
    count, before = points
    widths, weights, biases = [before], parameters[::2], parameters[1::2]
    for weight, bias in zip(weights, biases, strict=True):
        out = weight.shape[0]
        if weight.shape != (out, before) or bias.shape != (out,):
            raise ValueError(
                f"a layer after {before} units must have a weight [{out}, {before}] and a bias [{out}], "
                f"but has {list(weight.shape)} and {list(bias.shape)}"
            )
        widths.append(out)
        before = out
    return library.Net(
        count, len(weights), torch.get_num_threads(), tuple(widths),
        tuple([p.data_ptr() for p in weights]), tuple([p.data_ptr() for p in biases]), slope,
    )  # fmt: skip


def addresses(grads: Sequence[Tensor]) -> library.NetGradients:
    """Of the gradients of weight and bias of each layer in turn."""
    return library.NetGradients(tuple(g.data_ptr() for g in grads[::2]), tuple(g.data_ptr() for g in grads[1::2]))


def macs(points: int, parameters: Sequence[Tensor]) -> int:
    """Multiply-adds of the way through all layers."""
    return points * sum(weight.numel() for weight in parameters[::2])
