"""Which strategy a call would take, why not the others, and what it costs."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from contconv import native
from contconv.functional import planned, trains
from contconv.kernels import Kernel
from contconv.kernels.sampling import basis_dtype
from contconv.modules import ContinuousConv
from contconv.precision import computing_dtype, full_precision
from contconv.size import PerAxis, Size, plain
from contconv.strategies import STRATEGIES, Cost, Problem, chosen
from contconv.strategies.model import predicted_seconds


@dataclass(frozen=True)
class Explanation:
    """`str()` of it is the text for people."""

    strategy: str
    reasons: dict[str, list[str]]  # against each strategy; none: it can run
    costs: dict[str, Cost]  # of those that can
    seconds: dict[str, float | None]  # what the cost model expects of them
    native: str  # whether the native kernel is there
    problem: Problem

    def __str__(self) -> str:
        problem = self.problem
        lines = [
            f"[{problem.batch}, {problem.in_channels}, {_by(problem.in_size)}] -> "
            f"[{problem.batch}, {problem.out_channels}, {_by(problem.out_size)}] at scale "
            f"{_by(plain(axis.scale) for axis in problem.axes)}: {_by(axis.phases for axis in problem.axes)} phases, "
            f"{_by(axis.taps for axis in problem.axes)} taps, {problem.basis_functions} basis functions"
        ]
        for name, reasons in self.reasons.items():
            mark = "->" if name == self.strategy else "  "
            if name in self.costs:
                cost = self.costs[name]
                seconds = self.seconds[name]
                expected = "" if seconds is None else f", expected {1e3 * seconds:.3g} ms"
                work = f"{cost.macs / 1e6:.6g} M multiply-adds, {cost.bytes / 2**20:.4g} MiB of scratch"
                lines.append(f"{mark} {name:<10} {work}{expected}")
            else:
                lines.append(f"{mark} {name:<10} cannot: {'; '.join(reasons)}")
        return "\n".join([*lines, self.native])


def explain(
    layer: ContinuousConv,
    x_or_shape: Tensor | torch.Size | tuple[int, ...],
    scale: PerAxis | None = None,
    size: Size | None = None,
) -> Explanation:
    """What `layer(x, scale=scale, size=size)` would do, without doing it.

    A shape stands for an x that wants a gradient, unless gradients are off. Multiply-adds are those of a forward pass
    that finds no samples of the kernel from an earlier one, half of what `torch.utils.flop_counter` counts.

    >>> layer = contconv.ContinuousConv2d(3, 8, 3)
    >>> contconv.explain(layer, (1, 3, 64, 64), scale=1 / 2).strategy
    'conv'
    """
    if not isinstance(layer, ContinuousConv):
        raise TypeError(f"layer must be a ContinuousConv1d, 2d or 3d, got {type(layer).__name__}")
    if not isinstance(x_or_shape, (Tensor, tuple, list)):
        raise TypeError(f"x_or_shape must be a tensor or its shape [N, C, *in], got {x_or_shape!r}")
    mixing = layer.kernel.mixing
    if isinstance(x_or_shape, Tensor):
        shape, dtype, device = x_or_shape.shape, computing_dtype(x_or_shape), x_or_shape.device
        training = trains(x_or_shape, layer.kernel)
    else:
        shape, dtype, device = torch.Size(x_or_shape), mixing.dtype, mixing.device
        training = torch.is_grad_enabled()
    if len(shape) != layer.axes + 2 or shape[1] != layer.in_channels or min(shape[1:]) < 1:
        raise ValueError(
            f"x must be [N, {layer.in_channels}, *in] with {layer.axes} spatial axes, got shape {tuple(shape)}"
        )
    grid = layer.resize(shape[2:], scale=scale, size=size)
    problem = planned(
        shape, layer.kernel, scale=grid.scale, size=grid.size, center=grid.center,
        padding_mode=layer.padding_mode, antialias=layer.antialias, kernel_size=layer.kernel_size,
        memory_limit=layer.memory_limit, training=training, dtype=dtype, device=device,
    )  # fmt: skip
    problem = replace(problem, basis_macs=basis_macs(layer.kernel, layer.axes))
    reasons = {name: strategy.why_not(problem) for name, strategy in STRATEGIES.items()}
    costs = {name: STRATEGIES[name].cost(problem) for name, against in reasons.items() if not against}
    seconds = {name: predicted_seconds(STRATEGIES[name], problem) for name in costs}
    choice = chosen(problem, layer.strategy)
    costs[choice.name] = choice.cost(problem)  # `memory_limit` may chunk another strategy than `chunked` does by itself
    return Explanation(choice.name, reasons, costs, seconds, native.status(), problem)


def basis_macs(kernel: Kernel, axes: int) -> int:
    """Multiply-adds of the basis at one displacement, as torch counts them: matrix products only."""
    from torch.utils.flop_counter import FlopCounterMode

    device = kernel.mixing.device
    d = torch.zeros(1, axes, device=device, dtype=basis_dtype(kernel, device))
    with FlopCounterMode(display=False) as counter, torch.no_grad(), full_precision(device):
        kernel.basis(d)
    return counter.get_total_flops() // 2


def _by(sizes: Iterable[object]) -> str:
    return " x ".join(str(size) for size in sizes)
