"""What `factored` does in plain PyTorch: basis and mixing one after the other, as batches of matrix products."""

import math
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from contconv.grid import Axis, phase_index, sources
from contconv.kernels import Kernel
from contconv.kernels.sampling import sampled_basis
from contconv.strategies.problem import Problem, biased
from contconv.transforms import unobserved

KEPT_ENTRIES = 2**18  # of an index that is kept from call to call


def contracted(x: Tensor, kernel: Kernel, bias: Tensor | None, problem: Problem) -> Tensor:
    """The whole contraction, at the end where less is moved."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    basis = basis_per_output(kernel, problem).to(dtype)
    mixing = kernel.mixing.to(dtype).unflatten(1, (problem.groups, problem.out_channels // problem.groups))
    contraction = contracted_at_output if moved_at_output(problem) <= moved_at_input(problem) else contracted_at_input
    y = contraction(x.to(dtype), basis, mixing, problem)  # [N, g, Co, out]
    return biased(y.reshape(problem.batch, problem.out_channels, *problem.out_size).to(x.dtype), bias)


def moved_at_output(problem: Problem) -> int:
    """Numbers of the neighbours and of what they are contracted to: such products take as long as their memory."""
    return problem.batch * problem.outputs * problem.in_channels * (problem.taps + problem.basis_functions)


def moved_at_input(problem: Problem) -> int:
    """The same where the neighbours are those of mixed pixels."""
    pixels = problem.outputs * problem.taps + problem.inputs
    return problem.batch * pixels * problem.out_channels * problem.basis_functions


def contracted_bytes(problem: Problem) -> int:
    """What `contracted` needs: the neighbours, what they are contracted to, and the basis of every output."""
    functions = problem.basis_functions
    if moved_at_output(problem) <= moved_at_input(problem):
        numbers = problem.outputs * problem.in_channels * (3 * problem.taps + 2 * functions)
    else:
        numbers = functions * problem.out_channels * (3 * problem.outputs * problem.taps + problem.inputs)
    return max(problem.dtype.itemsize, 4) * (problem.batch * numbers + problem.outputs * problem.taps * functions)


def basis_per_output(kernel: Kernel, problem: Problem) -> Tensor:
    """[out, T, R] with the outputs and the taps of all axes in one."""
    axes = len(problem.axes)
    basis = sampled_basis(kernel, problem.axes, problem.device)
    for number, axis in enumerate(problem.axes):
        if axis.phases < axis.out_size:
            basis = basis.index_select(number, phase_index(axis, problem.device))
    return basis.flatten(axes, -2).flatten(0, axes - 1)


def contracted_at_output(x: Tensor, basis: Tensor, mixing: Tensor, problem: Problem) -> Tensor:
    """x: [N, Cin, *in], basis: [out, T, R], mixing: [R, g, Co, Ci] -> [N, g, Co, out].

    One small matrix product for each output pixel, and one large one: batches of matrices that lie in memory as they
    are multiplied, whatever is differentiated. In any other order PyTorch copies them one by one.
    """
    images, channels = x.shape[:2]
    rows = x.flatten(2).permute(2, 0, 1).reshape(problem.inputs, images * channels)
    z = torch.bmm(looked_up(rows, problem).mT, basis)  # [out, N * Cin, R]
    z = z.view(problem.outputs * images, problem.groups, channels // problem.groups * mixing.shape[0])
    y = torch.bmm(z.transpose(0, 1), mixing.permute(1, 3, 0, 2).flatten(1, 2))  # [g, out * N, Co]
    return y.unflatten(1, (problem.outputs, images)).permute(2, 0, 3, 1)


def contracted_at_input(x: Tensor, basis: Tensor, mixing: Tensor, problem: Problem) -> Tensor:
    """x: [N, Cin, *in], basis: [out, T, R], mixing: [R, g, Co, Ci] -> [N, g, Co, out]. One product each, as above."""
    images, (functions, groups, out, channels) = x.shape[0], mixing.shape
    rows = x.flatten(2).movedim(-1, 0).reshape(-1, groups, channels)  # [in * N, g, Ci]
    u = torch.bmm(rows.transpose(0, 1), mixing.permute(1, 3, 0, 2).flatten(2))  # [g, in * N, R * Co]
    u = u.view(groups, problem.inputs, images, functions, out).permute(1, 3, 2, 0, 4)  # [in, R, N, g, Co]
    near = looked_up(u.flatten(1), problem).view(problem.outputs, problem.taps * functions, -1)
    y = torch.bmm(basis.flatten(1)[:, None], near)  # [out, 1, N * g * Co]
    return y.view(problem.outputs, images, groups, out).permute(1, 2, 3, 0)


def looked_up(rows: Tensor, problem: Problem) -> Tensor:
    """[in, C] -> [out, T, C] the neighbours of every output pixel, pixels being the rows of a table."""
    kept = problem.outputs * problem.taps <= KEPT_ENTRIES
    index = (source_pixels if kept else source_pixels.__wrapped__)(problem.axes, problem.padding_mode, rows.device)
    return F.embedding(index, F.pad(rows, (0, 0, 0, 1)), padding_idx=problem.inputs)


@lru_cache(maxsize=64)
def source_pixels(axes: tuple[Axis, ...], padding_mode: str, device: torch.device) -> Tensor:
    """[out, T] the input pixel that each neighbour is read from, and the one after the last where it is zero."""
    count = len(axes)
    with unobserved():
        pixel, inside = torch.zeros((), dtype=torch.long), torch.ones((), dtype=torch.bool)
        for number, axis in enumerate(axes):
            shape = [1] * (2 * count)
            shape[number], shape[count + number] = axis.out_size, axis.taps
            source = sources(axis, padding_mode, torch.device("cpu")).view(shape)
            pixel, inside = pixel * axis.in_size + source, inside & (source >= 0)
        pixel = torch.where(inside, pixel, math.prod(axis.in_size for axis in axes))
        return pixel.flatten(count).flatten(0, count - 1).to(device)
