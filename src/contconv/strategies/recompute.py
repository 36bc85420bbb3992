"""Forget everything between forward and backward but the arguments, and compute it again when it is needed."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.func import functional_call

from contconv.precision import full_precision
from contconv.transforms import forward_mode, transformed


def recomputed(run: Callable[..., Tensor], module: nn.Module, x: Tensor, *tensors: Tensor | None) -> Tensor:
    """run(module, x, *tensors), keeping only tensors and parameters; differentiable to any order.

    `torch.utils.checkpoint` would read the module's parameters again in backward, and they are other ones by then under
    `torch.func.functional_call`. Under a transform of torch.func nothing is forgotten: it has a tape of its own.
    """
    if transformed() or forward_mode():
        return run(module, x, *tensors)
    parameters = dict(module.named_parameters(prefix="module"))
    caller = _Caller(module, run)
    count = 1 + len(tensors)

    def call(*arguments: Any) -> Tensor:
        lent = dict(zip(parameters, arguments[count:], strict=True))
        with full_precision(arguments[0].device):
            return functional_call(caller, lent, arguments[:count])

    y: Tensor = _Recomputed.apply(call, x, *tensors, *parameters.values())
    return y


def owns_its_inputs(module: nn.Module, probe: Callable[..., Sequence[Tensor]], *arguments: Any) -> bool:
    """Whether probe(module, *arguments) takes no gradient to anything but the module's own parameters."""
    frozen = {name: parameter.detach() for name, parameter in module.named_parameters(prefix="module")}
    with torch.enable_grad():
        return not any(y.requires_grad for y in functional_call(_Caller(module, probe), frozen, arguments))


class _Recomputed(Function):
    @staticmethod
    def forward(ctx: Any, call: Callable[..., Tensor], *tensors: Tensor | None) -> Tensor:
        ctx.call = call
        ctx.save_for_backward(*tensors)
        return call(*tensors)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        needs = ctx.needs_input_grad[1:]
        tensors = ctx.saved_tensors
        wanted = [tensor for tensor, need in zip(tensors, needs, strict=True) if need]
        create_graph = torch.is_grad_enabled()
        with torch.enable_grad():
            y = ctx.call(*tensors)
            found = iter(torch.autograd.grad(y, wanted, dy, create_graph=create_graph, allow_unused=True))
        return None, *(next(found) if need else None for need in needs)


class _Caller(nn.Module):
    """A function of a module as a module, so that `functional_call` can lend it parameters."""

    def __init__(self, module: nn.Module, run: Callable[..., Any]) -> None:
        super().__init__()
        self.module = module
        self.run = run

    def forward(self, *tensors: Tensor | None) -> Any:
        return self.run(self.module, *tensors)
