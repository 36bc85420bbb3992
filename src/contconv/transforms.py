"""Who is looking on: the transforms of torch.func, forward-mode differentiation, tracers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

Function = TypeVar("Function", bound=Callable[..., Any])


def transformed() -> bool:
    """Whether a transform of torch.func (vmap, grad, jvp, ...) is at work."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def forward_mode() -> bool:
    """Whether tangents may come along with the tensors: `torch.func.jvp`, or `torch.autograd.forward_ad`."""
    return forward_ad._current_level >= 0


def refuse_tangent(tensor: Tensor) -> None:
    """For operations that have no forward derivative, and would drop the tangent."""
    if forward_mode() and forward_ad.unpack_dual(tensor).tangent is not None:
        raise NotImplementedError(
            "the native kernel's gradients have no forward derivative: call the layer, and not its backward alone, "
            "where tangents are (inside the dual level), or in float64, which PyTorch computes"
        )


def refuse_jit_trace() -> None:
    """Its sizes are tensors, of which no exact grid can be made."""
    if torch.jit.is_tracing():  # type: ignore[attr-defined]
        raise NotImplementedError(
            "torch.jit.trace (or torch.onnx.export with dynamo=False) cannot follow continuous layers: "
            "use torch.export or torch.compile, or torch.onnx.export with dynamo=True"
        )


def differentiated() -> bool:
    """Whether somebody else than plain autograd takes derivatives, with a tape of his own."""
    if forward_mode():
        return True
    stack = torch._C._functorch.get_interpreter_stack() if transformed() else None
    return any(interpreter.key() != torch._C._functorch.TransformType.Vmap for interpreter in stack or ())


def batched(tensor: Tensor) -> bool:
    """Whether it is many at once, of `torch.autograd.grad(is_grads_batched=True)`: nothing can be written to."""
    return torch._C._functorch.is_legacy_batchedtensor(tensor)


def refuse_batched(dy: Tensor) -> None:
    """For gradients that are written piece by piece."""
    if batched(dy):
        raise NotImplementedError(
            "strategy 'phases' in plain PyTorch takes one gradient at a time: instead of is_grads_batched=True, "
            "use torch.func (vmap of vjp, jacrev), or strategy='factored' or 'reference'"
        )


def traced() -> bool:
    """Whether tensors may be fakes: a tracer is at work, and not just somebody who counts or prints."""
    if torch.compiler.is_compiling():
        return True
    if not torch._C._len_torch_dispatch_stack():
        return False
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    return any(mode.is_infra_mode() for mode in _get_current_dispatch_mode_stack())


def exporting() -> bool:
    """Whether torch.export looks on. (torch 2.6 does not tell it from torch.compile.)"""
    return hasattr(torch.compiler, "is_exporting") and torch.compiler.is_exporting()


@contextmanager
def unobserved() -> Iterator[None]:
    """A context in which new tensors are plain ones, fit to be kept: no transform wraps them, no tracer fakes them."""
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        if transformed():
            from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

            stack.enter_context(temporarily_clear_interpreter_stack())
        if traced():
            from torch.utils._python_dispatch import _disable_current_modes

            stack.enter_context(_disable_current_modes())
        yield


def while_tracing(function: Function) -> Function:
    """Have torch.compile call a function as it makes the graph, and keep its result: whatever that depends on besides
    its arguments must be guarded. As `torch.compiler.assume_constant_result`, which takes seconds to import."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def one_by_one(function: Callable[..., Any], count: int, dims: Sequence[Any], *arguments: Any) -> Any:
    """function of each of `count` slices of those arguments that have a batch dimension; results stacked along a new
    first dimension. What `vmap` means, for functions that know no better."""
    slices = [
        argument.unbind(dim) if isinstance(argument, Tensor) and dim is not None else (argument,) * count
        for argument, dim in zip(arguments, dims, strict=True)
    ]
    results = [function(*row) for row in zip(*slices, strict=True)]
    if isinstance(results[0], Tensor):
        return torch.stack(results)
    return tuple(torch.stack(column) for column in zip(*results, strict=True))
