"""The bridge to the native kernel: whether it serves a problem, and the problem in its terms."""

from functools import lru_cache

import torch
from torch import Tensor

from contconv import native
from contconv.grid import Axis, phase_index, sources
from contconv.kernels import Kernel
from contconv.kernels.memory import MOST_BYTES
from contconv.kernels.sampling import sampled_basis, sampled_weights
from contconv.native import ops
from contconv.strategies.blocks import block
from contconv.strategies.problem import Problem
from contconv.transforms import unobserved

# Filters of up to this size in all are made by PyTorch before the call; larger ones in cache, inside the kernel.
FILTER_BYTES = 2**20

# A basis that is too large to be remembered is made in pieces of this size, which stay in the cache, and whose memory
# is used again and again.
PIECE_BYTES = 8 * 2**20

CPU = torch.device("cpu")


def why_not_native(problem: Problem) -> list[str]:
    """The reasons against the native kernel; none: it serves."""
    reasons = []
    if problem.device.type != "cpu":
        reasons.append(f"the native kernel runs on the CPU, and x is on {problem.device.type}")
    if problem.dtype != torch.float32:
        reasons.append(f"the native kernel computes in float32, and x is {problem.dtype}")
    if problem.differentiated:
        reasons.append("the native kernel knows plain autograd only, not forward mode or the grad of torch.func")
    if not native.available():
        reasons.append(native.status())
    return reasons


def native_conv(x: Tensor, kernel: Kernel, bias: Tensor | None, problem: Problem, algorithm: str) -> Tensor:
    """x: [N, Cin, *in] -> [N, Cout, *out] (channels last in memory) by one of `native.ops.ALGORITHMS`."""
    pixels = x.movedim(1, -1).reshape(problem.batch, *_ones(problem), *problem.in_size, problem.in_channels)
    rows = _rows_at_once(problem, algorithm)
    if rows == problem.axes[0].out_size:
        y = _convolved(pixels, kernel, bias, problem, algorithm)
    else:
        y = x.new_empty(problem.batch, *problem.out_size, problem.out_channels)
        for start in range(0, problem.axes[0].out_size, rows):
            part = block(problem, problem.batch, start, start + rows)
            y[:, start : start + rows] = _convolved(pixels, kernel, bias, part, algorithm, once=True)
    return y.movedim(-1, 1)


def _convolved(
    pixels: Tensor, kernel: Kernel, bias: Tensor | None, problem: Problem, algorithm: str, *, once: bool = False
) -> Tensor:
    """[N, *in, Cin], with three axes -> [N, *out, Cout], with the problem's axes."""
    weights, mixing = (
        _filters(kernel, problem)
        if algorithm == "filters" and _few(problem)
        else _basis_and_mixing(kernel, problem, once)
    )
    ones = _ones(problem)
    phases = ones + tuple(axis.phases for axis in problem.axes)
    weights = weights.reshape(*phases, problem.taps, *weights.shape[2 * len(problem.axes) :])
    tables = [_trivial_table()] * len(ones) + [_table(axis, problem.padding_mode) for axis in problem.axes]
    y = ops.convolve(pixels, tables, weights, mixing, bias, groups=problem.groups, algorithm=algorithm)
    return y.reshape(problem.batch, *problem.out_size, problem.out_channels)


def _ones(problem: Problem) -> tuple[int, ...]:
    """The axes that the native kernel has and the problem has not."""
    return (1,) * (3 - len(problem.axes))


def _rows_at_once(problem: Problem, algorithm: str) -> int:
    """All output rows or, without gradients, so many that a basis too large to be remembered is made piece by piece."""
    rows = problem.axes[0].out_size
    if problem.training or _basis_bytes(problem) <= MOST_BYTES or (algorithm == "filters" and _few(problem)):
        return rows
    return max(1, PIECE_BYTES * rows // _basis_bytes(problem))


def _basis_bytes(problem: Problem) -> int:
    return 4 * problem.phases * problem.taps * problem.basis_functions


def native_bytes(problem: Problem, algorithm: str) -> int:
    """What a call of the native kernel needs beyond input, output and parameters."""
    filters = problem.phases if algorithm == "filters" and _few(problem) else torch.get_num_threads()
    basis, height = _basis_bytes(problem), problem.axes[0].out_size
    piece = -(-basis * _rows_at_once(problem, algorithm) // height) if height else basis
    return piece + 8 * filters * problem.taps * problem.weights


def sampled_anew(problem: Problem, algorithm: str) -> int:
    """Numbers of the basis that every call without gradients makes again, because they are too many to be kept."""
    is_kept = _rows_at_once(problem, algorithm) == problem.axes[0].out_size
    return 0 if is_kept else problem.phases * problem.taps * problem.basis_functions


def lane_waste(channels: int) -> float:
    """What a vector of eight computes for each lane that is used, with so many channels along the lanes.

    >>> lane_waste(32), lane_waste(3)
    (1.0, 2.6666666666666665)
    """
    return -(-channels // 8) * 8 / channels


def _few(problem: Problem) -> bool:
    depthwise = problem.groups == problem.in_channels == problem.out_channels  # the kernel wants its filters
    return depthwise or problem.normalize or 4 * problem.phases * problem.taps * problem.weights <= FILTER_BYTES


def _filters(kernel: Kernel, problem: Problem) -> tuple[Tensor, None]:
    return sampled_weights(kernel, problem.axes, problem.device).float(), None


def _basis_and_mixing(kernel: Kernel, problem: Problem, once: bool) -> tuple[Tensor, Tensor]:
    return sampled_basis(kernel, problem.axes, problem.device, once=once).float(), kernel.mixing.float()


@lru_cache(maxsize=1024)
def _table(axis: Axis, padding_mode: str) -> Tensor:
    with unobserved():
        return ops.axis_table(sources(axis, padding_mode, CPU), phase_index(axis, CPU))


@lru_cache(maxsize=1)
def _trivial_table() -> Tensor:
    """Of an axis that is not there: one pixel in, one pixel out."""
    with unobserved():
        return ops.axis_table(torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, dtype=torch.long))
