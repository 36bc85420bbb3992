"""The bridge to the native kernel: whether it serves a problem, and the problem in its terms."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from contconv import native
from contconv.grid import Axis, cut, phase_index, pixels_read, sources
from contconv.kernels import Kernel, is_net
from contconv.kernels.internal_net import SLOPE
from contconv.kernels.memory import MOST_BYTES
from contconv.kernels.sampling import rounded_offset, sampled_basis, sampled_weights
from contconv.native import ops, sampled
from contconv.strategies.problem import Problem
from contconv.transforms import transformed, unobserved

# Filters of up to this size in all, or twice that where each serves several pixels of an image and a batch is much
# larger than all of them, are made before anything else; larger ones in cache, as they are used.
FILTER_BYTES = 2**20
SEVERAL = 4
MUCH_LARGER = 8

# A basis that is too large to be remembered is made in pieces of this size, which stay in the cache, and whose memory
# is used again and again.
PIECE_BYTES = 8 * 2**20

# A net is sampled for each output pixel where phases are this share of them or more, and its samples are used for all
# images of a batch, if those have so many pixels.
SHARED = 0.5
MANY_OUTPUTS = 1024

# What a thread makes at a time of a basis that is not stored, of several pixels, and as much of its gradient and units
# (cpp/pixel_basis.h).
IN_PLACE_BYTES = 128 * 2**10

# What a thread makes at a time of inputs that are mixed before anything else, for few output channels.
MIXED_BYTES = 2 * 2**20
FEWEST_ROWS = 4

# Copies of a gradient that threads add to apart, as in the kernel.
FEWEST_COPIES, MOST_COPIES = 4, 16
PANEL, PANELS_BYTES = 32, 512 * 2**10  # output channels that are shared out together, all of them if filters are small
PIXELS_OF_A_CLASS, PIXELS_OF_A_SHARE = 6 * 48, 1024
FEW_COPIES_BYTES, FILTERS_COPIES_BYTES, COPIES_BYTES = 4 * 2**20, 8 * 2**20, 16 * 2**20

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


@dataclass(frozen=True)
class Plan:
    """How the native kernel goes about a problem."""

    filters: bool
    """All filters are made before anything else: in training by the kernel itself, where they are basis . mixing."""
    axis: int = 0
    rows: int | None = None
    """So many outputs along the axis are made at once; None: all."""
    in_place: bool = False
    """A basis that is a net is sampled by the native kernel itself: for each pixel, or for all filters."""


def plan_of(problem: Problem, algorithm: str) -> Plan:
    """Without gradients, a basis that is too large to be remembered is made and used in pieces.

    Pieces are cut along an axis whose outputs are all of different phases, so that no two need the same of the basis.
    """
    if algorithm == "filters" and _few(problem):
        return Plan(filters=True, in_place=problem.training and problem.net and not _weighted(problem))
    basis = _basis_bytes(problem)
    if problem.training and problem.net and _made_there(problem, algorithm):
        return Plan(filters=False, in_place=True)
    if problem.training or basis <= MOST_BYTES:
        return Plan(filters=False)
    lengths = {n: axis.out_size for n, axis in enumerate(problem.axes) if axis.phases == axis.out_size}
    if not lengths:
        return Plan(filters=False)
    long_enough = [n for n, length in lengths.items() if basis <= PIECE_BYTES * length]
    axis = long_enough[0] if long_enough else max(lengths, key=lengths.__getitem__)
    return Plan(False, axis, max(1, PIECE_BYTES * lengths[axis] // basis))


def native_conv(x: Tensor, kernel: Kernel, bias: Tensor | None, problem: Problem, algorithm: str) -> Tensor:
    """x: [N, Cin, *in] -> [N, Cout, *out] (channels last in memory) by one of `native.ops.ALGORITHMS`."""
    plan = plan_of(problem, algorithm)
    pixels = x.movedim(1, -1)
    if plan.rows is None or transformed():
        return _convolved(pixels, kernel, bias, problem, algorithm, plan).movedim(-1, 1)
    pixels = pixels.contiguous()
    y = x.new_empty(problem.batch, *problem.out_size, problem.out_channels)
    for start, stop in _pieces(problem, plan):
        part = replace(problem, axes=_cut(problem, plan.axis, start, stop))
        near = _near(part.axes[plan.axis], problem.padding_mode)
        seen = pixels.narrow(1 + plan.axis, near.first, near.count)
        to = y.narrow(1 + plan.axis, start, stop - start)
        to.copy_(_convolved(seen, kernel, bias, part, algorithm, plan, near.table))
    return y.movedim(-1, 1)


def _convolved(
    pixels: Tensor, kernel: Kernel, bias: Tensor | None, problem: Problem, algorithm: str, plan: Plan,
    table: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """[N, *in, Cin] -> [N, *out, Cout]. table: that of the plan's axis, for a piece."""
    ones = (1,) * (3 - len(problem.axes))  # axes that the native kernel has and the problem has not
    pixels = pixels.reshape(problem.batch, *ones, *pixels.shape[1:])
    y = _in_place(pixels, kernel, bias, problem, algorithm, plan) if plan.in_place else None
    if y is None:
        tables = _tables(problem)
        if table is not None:
            tables[len(ones) + plan.axis] = table
        made = plan.filters and problem.training and not (problem.per_tap or problem.normalize)
        weights, mixing = (
            _filters(kernel, problem)
            if plan.filters and not made
            else _basis_and_mixing(kernel, problem, once=table is not None)
        )
        algorithm = "made-filters" if made else algorithm
        phases = ones + tuple(axis.phases for axis in problem.axes)
        weights = weights.reshape(*phases, problem.taps, *weights.shape[2 * len(problem.axes) :])
        y = ops.convolve(pixels, tables, weights, mixing, bias, groups=problem.groups, algorithm=algorithm)
    return y.reshape(problem.batch, *problem.out_size, problem.out_channels)


