"""Levenberg-Marquardt steps on the parameters of a kernel, with the mixing solved anew after each."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import functional_call, jacrev, vmap

from contconv.fitting.moments import Moments
from contconv.kernels import Kernel

RIDGE = 1e-13  # relative to the largest diagonal entry, in float64
TRIES = 40  # of ever stronger damping, until a step is given up


@dataclass(frozen=True)
class Step:
    """Where a fit stands: the mean squared error of start number `start` after `iteration` steps."""

    start: int
    iteration: int
    mse: float
    parameters: dict[str, Tensor]


def solved(gram: Tensor, target: Tensor) -> Tensor:
    """The solution of gram @ solution = target, with the least ridge that float64 needs."""
    scale = gram.diagonal().clamp_min(RIDGE * gram.diagonal().max()).sqrt()
    scaled = gram / scale[:, None] / scale
    scaled.diagonal().add_(RIDGE)
    return torch.linalg.solve(scaled, target / scale[:, None]) / scale[:, None]


class Descent:
    """Levenberg-Marquardt steps from where the kernel stands; the kernel itself is not changed."""

    def __init__(self, kernel: Kernel, second: Moments, start: int, watch: Callable[[Step], None] | None) -> None:
        self.kernel, self.second, self.start, self.watch = kernel, second, start, watch
        parameters = dict(kernel.named_parameters())
        self.shapes = {name: p.shape for name, p in parameters.items()}
        self.vector = torch.cat([p.detach().double().cpu().flatten() for p in parameters.values()])
        self.damping = 1e-2
        self.history: list[float] = []
        self.settle(self.mixed(self.vector))

    def named(self, vector: Tensor) -> dict[str, Tensor]:
        """The vector of all parameters, cut into named ones."""
        pieces = vector.split([shape.numel() for shape in self.shapes.values()])
        return {n: piece.reshape(shape) for piece, (n, shape) in zip(pieces, self.shapes.items(), strict=True)}

    def values(self, vector: Tensor, d: Tensor) -> Tensor:
        """[..., D] -> [..., Cin, Cout] the kernel with these parameters."""
        return functional_call(self.kernel, self.named(vector), (d,)).mT

    def mixed(self, vector: Tensor) -> Tensor:
        """The same parameters with the best mixing that their basis allows."""
        named = self.named(vector)
        functions, out_channels, in_channels = named["mixing"].shape
        columns = torch.eye(functions * in_channels, dtype=vector.dtype)
        columns = columns.reshape(functions, in_channels, functions * in_channels).mT  # [R, R * Cin "out", Cin]
        one_by_one = self.named(vector) | {"mixing": columns}
        responses = functional_call(self.kernel, one_by_one, (self.second.displacements,)).mT  # [nodes, Cin, R * Cin]
        gram = torch.einsum("nia,nib->ab", responses, self.second.product(responses))
        target = torch.einsum("nia,nio->ao", responses, self.second.target)
        named["mixing"] = solved(gram, target).reshape(functions, in_channels, out_channels).mT
        return torch.cat([p.flatten() for p in named.values()])

    def settle(self, vector: Tensor) -> None:
        """Stand at these parameters."""
        self.vector = vector
        self.at = self.values(vector, self.second.displacements)
        self.pull = self.second.product(self.at)
        self.mse = self.second.mse(self.at, self.pull)
        self.history.append(self.mse)
        if self.watch is not None:
            self.watch(Step(self.start, len(self.history) - 1, self.mse, self.named(vector)))

    def mse_of(self, vector: Tensor) -> float:
        values = self.values(vector, self.second.displacements)
        return self.second.mse(values, self.second.product(values))

    def take(self, steps: int) -> None:
        """That many steps, or fewer where none leads further down."""
        for _ in range(steps):
            curvature, slope = self.model()
            if (lower := self.lower(curvature, slope)) is None:
                return
            self.settle(lower)

    def model(self) -> tuple[Tensor, Tensor]:
        """The Gauss-Newton matrix and the gradient at the present parameters."""
        jacobian = vmap(jacrev(self.values), (None, 0))(self.vector, self.second.displacements)  # [n, Cin, Cout, P]
        count = jacobian.shape[-1]
        flat = jacobian.flatten(0, 2)
        weighted = self.second.product(jacobian.flatten(2)).reshape(-1, count)
        slope = flat.mT @ (self.pull - self.second.target).flatten()
        return flat.mT @ weighted, slope

    def lower(self, curvature: Tensor, slope: Tensor) -> Tensor | None:
        """Parameters with a smaller error, by as little damping as that takes; None where there are none."""
        diagonal = curvature.diagonal()
        scale = diagonal.clamp_min(1e-9 * diagonal.max())
        for _ in range(TRIES):
            damped = curvature + torch.diag(self.damping * scale + RIDGE * diagonal.max())
            step, failed = torch.linalg.solve_ex(damped, slope)
            vector = self.mixed(self.vector - step) if not failed and step.isfinite().all() else None
            if vector is not None and self.mse_of(vector) < self.mse:
                self.damping = max(self.damping / 5, 1e-12)
                return vector
            self.damping *= 4
        return None
