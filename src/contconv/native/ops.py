"""The native kernel as differentiable operations of torch: `contconv::forward` and `contconv::backward`.

    y[n, o, co] = bias[co] + sum over t, r, ci of x[n, source(o, t), ci] * basis[phase(o), t, r] * mixing[r, co, ci]

    x       [N, D, H, W, Cin]         contiguous float32 (problems of fewer axes have leading axes of size 1)
    tables  three of [out, 1 + K]     int32: the phase of an output, then the input index of each tap, -1 for padding
    weights [P0, P1, P2, T, R]        the basis, T = K0 * K1 * K2 row major; with mixing [R, Cout, Cin / groups]
                                      or one mixing per tap, [T, R, Cout, Cin / groups]
            [P0, P1, P2, T, Cout, Cin / groups]   the filters themselves; with mixing None
    y       [N, Do, Ho, Wo, Cout]

The map is linear in x, weights and mixing each, so the derivative of either operation is made of these two again.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from threading import local

import torch
from torch import Tensor

from contconv.native import library

ALGORITHMS = {
    "filters": 0,  # form each class's filter in cache, apply it to the class's pixels in the whole batch
    "factored-output": 1,  # basis . x at each output pixel, then mixing; never forms a filter
    "factored-input": 2,  # mixing . x at each input pixel, then basis; its backward is that of "factored-output"
    "made-filters": 3,  # form all filters first, and go on as with given ones: for few
    "few-outputs": 4,  # as "factored-input", and its backward likewise: for few output channels, in one group
}


# A result beyond what the C library's allocator keeps is new memory at every call. In training, where tensors of all
# sizes come and go, large pages are rarely at hand, and a virtual machine may have to get them from its host.
NEW_EACH_TIME = 32 * 2**20


class _Here(local):
    """What this thread wants of an operation."""

    output = True
    inference = False


_here = _Here()


@contextmanager
def tape_only() -> Iterator[None]:
    """In the block, forward operations record what backward needs and leave their output, on which none of it depends,
    unwritten."""
    before, _here.output = _here.output, False
    try:
        yield
    finally:
        _here.output = before


def writes_output() -> bool:
    """False in a block of `tape_only`."""
    return _here.output


def axis_table(source: Tensor, phase: Tensor) -> Tensor:
    """The table of one axis: source [out, K] (-1 is padding) and phase [out] -> [out, 1 + K], int32.

    >>> axis_table(torch.tensor([[-1, 0, 1], [0, 1, -1]]), torch.tensor([0, 0]))
    tensor([[ 0, -1,  0,  1],
            [ 0,  0,  1, -1]], dtype=torch.int32)
    """
    return torch.cat([phase[:, None], source], dim=1).to(torch.int32).contiguous()


def convolve(
    x: Tensor,
    tables: Sequence[Tensor],
    weights: Tensor,
    mixing: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    groups: int = 1,
    algorithm: str = "filters",
) -> Tensor:
    """y as in the head of this file; differentiable any number of times in x, weights, mixing and bias.

    >>> x = torch.ones(1, 1, 1, 3, 1)
    >>> trivial = axis_table(torch.tensor([[0]]), torch.tensor([0]))
    >>> last = axis_table(torch.tensor([[-1, 0], [0, 1], [1, 2]]), torch.tensor([0, 0, 0]))
    >>> filters = torch.tensor([1.0, 10.0]).reshape(1, 1, 1, 2, 1, 1)
    >>> convolve(x, (trivial, trivial, last), filters).flatten()
    tensor([10., 11., 11.])
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm={algorithm!r} is not one of {', '.join(ALGORITHMS)}")
    t0, t1, t2 = tables
    _here.inference = not torch.is_grad_enabled()  # the operation itself is always called without
    return torch.ops.contconv.forward(x, t0, t1, t2, weights, mixing, bias, groups, ALGORITHMS[algorithm])


def _out_channels(weights: Tensor, mixing: Tensor | None) -> int:
    return weights.shape[4] if mixing is None else mixing.shape[-2]


def _y_shape(x: Tensor, tables: Sequence[Tensor], weights: Tensor, mixing: Tensor | None) -> list[int]:
    return [x.shape[0], *(table.shape[0] for table in tables), _out_channels(weights, mixing)]