def _in_place(
    pixels: Tensor, kernel: Kernel, bias: Tensor | None, problem: Problem, algorithm: str, plan: Plan
) -> Tensor | None:
    """By a basis that is made where it is used; None if somebody looks on for whom it must be stored, or if it does not
    fit the mixing, which is told there."""
    assert is_net(kernel)
    parameters, mixing = kernel.net_parameters(), kernel.mixing
    fits = len(mixing) == len(parameters[-1]) + 1
    if not fits or not sampled.serves(pixels, parameters, mixing, bias, SLOPE):
        return None
    sampling = _sampling(problem, "made-filters" if plan.filters else algorithm)
    return sampled.convolve(pixels, parameters, mixing, bias, sampling)


@lru_cache(maxsize=1024)
def _sampling(problem: Problem, algorithm: str) -> sampled.Sampling:
    axes = problem.axes
    return sampled.Sampling(_tables(problem), _offsets(axes), len(axes), SLOPE, problem.groups, algorithm)


def _pieces(problem: Problem, plan: Plan) -> Iterator[tuple[int, int]]:
    """The outputs start ... stop - 1 along the plan's axis, piece by piece."""
    length = problem.axes[plan.axis].out_size
    for start in range(0, length, plan.rows or length):
        yield start, min(start + (plan.rows or length), length)


def _cut(problem: Problem, number: int, start: int, stop: int) -> tuple[Axis, ...]:
    return tuple(cut(axis, start, stop) if n == number else axis for n, axis in enumerate(problem.axes))


