"""Contract the basis and the mixing one after the other and never form a filter: memory without Cout * Cin per pixel.

At the output:  z[r] = sum over taps of basis_r * x     then  y = z . mixing     R Cin (T + Cout) multiply-adds
At the input:   u[r] = mixing_r . x, per input pixel    then  y = sum over taps and r of basis_r * u[r]
                                                              R Cout (T + Cin in/out) multiply-adds
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from contconv.grid import phase_index
from contconv.kernels import Kernel
from contconv.kernels.sampling import sampled_basis
from contconv.native.counting import count
from contconv.strategies.blocks import block, block_sizes, macs_in_blocks, run_in_blocks
from contconv.strategies.engine import inputs_seen, lane_waste, native_bytes, native_conv, sampled_anew, why_not_native
from contconv.strategies.problem import Cost, Problem, biased
from contconv.strategies.reference import extracted_neighbours

BLOCK_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Factored:
    """`native=False` keeps to PyTorch even where the native kernel would serve."""

    native: bool = True
    name: ClassVar[str] = "factored"

    def why_not(self, problem: Problem) -> list[str]:
        if problem.per_tap:
            return ["the kernel has one mixing per tap, which leaves nothing to factor out"]
        return []

    def cost(self, problem: Problem) -> Cost:
        if self._native(problem):
            algorithm = self._algorithm(problem)
            again = inputs_seen(problem, algorithm) - problem.inputs if algorithm == "factored-input" else 0
            macs = macs_of(problem) + again * problem.batch * problem.basis_functions * problem.weights
            return Cost(macs, native_bytes(problem, algorithm))
        images, rows = sizes = block_sizes(problem, block_bytes, BLOCK_BYTES)
        whole = sizes == (problem.batch, problem.axes[0].out_size)
        macs = macs_of(problem) if whole else macs_in_blocks(problem, macs_of, sizes)
        return Cost(macs, block_bytes(block(problem, images, 0, rows)))

    def engine(self, problem: Problem) -> str:
        return f"{self._algorithm(problem)}/{'native' if self._native(problem) else 'torch'}"

    def counts(self, problem: Problem) -> dict[str, float]:
        at_output = self._algorithm(problem) == "factored-output"
        channels, mixed = (
            (problem.in_channels, problem.outputs) if at_output else (problem.out_channels, problem.inputs)
        )
        functions = problem.batch * problem.basis_functions
        counts = {
            "call": 1.0,
            "spread": functions * problem.outputs * channels * problem.taps,
            "mixed": functions * mixed * problem.weights,
            "pixels": problem.pixels,
            "basis": problem.phases * problem.taps * problem.basis_functions,
        }
        if self._native(problem):
            counts["spread"] *= lane_waste(channels // problem.groups)
            counts["mixed"] *= lane_waste(problem.out_channels // problem.groups)
            if not problem.training:
                counts["sampled"] = sampled_anew(problem, self._algorithm(problem))
        else:
            gathered = problem.batch * problem.outputs * problem.taps * channels
            counts["gathered"] = gathered if at_output else gathered * problem.basis_functions
        return counts

    def run(self, x: Tensor, kernel: Kernel, bias: Tensor | None, problem: Problem) -> Tensor:
        if self._native(problem):
            return native_conv(x, kernel, bias, problem, self._algorithm(problem))
        sizes = block_sizes(problem, block_bytes, BLOCK_BYTES)
        if sizes == (problem.batch, problem.axes[0].out_size):
            return contracted(x, kernel, bias, problem)
        return run_in_blocks(contracted, x, kernel, bias, problem, sizes)

    def _native(self, problem: Problem) -> bool:
        return self.native and not why_not_native(problem)

    def _algorithm(self, problem: Problem) -> str:
        return "factored-output" if macs_at_output(problem) <= macs_at_input(problem) else "factored-input"


def contracted(x: Tensor, kernel: Kernel, bias: Tensor | None, problem: Problem) -> Tensor:
    """The whole contraction in PyTorch, at the cheaper end."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    basis = basis_per_output(kernel, problem).to(dtype)
    mixing = kernel.mixing.to(dtype).unflatten(1, (problem.groups, problem.out_channels // problem.groups))
    at_output = macs_at_output(problem) <= macs_at_input(problem)
    contraction = contracted_at_output if at_output else contracted_at_input
    y = contraction(x.to(dtype), basis, mixing, problem)  # [N, g, Co, out]
    return biased(y.reshape(problem.batch, problem.out_channels, *problem.out_size).to(x.dtype), bias)


def block_bytes(problem: Problem) -> int:
    """What `contracted` needs: the neighbours, what they are contracted to, and the basis of every output."""
    at_output = macs_at_output(problem) <= macs_at_input(problem)
    functions = problem.basis_functions
    if at_output:
        numbers = problem.outputs * problem.in_channels * (3 * problem.taps + 2 * functions)
    else:
        numbers = functions * problem.out_channels * (3 * problem.outputs * problem.taps + problem.inputs)
    return max(problem.dtype.itemsize, 4) * (problem.batch * numbers + problem.outputs * problem.taps * functions)


def macs_of(problem: Problem) -> int:
    return min(macs_at_output(problem), macs_at_input(problem)) + problem.sampling_macs


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
    if mixing.shape[0] * mixing.shape[-1] == 1:  # nothing to sum over: no matrix product
        count(problem.batch * problem.outputs * problem.weights)
    return torch.einsum("nprgi,rgoi->ngop", z, mixing)


def contracted_at_input(x: Tensor, basis: Tensor, mixing: Tensor, problem: Problem) -> Tensor:
    """x: [N, Cin, *in], basis: [out, T, R], mixing: [R, g, Co, Ci] -> [N, g, Co, out]."""
    grouped = x.flatten(2).unflatten(1, (problem.groups, problem.in_channels // problem.groups))  # [N, g, Ci, in]
    if mixing.shape[-1] == 1:  # nothing to sum over: no matrix product
        count(problem.batch * problem.inputs * mixing.shape[0] * problem.weights)
    u = torch.einsum("ngim,rgoi->nrgom", grouped, mixing).flatten(1, 3)  # [N, R*g*Co, in]
    near = seen(u.unflatten(-1, problem.in_size), problem)  # [N, R*g*Co, out, T]
    near = near.unflatten(1, (mixing.shape[0], *mixing.shape[1:3]))
    return torch.einsum("nrgopt,ptr->ngop", near, basis)


def seen(x: Tensor, problem: Problem) -> Tensor:
    """[N, C, *in] -> [N, C, out, T] the neighbours of every output pixel."""
    axes = len(problem.axes)
    near = extracted_neighbours(x, problem)  # [N, C, *out, *taps]
    return near.reshape(*x.shape[:2], math.prod(problem.out_size), math.prod(near.shape[2 + axes :]))
