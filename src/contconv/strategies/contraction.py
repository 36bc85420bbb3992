"""What `factored` does in plain PyTorch: basis and mixing one after the other, as batches of matrix products."""

import math
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from contconv.grid import Axis, phase_index, pixels_read, sources
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
    contraction = contracted_at_output if begins_at_output(problem) else contracted_at_input
    y = contraction(x.to(dtype), basis, mixing, problem)  # [N, g, Co, out]
    return biased(y.reshape(problem.batch, problem.out_channels, *problem.out_size).to(x.dtype), bias)


def begins_at_output(problem: Problem) -> bool:
    """Whether less is moved if neighbours are contracted first, and mixed then: such small products take as long as
    their memory."""
    return moved_at_output(problem) <= moved_at_input(problem)


def moved_at_output(problem: Problem) -> int:
    """Numbers: Cin of every neighbour, and Cin in every function of what they are contracted to."""
    return problem.batch * problem.outputs * problem.in_channels * (problem.taps + problem.basis_functions)


def moved_at_input(problem: Problem) -> int:
    """Numbers: Cout in every function of every neighbour, and of every pixel that is mixed."""
    pixels = problem.outputs * problem.taps + inputs_read(problem)
    return problem.batch * pixels * problem.out_channels * problem.basis_functions


def inputs_read(problem: Problem) -> int:
    """Pixels of an image in the rows (along the first axis) that are read: a block of output rows needs no others."""
    rows = pixels_read(problem.axes[0], problem.padding_mode)
    return (rows.stop - rows.start) * math.prod(problem.in_size[1:])


def contracted_macs(problem: Problem) -> int:
    """Multiply-adds, those that sample the kernel among them."""
    if begins_at_output(problem):
        numbers = problem.outputs * (problem.in_channels * problem.taps + problem.weights)
    else:
        numbers = problem.outputs * problem.out_channels * problem.taps + inputs_read(problem) * problem.weights
    return problem.batch * problem.basis_functions * numbers + problem.sampling_macs


def contracted_bytes(problem: Problem) -> int:
    """What `contracted` needs: the neighbours, what they are contracted to, and the basis of every output."""
    functions = problem.basis_functions
    if begins_at_output(problem):
        numbers = problem.outputs * problem.in_channels * (3 * problem.taps + 2 * functions)
    else:
        numbers = functions * problem.out_channels * (3 * problem.outputs * problem.taps + inputs_read(problem))
    mixing = (3 if problem.training else 1) * functions * problem.weights  # turned around, and its gradient
    own = problem.outputs * problem.taps
    return problem.width * (problem.batch * numbers + own * functions + mixing) + 8 * own  # and an index


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
    pixels = read(x, problem).flatten(2).permute(2, 0, 1)  # [in, N, Cin]
    z = torch.bmm(looked_up(pixels.flatten(1), problem).mT, basis)  # [out, N * Cin, R]
    z = z.reshape(problem.outputs * images, problem.groups, channels // problem.groups * mixing.shape[0])
    y = torch.bmm(z.transpose(0, 1), mixing.permute(1, 3, 0, 2).flatten(1, 2))  # [g, out * N, Co]
    return y.unflatten(1, (problem.outputs, images)).permute(2, 0, 3, 1)


def contracted_at_input(x: Tensor, basis: Tensor, mixing: Tensor, problem: Problem) -> Tensor:
    """x: [N, Cin, *in], basis: [out, T, R], mixing: [R, g, Co, Ci] -> [N, g, Co, out]. One product each, as above."""
    images, (functions, groups, out, channels) = x.shape[0], mixing.shape
    pixels = read(x, problem).flatten(2).movedim(-1, 0).reshape(-1, groups, channels)  # [in * N, g, Ci]
    u = torch.bmm(pixels.transpose(0, 1), mixing.permute(1, 3, 0, 2).flatten(2))  # [g, in * N, R * Co]
    u = u.reshape(groups, inputs_read(problem), images, functions, out).permute(1, 3, 2, 0, 4)  # [in, R, N, g, Co]
    near = looked_up(u.flatten(1), problem).reshape(problem.outputs, problem.taps * functions, -1)
    y = torch.bmm(near.mT, basis.flatten(1)[:, :, None]).squeeze(-1)  # [out, N * g * Co]
    return y.reshape(problem.outputs, images, groups, out).permute(1, 2, 3, 0)


def read(x: Tensor, problem: Problem) -> Tensor:
    """[N, Cin, *in] -> the same with no more rows (along the first axis) than are read."""
    return x[:, :, pixels_read(problem.axes[0], problem.padding_mode)]


def looked_up(pixels: Tensor, problem: Problem) -> Tensor:
    """[in, C] -> [out, T, C] the neighbours of every output pixel."""
    kept = problem.outputs * problem.taps <= KEPT_ENTRIES
    places = (neighbours if kept else neighbours.__wrapped__)(problem.axes, problem.padding_mode, pixels.device)
    return F.embedding(places, F.pad(pixels, (0, 0, 0, 1)), padding_idx=inputs_read(problem))


@lru_cache(maxsize=64)
def neighbours(axes: tuple[Axis, ...], padding_mode: str, device: torch.device) -> Tensor:
    """[out, T] which of the pixels that are `read` each neighbour is; the one after the last where it is zero."""
    count, rows = len(axes), pixels_read(axes[0], padding_mode)
    with unobserved():
        pixel, inside = torch.tensor(-rows.start), torch.tensor(True)
        for number, axis in enumerate(axes):
            shape = [1] * (2 * count)
            shape[number], shape[count + number] = axis.out_size, axis.taps
            source = sources(axis, padding_mode, torch.device("cpu")).view(shape)
            pixel, inside = pixel * (axis.in_size if number else 1) + source, inside & (source >= 0)
        last = (rows.stop - rows.start) * math.prod(axis.in_size for axis in axes[1:])
        return torch.where(inside, pixel, last).flatten(count).flatten(0, count - 1).to(device)