def problem_of(
    x: Tensor, tables: Sequence[Tensor], weights: "Form", mixing: Tensor | None, groups: int, algorithm: int
) -> library.Problem:
    """The checked problem: whatever passes here, the kernel reads and writes within the tensors."""
    t0, t1, t2 = tables
    return _stated(
        (x.dtype, x.shape), (_form(t0), _form(t1), _form(t2)), weights,
        None if mixing is None else (mixing.dtype, mixing.shape), groups, algorithm, torch.get_num_threads(),
    )  # fmt: skip


Form = tuple[torch.dtype, torch.Size]
TableForm = tuple[torch.dtype, torch.Size, bool, int]


def _form(table: Tensor) -> TableForm:
    return table.dtype, table.shape, table.is_contiguous(), table.data_ptr()


@lru_cache(maxsize=4096)
def _stated(
    x: Form, tables: tuple[TableForm, ...], weights: Form, mixing: Form | None, groups: int, algorithm: int,
    threads: int,
) -> library.Problem:  # fmt: skip
    """The problem of tensors in these forms, made once: it takes longer than a small convolution. Never write to it."""
    if reason := _why_not(x, tables, weights, mixing, groups, algorithm):
        raise ValueError(reason)
    n, d, h, w, channels = x[1]
    outs, taps, pointers = zip(*((shape[0], shape[1] - 1, pointer) for _, shape, _, pointer in tables), strict=True)
    return library.Problem(
        n,
        channels,
        weights[1][4] if mixing is None else mixing[1][-2],
        groups,
        0 if mixing is None else weights[1][4],
        (d, h, w),
        outs,
        taps,
        tuple(weights[1][:3]),
        pointers,
        mixing is not None and len(mixing[1]) == 4,
        threads,
    )


def _why_not(
    x: Form, tables: Sequence[TableForm], weights: Form, mixing: Form | None, groups: int, algorithm: int
) -> str | None:
    taps = 1
    for a, (dtype, shape, is_contiguous, _) in enumerate(tables):
        if dtype != torch.int32 or len(shape) != 2 or shape[1] < 2 or not is_contiguous:
            return f"table{a} must be contiguous int32 of shape [out, 1 + K], but is {_described(dtype, shape)}"
        taps *= shape[1] - 1
    for name, form in (("x", x), ("weights", weights), ("mixing", mixing)):
        if form is not None and form[0] != torch.float32:
            return f"{name} must be float32, but is {form[0]}"
    pixels, filters = x[1], weights[1]
    if len(pixels) != 5 or groups < 1 or pixels[4] % groups != 0 or pixels[4] == 0:
        return f"x must be [N, D, H, W, Cin] with Cin a multiple of groups={groups}, but is {_described(*x)}"
    if len(filters) != (6 if mixing is None else 5) or filters[3] != taps:
        return f"weights must be [P0, P1, P2, {taps}, R], or [.., Cout, Cin / groups], but are {_described(*weights)}"
    if mixing is not None and filters[4] == 0:
        return f"weights must have at least one basis function, but are {_described(*weights)}"
    channels = (weights if mixing is None else mixing)[1][-2:]
    if channels[1] != pixels[4] // groups or channels[0] % groups != 0 or channels[0] == 0:
        fit = f"which does not fit x {_described(*x)}, {groups=}"
        return f"the weights map {list(channels)} [Cout, Cin / groups], {fit}"
    if mixing is not None and tuple(mixing[1][:-2]) not in ((filters[4],), (taps, filters[4])):
        return f"mixing must be [R, Cout, Cin / groups] with R={filters[4]}, but is {_described(*mixing)}"
    if algorithm != 0 and (mixing is None or len(mixing[1]) == 4):
        names = ", ".join(name for name in ALGORITHMS if name != "filters")
        return f"{names} need a basis and one mixing for all taps"
    if algorithm == ALGORITHMS["few-outputs"] and groups > 1:
        return f"few-outputs wants one group, not {groups}"
    return None


def _described(dtype: torch.dtype, shape: Sequence[int]) -> str:
    return f"{str(dtype).removeprefix('torch.')}{list(shape)}"


def address(tensor: Tensor | None) -> int | None:
    """Where it begins in memory."""
    return None if tensor is None else tensor.data_ptr()


