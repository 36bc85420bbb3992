"""Compute in pieces, forget everything between forward and backward but the arguments, and compute it again there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.func import functional_call

from contconv.precision import full_precision
from contconv.transforms import batched, forward_mode, transformed


@dataclass(frozen=True)
class Piece:
    """run(module, x[images], *tensors) is y[images, :, rows]."""

    images: slice
    rows: slice
    run: Callable[..., Tensor]


def recomputed(bands: Sequence[Sequence[Piece]], module: nn.Module, x: Tensor, *tensors: Tensor | None) -> Tensor:
    """All of y, keeping only tensors and parameters; differentiable to any order. A band is all pieces of some images.

    Beside y, and the gradients, one piece at a time is in memory. `torch.utils.checkpoint` would read the module's
    parameters again in backward, and they are other ones by then under `torch.func.functional_call`. Under a transform
    of torch.func nothing is forgotten: it has a tape of its own.
    """
    work = _Work(bands, module, 1 + len(tensors))
    y: Tensor
    lent = _state(module).values()
    if transformed() or forward_mode():
        y = work.joined(x, *tensors, *lent)
    else:
        y = _Recomputed.apply(work, x, *tensors, *lent)
    return y


def owns_its_inputs(module: nn.Module, probe: Callable[..., Sequence[Tensor]], *arguments: Any) -> bool:
    """Whether probe(module, *arguments) takes no gradient to anything but the module's own parameters."""
    frozen = {name: parameter.detach() for name, parameter in module.named_parameters(prefix="module")}
    with torch.enable_grad():
        return not any(y.requires_grad for y in functional_call(_Caller(module), frozen, (probe, *arguments)))


def _state(module: nn.Module) -> dict[str, Tensor]:
    """What a call with the module may read of it, by the names that `_Caller` knows."""
    return dict(module.named_parameters(prefix="module")) | dict(module.named_buffers(prefix="module"))


class _Work:
    """The pieces as functions of x, some tensors and the module's state."""

    def __init__(self, bands: Sequence[Sequence[Piece]], module: nn.Module, arguments: int) -> None:
        self.bands = bands
        self.names = list(_state(module))
        self.caller = _Caller(module)
        self.arguments = arguments

    @property
    def pieces(self) -> list[Piece]:
        return [piece for band in self.bands for piece in band]

    def part(self, piece: Piece, *tensors: Tensor | None) -> Tensor:
        """Of x that has no other images than the piece's."""
        lent: Any = dict(zip(self.names, tensors[self.arguments :], strict=True))
        with full_precision(next(tensor for tensor in tensors if tensor is not None).device):
            part: Tensor = functional_call(self.caller, lent, (piece.run, *tensors[: self.arguments]))
        return part

    def joined(self, x: Tensor | None, *tensors: Tensor | None) -> Tensor:
        """All of y, of one operation after the other."""
        assert x is not None
        whole = [[self.part(piece, x[piece.images], *tensors) for piece in band] for band in self.bands]
        return torch.cat([torch.cat(band, dim=2) for band in whole])


class _Recomputed(Function):
    @staticmethod
    def forward(ctx: Any, work: _Work, x: Tensor, *tensors: Tensor | None) -> Tensor:
        ctx.work = work
        ctx.save_for_backward(x, *tensors)
        pieces, y = work.pieces, None
        for piece in pieces:
            part = work.part(piece, x[piece.images], *tensors)
            if y is None:
                y = _empty(part, len(x), pieces[-1].rows.stop) if len(pieces) > 1 else part
            if y is not part:
                y[piece.images, :, piece.rows] = part
        assert y is not None
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        needs = ctx.needs_input_grad[1:]
        # Somebody may want to differentiate this, or wants many at once.
        gradients = _differentiable if torch.is_grad_enabled() or batched(dy) else _gradients
        x, *tensors = ctx.saved_tensors
        return None, *gradients(ctx.work, x, tensors, dy, needs)


def _gradients(
    work: _Work, x: Tensor, tensors: Sequence[Tensor | None], dy: Tensor, needs: Sequence[bool]
) -> list[Tensor | None]:
    wanted = [number for number, need in enumerate(needs) if need]
    sums: dict[int, Tensor] = {}
    for piece in work.pieces:
        own = [tensor if tensor is None else tensor.detach() for tensor in (x[piece.images], *tensors)]
        leaves = zip(own, needs, strict=True)
        variables = [tensor.requires_grad_() for tensor, need in leaves if need and tensor is not None]
        with torch.enable_grad(), full_precision(dy.device):
            part = work.part(piece, *own)
            found = torch.autograd.grad(part, variables, dy[piece.images, :, piece.rows], allow_unused=True)
        del part
        for number, gradient in zip(wanted, found, strict=True):
            if gradient is not None:
                if number not in sums:
                    sums[number] = _zeros(gradient if number else x)
                total = sums[number] if number else sums[number][piece.images]
                total += gradient
    dtypes = [None if tensor is None else tensor.dtype for tensor in (x, *tensors)]
    return [sums[number].to(dtype) if number in sums else None for number, dtype in enumerate(dtypes)]


def _differentiable(
    work: _Work, x: Tensor, tensors: Sequence[Tensor | None], dy: Tensor, needs: Sequence[bool]
) -> list[Tensor | None]:
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad(), full_precision(dy.device):
        own = [_variable(tensor, need, create_graph) for tensor, need in zip((x, *tensors), needs, strict=True)]
        wanted = [tensor for tensor, need in zip(own, needs, strict=True) if need and tensor is not None]
        y = work.joined(*own)
        found = iter(torch.autograd.grad(y, wanted, dy, create_graph=create_graph, allow_unused=True))
    return [next(found) if need else None for need in needs]


def _variable(tensor: Tensor | None, need: bool, create_graph: bool) -> Tensor | None:
    """An argument as a variable of its own: a gradient to it goes no further back, where others of the arguments may
    be, and others' hooks."""
    if tensor is None or not need:
        return tensor
    return tensor.view_as(tensor) if create_graph else tensor.detach().requires_grad_()


def _zeros(like: Tensor) -> Tensor:
    """For sums over pieces, which must not be rounded at each."""
    return torch.zeros_like(like, dtype=torch.promote_types(like.dtype, torch.float32))


def _empty(part: Tensor, images: int, rows: int) -> Tensor:
    """[images, C, rows, ...] in the memory format of a part."""
    channels, (_, *others) = part.shape[1], part.shape[2:]
    if part.movedim(1, -1).is_contiguous():
        return part.new_empty(images, rows, *others, channels).movedim(-1, 1)
    return part.new_empty(images, channels, rows, *others)


class _Caller(nn.Module):
    """A call with a module as a module, so that `functional_call` can lend it parameters."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, run: Callable[..., Any], *tensors: Any) -> Any:
        return run(self.module, *tensors)