def native_bytes(problem: Problem, algorithm: str) -> int:
    """What a call of the native kernel needs beyond input, output and parameters."""
    plan = plan_of(problem, algorithm)
    own = 8 * problem.taps * problem.weights * (problem.phases if plan.filters else torch.get_num_threads())
    if algorithm != "filters":
        own = _mixing_bytes(problem)
    basis = _basis_bytes(problem)
    if plan.in_place and algorithm in sampled.FOR_PIXELS:
        at_once = max(min(basis, IN_PLACE_BYTES), basis // problem.outputs)
        basis = min(3 * basis, 3 * torch.get_num_threads() * at_once)
    if plan.rows is not None:
        basis = basis // problem.axes[plan.axis].out_size * plan.rows
    if algorithm == "few-outputs":
        basis += _mixed_bytes(problem) * torch.get_num_threads()
    back = _back_bytes(problem, algorithm, plan) if problem.training else 0
    return basis + own + back


def _back_bytes(problem: Problem, algorithm: str, plan: Plan) -> int:
    """What gradients take besides, at most: mixing in the orders that the passes want it in, and copies of its gradient
    (of few filters', that of the filters) to which threads add apart; cpp/grad_weights.h, few_gradients.h and
    factored_gradients.h say how many."""
    mixing, pixels = _mixing_bytes(problem), problem.batch * problem.outputs
    if plan.filters:
        filters = 4 * problem.phases * problem.taps * problem.weights
        shares = max(FEWEST_COPIES, pixels // (PIXELS_OF_A_CLASS * problem.phases))
        return mixing + min(shares, _copies(filters, FEW_COPIES_BYTES)) * filters
    if algorithm != "filters":
        shares = max(MOST_COPIES // 2, pixels // PIXELS_OF_A_SHARE)
        return (min(shares, _copies(mixing, COPIES_BYTES)) + 1) * mixing
    panels = problem.groups * math.ceil(problem.out_channels / problem.groups / PANEL)
    together = 4 * problem.taps * problem.weights <= PANELS_BYTES
    shares = MOST_COPIES // 2 if together else math.ceil(MOST_COPIES / panels)
    return (min(shares, _copies(mixing, FILTERS_COPIES_BYTES)) + 3) * mixing


def _mixing_bytes(problem: Problem) -> int:
    return 4 * problem.basis_functions * problem.weights * (problem.taps if problem.per_tap else 1)


def _copies(size: int, most_bytes: int) -> int:
    return min(MOST_COPIES, max(FEWEST_COPIES, most_bytes // max(1, size)))


def _mixed_bytes(problem: Problem) -> int:
    """What a thread makes at a time of mixed inputs, and of their gradients (cpp/few_outputs.h): as many rows as have
    room, but not too few."""
    first, *others = problem.axes
    row = math.prod(axis.in_size + axis.taps for axis in others)
    row *= 8 * (problem.basis_functions * problem.out_channels + 32)  # whole vectors
    fewest = math.ceil(FEWEST_ROWS / first.scale) + first.taps
    return min(problem.batch * (first.in_size + first.taps) * row, max(MIXED_BYTES, fewest * row))


def inputs_seen(problem: Problem, algorithm: str) -> int:
    """Input pixels of an image that the kernel is called with; pieces see those at their borders twice."""
    plan = plan_of(problem, algorithm)
    if plan.rows is None:
        return problem.inputs
    axis, mode = problem.axes[plan.axis], problem.padding_mode
    rows = sum(_near(cut(axis, start, stop), mode).count for start, stop in _pieces(problem, plan))
    return problem.inputs // axis.in_size * rows


def sampled_anew(problem: Problem, algorithm: str) -> int:
    """Numbers of the basis that every call without gradients makes again, because they are too many to be kept."""
    return 0 if plan_of(problem, algorithm).rows is None else _basis_bytes(problem) // 4


def _made_there(problem: Problem, algorithm: str) -> bool:
    """Whether a net is sampled by the algorithm itself: once for all filters or, factored, where few output pixels have
    samples in common, and those of several images are enough to be shared out among threads."""
    seen_once = SHARED * problem.outputs <= problem.phases and (problem.batch == 1 or problem.outputs >= MANY_OUTPUTS)
    return not _weighted(problem) and (algorithm == "filters" or (algorithm in sampled.FOR_PIXELS and seen_once))


def _weighted(problem: Problem) -> bool:
    """Whether what the basis says is not yet what counts at a displacement."""
    return problem.normalize or any(axis.stretch != 1 for axis in problem.axes)


def _basis_bytes(problem: Problem) -> int:
    return 4 * problem.phases * problem.taps * problem.basis_functions


def lane_waste(channels: int) -> float:
    """What vectors compute for each lane that is used, with so many channels along the lanes.

    >>> lane_waste(32), 9 * lane_waste(9) in (12, 16)  # vectors of four, or of eight or sixteen
    (1.0, True)
    """
    lanes = native.library.lanes()
    return -(-channels // lanes) * lanes / channels


def few_output_lanes(functions: int, channels: int) -> int:
    """Those of vectors in which functions and output channels lie side by side (`FewLanes` in cpp/few_outputs.h)."""
    lanes = native.library.lanes()
    vectors = -(-channels // lanes)
    wide = functions // lanes + (functions % lanes * vectors > channels)
    return lanes * (channels * wide + max(0, functions - wide * lanes) * vectors)


def _few(problem: Problem) -> bool:
    depthwise = problem.groups == problem.in_channels == problem.out_channels  # the kernel wants its filters
    filters, batch = (
        problem.phases * problem.taps * problem.weights,
        problem.batch * problem.in_channels * problem.inputs,
    )
    large = problem.outputs >= SEVERAL * problem.phases and batch >= MUCH_LARGER * filters
    return depthwise or problem.normalize or 4 * filters <= (2 if large else 1) * FILTER_BYTES


def _filters(kernel: Kernel, problem: Problem) -> tuple[Tensor, None]:
    return sampled_weights(kernel, problem.axes, problem.device).float(), None


def _basis_and_mixing(kernel: Kernel, problem: Problem, *, once: bool) -> tuple[Tensor, Tensor]:
    return sampled_basis(kernel, problem.axes, problem.device, once=once).float(), kernel.mixing.float()


def _tables(problem: Problem) -> list[Tensor]:
    """Of three axes."""
    own = [_table(axis, problem.padding_mode) for axis in problem.axes]
    return [_trivial_table()] * (3 - len(own)) + own


@lru_cache(maxsize=1024)
def _table(axis: Axis, padding_mode: str) -> Tensor:
    with unobserved():
        return ops.axis_table(sources(axis, padding_mode, CPU), phase_index(axis, CPU))


@dataclass(frozen=True)
class Near:
    """The part of an axis that a piece reads, and the piece's table counted from there."""

    first: int
    count: int
    table: Tensor


@lru_cache(maxsize=1024)
def _near(axis: Axis, padding_mode: str) -> Near:
    read = pixels_read(axis, padding_mode)
    with unobserved():
        source = sources(axis, padding_mode, CPU)
        table = ops.axis_table(torch.where(source >= 0, source - read.start, -1), phase_index(axis, CPU))
        return Near(read.start, read.stop - read.start, table)


def _offsets(axes: tuple[Axis, ...]) -> list[Tensor]:
    """The displacements of the taps along each of three axes."""
    return [_trivial_offset()] * (3 - len(axes)) + [rounded_offset(axis, torch.float32, CPU) for axis in axes]


@lru_cache(maxsize=1)
def _trivial_offset() -> Tensor:
    with unobserved():
        return torch.zeros(1, 1)


@lru_cache(maxsize=1)
def _trivial_table() -> Tensor:
    """Of an axis that is not there: one pixel in, one pixel out."""
    with unobserved():
        return ops.axis_table(torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, dtype=torch.long))
