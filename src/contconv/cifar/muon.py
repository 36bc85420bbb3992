"""Filters that move by orthogonalised momentum: a network gets there in a fraction of the epochs that Adam needs."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

# x -> a x + b x^3 + c x^5, applied again and again, takes every singular value between 0 and 1 to somewhere around 1.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ROUNDS = 5
MOMENTUM = 0.95


class Muon(torch.optim.Optimizer):
    """A step is `lr` times the orthogonal matrix [Cout, all the rest] nearest to a filter's momentum.

    Parameters are weights of convolutions, [Cout, Cin, *K]; those in a group with `out_dim=-2` are mixings of
    continuous ones, [..., Cout, Cin]. Weight decay is decoupled, as AdamW's.
    """

    def __init__(
        self, params: Iterable[nn.Parameter] | Iterable[dict[str, Any]], *, lr: float, weight_decay: float
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "out_dim": 0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Move all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, group)
        return loss

    def _move(self, parameter: nn.Parameter, group: dict[str, Any]) -> None:
        assert parameter.grad is not None
        state = self.state[parameter]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        momentum = state["momentum"].lerp_(parameter.grad, 1 - MOMENTUM)
        ahead = parameter.grad.lerp(momentum, MOMENTUM).movedim(group["out_dim"], 0)
        update = orthogonal(ahead.flatten(1)).reshape(ahead.shape).movedim(0, group["out_dim"])
        parameter.mul_(1 - group["lr"] * group["weight_decay"]).sub_(update, alpha=group["lr"])


def orthogonal(matrix: Tensor) -> Tensor:
    """A matrix with the singular vectors of [m, n] `matrix` and singular values of about 1, by Newton and Schulz."""
    a, b, c = COEFFICIENTS
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.mT if is_tall else matrix
    x = x / (x.norm() + 1e-7)  # no singular value above 1
    for _ in range(ROUNDS):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if is_tall else x


def filters(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The parameters that are weights of convolutions, and those that are mixings of continuous ones."""
    many = {name: parameter for name, parameter in model.named_parameters() if parameter.ndim > 2}
    mixings = [parameter for name, parameter in many.items() if name.endswith(".mixing")]
    return [parameter for name, parameter in many.items() if not name.endswith(".mixing")], mixings
