"""The second moments of image patches by phase: all that a least-squares fit of a kernel needs to know of its images.

Between neighbouring nodes of a fine grid of displacements, some per pixel and axis, a kernel is taken as linear. An
output pixel is then linear in the kernel's values at the corners of its *cell* (2^D phases with T taps each), and the
sum of squares over all pixels is one quadratic form per cell, whatever the number of pixels.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import torch
from torch import Tensor

from contconv.grid import Axis, cut, sources

MOST_NUMBERS_AT_ONCE = 2**24  # of patches in memory


@dataclass(frozen=True)
class Moments:
    """The mean of |y - prediction|^2 as a function of the kernel's values w: [nodes, Cin, Cout].

    displacements: [nodes, D]; nodes: [cells, V], the nodes of every cell (V = 2^D * T); gram: [cells, V*Cin, V*Cin];
    target: [nodes, Cin, Cout]; energy: the sum of y^2; count: how many numbers y has.
    """

    displacements: Tensor
    nodes: Tensor
    gram: Tensor
    target: Tensor
    energy: float
    count: int

    def product(self, v: Tensor) -> Tensor:
        """The Gram matrix times v: [nodes, Cin, any]."""
        cells, corners = self.nodes.shape
        by_cell = torch.bmm(self.gram, v[self.nodes].reshape(cells, -1, v.shape[-1]))
        return torch.zeros_like(v).index_add_(
            0, self.nodes.flatten(), by_cell.reshape(cells * corners, *v.shape[1:])
        )  # fmt: skip

    def mse(self, w: Tensor, product: Tensor) -> float:
        """The mean squared error of the kernel whose values are w, given `product(w)`."""
        total = (w * product).sum() - 2 * (w * self.target).sum() + self.energy
        return max(total.item() / self.count, 0.0)


def moments(x: Tensor, y: Tensor, axes: Sequence[Axis], padding_mode: str, nodes_per_pixel: int) -> Moments:
    """Gather them. x: [N, Cin, *in], y: [N, Cout, *out], both float64."""
    first, *others = axes
    per_row = x.shape[0] * x.shape[1] * prod(a.taps for a in axes) * prod(a.out_size for a in others)
    rows = max(1, MOST_NUMBERS_AT_ONCE // per_row)
    displacements, nodes = _nodes(axes, nodes_per_pixel)
    width = nodes.shape[1] * x.shape[1]
    gram = x.new_zeros(nodes.shape[0], width, width)
    target = x.new_zeros(nodes.shape[0], width, y.shape[1])
    for start in range(0, first.out_size, rows):
        stop = min(start + rows, first.out_size)
        part = (cut(first, start, stop), *others)
        _gather(gram, target, x, y[:, :, start:stop], part, padding_mode, nodes_per_pixel)
    on_nodes = x.new_zeros(len(displacements), x.shape[1], y.shape[1])
    on_nodes.index_add_(0, nodes.flatten(), target.reshape(nodes.numel(), *on_nodes.shape[1:]))
    return Moments(displacements, nodes, gram, on_nodes, y.square().sum().item(), y.numel())


def _gather(
    gram: Tensor, target: Tensor, x: Tensor, y: Tensor, axes: Sequence[Axis], padding_mode: str, p: int
) -> None:
    """Add the moments of these output pixels to `gram` and `target`."""
    cells, weights = _cells(axes, p)
    patches = _patches(x, axes, padding_mode).flatten(0, -3).flatten(1)  # [pixels, T * Cin]
    wanted = y.movedim(1, -1).flatten(0, -2)
    cell = cells.flatten().repeat(x.shape[0])
    weights = weights.flatten(0, -2).repeat(x.shape[0], 1)  # [pixels, 2^D]
    sizes = cell.bincount(minlength=len(gram)).tolist()
    for number, members in enumerate(cell.argsort(stable=True).split(sizes)):
        a = (weights[members][:, :, None] * patches[members][:, None, :]).flatten(1)
        gram[number] += a.mT @ a
        target[number] += a.mT @ wanted[members]


def patches_and_displacements(
    x: Tensor, axes: Sequence[Axis], padding_mode: str, most_pixels: int
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Some rows of the output at a time: which, their patches [N, pixels, T, Cin], the displacements [pixels, T, D]."""
    first, *others = axes
    rows = max(1, most_pixels // prod(axis.out_size for axis in others))
    for start in range(0, first.out_size, rows):
        stop = min(start + rows, first.out_size)
        part = (cut(first, start, stop), *others)
        patches = _patches(x, part, padding_mode)
        yield slice(start, stop), patches.flatten(1, -3), _displacements(part)


def _displacements(axes: Sequence[Axis]) -> Tensor:
    """[pixels, T, D] of every output pixel and tap, row-major."""
    count = len(axes)
    placed = []
    for number, axis in enumerate(axes):
        residual = torch.tensor([float(r) for r in axis.residual], dtype=torch.float64)
        offset = residual[:, None] - torch.arange(axis.taps, dtype=torch.float64)
        shape = [1] * (2 * count)
        shape[number], shape[count + number] = axis.out_size, axis.taps
        placed.append(offset[torch.tensor(axis.phase)].reshape(shape))
    together = torch.stack(torch.broadcast_tensors(*placed), -1)
    return together.flatten(count, -2).flatten(0, count - 1)


def _patches(x: Tensor, axes: Sequence[Axis], padding_mode: str) -> Tensor:
    """[N, *out, T, Cin] the neighbours of every output pixel."""
    for number, axis in enumerate(axes):
        dim = 2 + number
        source = sources(axis, padding_mode, x.device)  # [out, taps]
        taken = x.index_select(dim, source.clamp_min(0).flatten()).unflatten(dim, source.shape)
        taken = taken.movedim(dim + 1, -1)
        is_pixel = (source >= 0).to(x.dtype)
        shape = [1] * taken.ndim
        shape[dim], shape[-1] = source.shape
        x = taken * is_pixel.reshape(shape)
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


def _nodes(axes: Sequence[Axis], p: int) -> tuple[Tensor, Tensor]:
    """[nodes, D] the displacements, row-major over (phases, taps), and [cells, V] the nodes of every cell."""
    count = len(axes)
    placed = []
    for number, axis in enumerate(axes):
        phase = axis.kernel_size / 2 - 1 + torch.arange(p + 1, dtype=torch.float64) / p
        shape = [1] * (2 * count)
        shape[number], shape[count + number] = p + 1, axis.taps
        placed.append((phase[:, None] - torch.arange(axis.taps, dtype=torch.float64)).reshape(shape))
    displacements = torch.stack(torch.broadcast_tensors(*placed), -1).reshape(-1, count)
    index = torch.arange(displacements.shape[0]).reshape(*[p + 1] * count, -1)
    corners = list(product((0, 1), repeat=count))
    cells = [
        torch.cat([index[tuple(c + e for c, e in zip(cell, corner, strict=True))] for corner in corners])
        for cell in product(range(p), repeat=count)
    ]
    return displacements, torch.stack(cells)