def _forward(
    x: Tensor,
    table0: Tensor,
    table1: Tensor,
    table2: Tensor,
    weights: Tensor,
    mixing: Tensor | None,
    bias: Tensor | None,
    groups: int,
    algorithm: int,
) -> Tensor:
    x, weights = x.contiguous(), weights.contiguous()
    mixing = None if mixing is None else mixing.contiguous()
    tables = (table0, table1, table2)
    problem = problem_of(x, tables, (weights.dtype, weights.shape), mixing, groups, algorithm)
    if bias is not None:
        if bias.dtype != torch.float32 or tuple(bias.shape) != (problem.out_channels,):
            told = _described(bias.dtype, bias.shape)
            raise ValueError(f"bias must be float32 [{problem.out_channels}], but is {told}")
        bias = bias.contiguous()
    y = x.new_empty(_y_shape(x, tables, weights, mixing))
    inputs = library.Inputs(x.data_ptr(), None, weights.data_ptr(), address(mixing), address(bias))
    if _here.inference and y.nbytes >= NEW_EACH_TIME:
        library.ask_for_large_pages(y.data_ptr(), y.nbytes)
    if writes_output():
        library.forward(problem, inputs, y.data_ptr(), algorithm)
    return y


def _fake_forward(
    x: Tensor,
    table0: Tensor,
    table1: Tensor,
    table2: Tensor,
    weights: Tensor,
    mixing: Tensor | None,
    bias: Tensor | None,
    groups: int,
    algorithm: int,
) -> Tensor:
    return x.new_empty(_y_shape(x, (table0, table1, table2), weights, mixing))


def _backward(
    x: Tensor,
    grad_y: Tensor,
    table0: Tensor,
    table1: Tensor,
    table2: Tensor,
    weights: Tensor,
    mixing: Tensor | None,
    groups: int,
    algorithm: int,
    need_x: bool,
    need_weights: bool,
    need_mixing: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    x, grad_y, weights = x.contiguous(), grad_y.contiguous(), weights.contiguous()
    mixing = None if mixing is None else mixing.contiguous()
    tables = (table0, table1, table2)
    problem = problem_of(x, tables, (weights.dtype, weights.shape), mixing, groups, algorithm)
    if grad_y.dtype != torch.float32 or list(grad_y.shape) != _y_shape(x, tables, weights, mixing):
        raise ValueError(f"grad_y must be float32 with the shape of y, but is {_described(grad_y.dtype, grad_y.shape)}")
    like = (x if need_x else None, weights if need_weights else None, mixing if need_mixing else None)
    grads = [None if tensor is None else torch.empty_like(tensor) for tensor in like]
    inputs = library.Inputs(x.data_ptr(), grad_y.data_ptr(), weights.data_ptr(), address(mixing), None)
    library.backward(problem, inputs, library.Gradients(*map(address, grads)), algorithm)
    grad_x, grad_weights, grad_mixing = (x.new_empty(0) if grad is None else grad for grad in grads)
    return grad_x, grad_weights, grad_mixing


def _fake_backward(
    x: Tensor,
    grad_y: Tensor,
    table0: Tensor,
    table1: Tensor,
    table2: Tensor,
    weights: Tensor,
    mixing: Tensor | None,
    groups: int,
    algorithm: int,
    need_x: bool,
    need_weights: bool,
    need_mixing: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        x.new_empty(x.shape if need_x else (0,)),
        weights.new_empty(weights.shape if need_weights else (0,)),
        weights.new_empty(mixing.shape if need_mixing and mixing is not None else (0,)),
    )


torch.library.define(
    "contconv::forward",
    "(Tensor x, Tensor table0, Tensor table1, Tensor table2, Tensor weights, Tensor? mixing, Tensor? bias, int groups, "
    "int algorithm) -> Tensor",
)
torch.library.define(
    "contconv::backward",
    "(Tensor x, Tensor grad_y, Tensor table0, Tensor table1, Tensor table2, Tensor weights, Tensor? mixing, "
    "int groups, int algorithm, bool need_x, bool need_weights, bool need_mixing) -> (Tensor, Tensor, Tensor)",
)
torch.library.impl("contconv::forward", "CPU", _forward)
torch.library.impl("contconv::backward", "CPU", _backward)
torch.library.register_fake("contconv::forward", _fake_forward)
torch.library.register_fake("contconv::backward", _fake_backward)

import contconv.native.flops  # noqa: E402  (registers what a flop counter counts for what is defined above)
import contconv.native.gradients  # noqa: E402, F401  (registers its derivatives)
