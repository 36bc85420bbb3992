"""Contract the basis and the mixing one after the other and never form a filter: memory without Cout * Cin per pixel.

At the output:  z[r] = sum over taps of basis_r * x     then  y = z . mixing     R Cin (T + Cout) multiply-adds
At the input:   u[r] = mixing_r . x, per input pixel    then  y = sum over taps and r of basis_r * u[r]
                                                              R Cout (T + Cin in/out) multiply-adds
"""

import math

import torch
from torch import Tensor

from contconv.grid import phase_index
from contconv.kernels import Kernel
from contconv.kernels.sampling import sampled_basis
from contconv.strategies.engine import native_conv, why_not_native
from contconv.strategies.problem import Cost, Problem, biased
from contconv.strategies.reference import extracted_neighbours


class Factored:
    name = "factored"

    def why_not(self, problem: Problem) -> list[str]:
        if problem.per_tap:
            return ["the kernel has one mixing per tap, which leaves nothing to factor out"]
        return []

    def cost(self, problem: Problem) -> Cost:
        at_output, at_input = macs_at_output(problem), macs_at_input(problem)
        width = max(problem.dtype.itemsize, 4)
        channels = problem.in_channels if at_output <= at_input else problem.basis_functions * problem.out_channels
        neighbours = problem.batch * problem.outputs * channels * problem.taps
        return Cost(macs=min(at_output, at_input), bytes=3 * width * neighbours)

    def run(self, x: Tensor, kernel: Kernel, bias: Tensor | None, problem: Problem) -> Tensor:
        at_output = macs_at_output(problem) <= macs_at_input(problem)
        if not why_not_native(problem):
            return native_conv(x, kernel, bias, problem, "factored-output" if at_output else "factored-input")
        dtype = torch.promote_types(x.dtype, torch.float32)
        basis = basis_per_output(kernel, problem).to(dtype)
        mixing = kernel.mixing.to(dtype).unflatten(1, (problem.groups, problem.out_channels // problem.groups))
        contracted = contracted_at_output if at_output else contracted_at_input
        y = contracted(x.to(dtype), basis, mixing, problem)  # [N, g, Co, out]
        return biased(y.reshape(problem.batch, problem.out_channels, *problem.out_size).to(x.dtype), bias)


def macs_at_output(problem: Problem) -> int:
    per_output = problem.in_channels * problem.taps + problem.weights
    return problem.batch * problem.outputs * problem.basis_functions * per_output


def macs_at_input(problem: Problem) -> int:
    per_output = problem.outputs * problem.out_channels * problem.taps + problem.inputs * problem.weights
    return problem.batch * problem.basis_functions * per_output


def basis_per_output(kernel: Kernel, problem: Problem) -> Tensor:
    """[out, T, R] with the outputs and the taps of all axes in one."""
    axes = len(problem.axes)
    basis = sampled_basis(kernel, problem.axes, problem.device)
    for number, axis in enumerate(problem.axes):
        basis = basis.index_select(number, phase_index(axis, problem.device))
    return basis.flatten(axes, -2).flatten(0, axes - 1)


def contracted_at_output(x: Tensor, basis: Tensor, mixing: Tensor, problem: Problem) -> Tensor:
    """x: [N, Cin, *in], basis: [out, T, R], mixing: [R, g, Co, Ci] -> [N, g, Co, out]."""
    z = torch.einsum("ncpt,ptr->nprc", seen(x, problem), basis)
    z = z.unflatten(-1, (problem.groups, problem.in_channels // problem.groups))
    return torch.einsum("nprgi,rgoi->ngop", z, mixing)


def contracted_at_input(x: Tensor, basis: Tensor, mixing: Tensor, problem: Problem) -> Tensor:
    """x: [N, Cin, *in], basis: [out, T, R], mixing: [R, g, Co, Ci] -> [N, g, Co, out]."""
    grouped = x.flatten(2).unflatten(1, (problem.groups, problem.in_channels // problem.groups))  # [N, g, Ci, in]
    u = torch.einsum("ngim,rgoi->nrgom", grouped, mixing).flatten(1, 3)  # [N, R*g*Co, in]
    near = seen(u.unflatten(-1, problem.in_size), problem)  # [N, R*g*Co, out, T]
    near = near.unflatten(1, (mixing.shape[0], *mixing.shape[1:3]))
    return torch.einsum("nrgopt,ptr->ngop", near, basis)


def seen(x: Tensor, problem: Problem) -> Tensor:
    """[N, C, *in] -> [N, C, out, T] the neighbours of every output pixel."""
    axes = len(problem.axes)
    near = extracted_neighbours(x, problem)  # [N, C, *out, *taps]
    return near.reshape(*x.shape[:2], math.prod(problem.out_size), math.prod(near.shape[2 + axes :]))
