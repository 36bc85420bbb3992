"""The derivatives of `contconv::forward` and `contconv::backward`, each in terms of the two, and their `vmap`."""

from typing import Any

import torch
from torch import Tensor

from contconv.transforms import one_by_one, refuse_tangent

_forward = torch.ops.contconv.forward
_backward = torch.ops.contconv.backward


def _save_forward(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, table0, table1, table2, weights, mixing, bias, ctx.groups, ctx.algorithm = inputs
    ctx.save_for_backward(x, table0, table1, table2, weights, mixing)
    ctx.has_bias = bias is not None


def _forward_gradients(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
    x, *tables, weights, mixing = ctx.saved_tensors
    refuse_tangent(grad_y)
    need_x, need_weights, need_mixing, need_bias = (ctx.needs_input_grad[i] for i in (0, 4, 5, 6))
    grads: tuple[Tensor | None, ...] = (None, None, None)
    if need_x or need_weights or need_mixing:
        grads = _backward(
            x, grad_y, *tables, weights, mixing, ctx.groups, ctx.algorithm, need_x, need_weights, need_mixing
        )
    bias = over_pixels(grad_y) if ctx.has_bias and need_bias else None
    return (
        grads[0] if need_x else None,
        *(None, None, None),
        grads[1] if need_weights else None,
        grads[2] if need_mixing else None,
        bias,
        *(None, None),
    )


def over_pixels(grad_y: Tensor) -> Tensor:
    """[N, D, H, W, C] -> [C]: sums of whole rows first, which fill vectors whatever the number of channels."""
    batch, depth, height, width, channels = grad_y.shape
    return grad_y.reshape(batch * depth * height, width * channels).sum(0).reshape(width, channels).sum(0)


def _save_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, grad_y, table0, table1, table2, weights, mixing, ctx.groups, ctx.algorithm, *ctx.needs = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, grad_y, table0, table1, table2, weights, mixing)


def _backward_gradients(ctx: Any, *seeds: Tensor | None) -> tuple[Tensor | None, ...]:
    """With f = forward, `backward` returns the gradients of <grad_y, f(x, weights, mixing)>. So its products with seeds
    (one per result) sum to <grad_y, f(seed_x, weights, mixing) + f(x, seed_w, mixing) + f(x, weights, seed_m)>, and
    each term is once more something that the two operations differentiate."""
    x, grad_y, *tables, weights, mixing = ctx.saved_tensors
    seed_x, seed_w, seed_m = (seed if need else None for seed, need in zip(seeds, ctx.needs, strict=True))
    need = dict(zip(("x", "grad_y", "weights", "mixing"), (ctx.needs_input_grad[i] for i in (0, 1, 5, 6)), strict=True))
    total: dict[str, Tensor | None] = dict.fromkeys(need)

    def add(name: str, term: Tensor) -> None:
        before = total[name]
        total[name] = term if before is None else before + term

    terms = (
        ((seed_x, weights, mixing), ("weights", "mixing")),
        ((x, seed_w, mixing), ("x", "mixing")),
        ((x, weights, seed_m), ("x", "weights")),
    )
    for seed, ((a, b, c), wanted) in zip((seed_x, seed_w, seed_m), terms, strict=True):
        if seed is None:
            continue
        if need["grad_y"]:
            add("grad_y", _forward(a, *tables, b, c, None, ctx.groups, ctx.algorithm))
        flags = {name: need[name] and name in wanted for name in ("x", "weights", "mixing")}
        if any(flags.values()):
            grads = _backward(a, grad_y, *tables, b, c, ctx.groups, ctx.algorithm, *flags.values())
            for (name, flag), grad in zip(flags.items(), grads, strict=True):
                if flag:
                    add(name, grad)
    return (total["x"], total["grad_y"], None, None, None, total["weights"], total["mixing"], *([None] * 5))


torch.library.register_autograd("contconv::forward", _forward_gradients, setup_context=_save_forward)
torch.library.register_autograd("contconv::backward", _backward_gradients, setup_context=_save_backward)


def _mapped_forward(info: Any, dims: tuple[int | None, ...], x: Tensor, *rest: Any) -> tuple[Tensor, int]:
    """Images of all maps in one batch, if the maps differ in nothing else."""
    if any(dim is not None for dim in dims[1:]):
        return one_by_one(_forward, info.batch_size, dims, x, *rest), 0
    y = _forward(x.movedim(dims[0] or 0, 0).flatten(0, 1), *rest)
    return y.unflatten(0, (info.batch_size, -1)), 0


def _mapped_backward(info: Any, dims: tuple[int | None, ...], *arguments: Any) -> tuple[Any, tuple[int, ...]]:
    return one_by_one(_backward, info.batch_size, dims, *arguments), (0, 0, 0)


torch.library.register_vmap("contconv::forward", _mapped_forward)
torch.library.register_vmap("contconv::backward", _mapped_backward)
