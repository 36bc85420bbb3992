"""The second moments of image patches by phase: all that a least-squares fit of a kernel needs to know of its images.

Between two neighbouring nodes of a fine grid of displacements, p per pixel and axis, a kernel is taken as linear. An
output pixel is then linear in the kernel's values at the corners of its *cell* (2^D phases, T taps each), and the sum
of squares over all pixels is a quadratic form per cell. It costs the same for one megapixel as for one pixel.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import torch
from torch import Tensor

from contconv.grid import Axis, sources


@dataclass(frozen=True)
class Moments:
    """sum over pixels of |y - a.w|^2 = sum over cells of w'Gw - 2 b'w, plus `energy`, w the kernel at the nodes.

    displacements: [nodes, D]; nodes: [cells, V] which of them a cell's unknowns are (V = 2^D corners x T taps);
    gram: [cells, V*Cin, V*Cin]; target: [cells, V*Cin, Cout]; energy: sum of y^2; count: how many numbers y has.
    """

    displacements: Tensor
    nodes: Tensor
    gram: Tensor
    target: Tensor
    energy: float
    count: int


def moments(x: Tensor, y: Tensor, axes: Sequence[Axis], padding_mode: str, nodes_per_pixel: int) -> Moments:
    """Gather them. x: [N, Cin, *in], y: [N, Cout, *out], both float64."""
    p, taps = nodes_per_pixel, [axis.taps for axis in axes]
    cells, corner_weights = _cells(axes, p)
    rows = _patches(x, axes, padding_mode)  # [N, *out, T, Cin]
    pixels = rows.shape[0] * cells.numel()
    rows = rows.reshape(pixels, -1)
    wanted = y.movedim(1, -1).reshape(pixels, -1)
    order = cells.flatten().repeat(x.shape[0]).argsort(stable=True)
    sizes = cells.flatten().bincount(minlength=p ** len(axes)) * x.shape[0]
    weights = corner_weights.flatten(0, -2).repeat(x.shape[0], 1)  # [pixels, 2^D]
    gram, target = [], []
    for members in order.split(sizes.tolist()):
        a = (weights[members][:, :, None] * rows[members][:, None, :]).flatten(1)
        gram.append(a.mT @ a)
        target.append(a.mT @ wanted[members])
    displacements, nodes = _nodes(axes, taps, p)
    return Moments(
        displacements, nodes, torch.stack(gram), torch.stack(target), y.square().sum().item(), y.numel()
    )  # fmt: skip


def _patches(x: Tensor, axes: Sequence[Axis], padding_mode: str) -> Tensor:
    """[N, *out, T, Cin] the neighbours of every output pixel."""
    for number, axis in enumerate(axes):
        source = sources(axis, padding_mode, x.device)  # [out, taps]
        dim = 2 + number
        taken = x.index_select(dim, source.clamp_min(0).flatten())
        shape = [1] * taken.ndim
        shape[dim] = -1
        taken = taken * (source >= 0).flatten().to(x.dtype).reshape(shape)
        x = taken.unflatten(dim, source.shape).movedim(dim + 1, -1)  # taps go last
    return x.flatten(2 + len(axes)).movedim(1, -1)


def _cells(axes: Sequence[Axis], p: int) -> tuple[Tensor, Tensor]:
    """[*out] the cell of every output pixel, and [*out, 2^D] its weights for the corners."""
    cell = torch.zeros((), dtype=torch.long)
    weights = torch.ones(1, dtype=torch.float64)
    for axis in axes:
        start = axis.kernel_size / 2 - 1
        phase = torch.tensor([float(r) - start for r in axis.residual], dtype=torch.float64)[torch.tensor(axis.phase)]
        along = (phase * p).floor().long().clamp(0, p - 1)
        rest = phase * p - along
        cell = cell[..., None] * p + along
        both = torch.stack([1 - rest, rest], -1)  # [out, 2]
        weights = (weights[..., None, :, None] * both[:, None, :]).flatten(-2)
    return cell, weights


def _nodes(axes: Sequence[Axis], taps: Sequence[int], p: int) -> tuple[Tensor, Tensor]:
    """[nodes, D] displacements, node = (phases per axis, taps per axis) row-major, and [cells, V] the cells' nodes."""
    lines = []
    for axis in axes:
        phase = axis.kernel_size / 2 - 1 + torch.arange(p + 1, dtype=torch.float64) / p
        lines.append(phase[:, None] - torch.arange(axis.taps, dtype=torch.float64))  # [p + 1, taps]
    count = len(axes)
    placed = []
    for number, line in enumerate(lines):
        shape = [1] * (2 * count)
        shape[number], shape[count + number] = line.shape
        placed.append(line.reshape(shape))
    displacements = torch.stack(torch.broadcast_tensors(*placed), -1).reshape(-1, count)
    index = torch.arange(displacements.shape[0]).reshape(*([p + 1] * count), prod(taps))
    cells = [
        torch.cat([index[tuple(c + e for c, e in zip(cell, corner, strict=True))] for corner in corners(count)])
        for cell in product(range(p), repeat=count)
    ]
    return displacements, torch.stack(cells)


def corners(axes: int) -> list[tuple[int, ...]]:
    """The corners of a cell, in the order of the weights."""
    return list(product((0, 1), repeat=axes))
