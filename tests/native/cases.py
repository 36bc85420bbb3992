"""Random problems for the native kernel, and what they must give: plain float64 einsum, one line per step."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from contconv.native import ops


@dataclass(frozen=True)
class Case:
    """Shapes of a problem. `rank` 0: the weights are filters; `per_tap`: a mixing for each tap."""

    batch: int
    in_size: tuple[int, int, int]
    out_size: tuple[int, int, int]
    taps: tuple[int, int, int]
    phases: tuple[int, int, int]
    channels: tuple[int, int]
    groups: int = 1
    rank: int = 3
    per_tap: bool = False

    def __str__(self) -> str:
        form = "filters" if self.rank == 0 else f"rank{self.rank}{'-per-tap' if self.per_tap else ''}"
        size = "x".join(str(n) for n in self.in_size)
        return f"N{self.batch}-{size}-{self.channels[0]}to{self.channels[1]}-g{self.groups}-{form}"

    def algorithms(self) -> list[str]:
        if self.rank == 0 or self.per_tap:
            return ["filters"]
        return [name for name in ops.ALGORITHMS if name != "few-outputs" or self.groups == 1]


CASES = [
    Case(2, (1, 7, 9), (1, 5, 8), (1, 3, 3), (1, 2, 3), (5, 7), rank=4),
    Case(2, (1, 7, 9), (1, 5, 8), (1, 3, 3), (1, 2, 3), (5, 7), rank=0),
    Case(2, (1, 7, 9), (1, 5, 8), (1, 3, 3), (1, 2, 3), (5, 7), rank=4, per_tap=True),
    Case(3, (1, 9, 9), (1, 6, 6), (1, 3, 3), (1, 6, 6), (32, 32), rank=17),
    Case(3, (1, 9, 9), (1, 6, 6), (1, 3, 3), (1, 6, 6), (32, 32), rank=0),
    Case(1, (1, 20, 15), (1, 30, 25), (1, 4, 5), (1, 30, 5), (48, 80), rank=2),
    Case(50, (1, 8, 8), (1, 6, 5), (1, 3, 3), (1, 6, 5), (16, 17), rank=5),
    Case(7, (1, 10, 10), (1, 10, 10), (1, 3, 3), (1, 1, 1), (3, 32), rank=17),
    Case(1, (1, 40, 33), (1, 27, 50), (1, 3, 3), (1, 2, 3), (3, 32), rank=4),
    Case(3, (5, 6, 7), (4, 4, 9), (2, 3, 3), (2, 1, 3), (2, 20), rank=0),
    Case(1, (1, 1, 900), (1, 1, 1200), (1, 1, 5), (1, 1, 4), (1, 40), rank=3),
    Case(2, (1, 64, 40), (1, 43, 27), (1, 3, 3), (1, 2, 2), (17, 23), rank=3),
    Case(13, (1, 1, 60), (1, 1, 50), (1, 1, 5), (1, 1, 3), (17, 23), rank=2),
    Case(3, (4, 5, 6), (3, 4, 7), (2, 3, 2), (2, 1, 3), (16, 24), groups=2),
    Case(3, (4, 5, 6), (3, 4, 7), (2, 3, 2), (2, 1, 3), (16, 24), groups=4, rank=0),
    Case(2, (1, 7, 9), (1, 5, 8), (1, 3, 3), (1, 2, 3), (34, 18), groups=2, rank=3, per_tap=True),
    Case(2, (1, 9, 9), (1, 6, 6), (1, 3, 3), (1, 2, 2), (19, 19), groups=19, rank=1),
    Case(2, (1, 9, 9), (1, 6, 6), (1, 3, 3), (1, 2, 2), (19, 19), groups=19, rank=0),
    Case(3, (2, 7, 9), (3, 5, 8), (2, 2, 3), (1, 2, 8), (8, 8), groups=8, rank=0),
    Case(2, (1, 9, 9), (1, 6, 6), (1, 3, 3), (1, 2, 2), (6, 12), groups=6, rank=3),
    Case(1, (1, 10, 10), (1, 10, 10), (1, 1, 1), (1, 1, 1), (1, 1), rank=1),
    Case(1, (1, 6, 6), (1, 5, 5), (1, 7, 7), (1, 5, 5), (8, 8), rank=2),
    Case(1, (1, 5, 6), (1, 3, 4), (1, 3, 3), (1, 4, 9), (70, 33), rank=2),
    Case(1, (1, 64, 40), (1, 43, 27), (1, 3, 3), (1, 2, 2), (17, 23), rank=0),
    Case(5, (1, 40, 33), (1, 27, 50), (1, 3, 3), (1, 2, 3), (3, 32), rank=0),
    Case(3, (1, 1, 900), (1, 1, 1200), (1, 1, 5), (1, 1, 4), (1, 40), rank=0),
    Case(1, (9, 11, 8), (7, 13, 8), (3, 2, 3), (2, 1, 2), (9, 33), rank=0),
    Case(4, (1, 30, 31), (1, 20, 21), (1, 3, 3), (1, 2, 2), (34, 80), groups=2, rank=0),
    Case(33, (1, 6, 6), (1, 4, 4), (1, 3, 3), (1, 2, 2), (40, 8), rank=0),
    Case(5, (1, 12, 9), (1, 8, 6), (1, 3, 3), (1, 8, 6), (3, 20), rank=5),
    Case(5, (1, 12, 9), (1, 8, 6), (1, 3, 3), (1, 8, 6), (3, 20), rank=0),
    Case(1, (1, 40, 50), (1, 30, 37), (1, 3, 3), (1, 30, 37), (3, 32), rank=5, per_tap=True),
    Case(1, (4, 6, 70), (3, 5, 64), (2, 2, 3), (3, 5, 64), (4, 32), rank=3),
    Case(2, (1, 9, 30), (1, 6, 20), (1, 5, 5), (1, 6, 20), (3, 16), rank=3),
    Case(2, (1, 9, 30), (1, 6, 20), (1, 2, 1), (1, 6, 20), (5, 16), rank=3),
    Case(3, (1, 12, 9), (1, 8, 6), (1, 3, 3), (1, 2, 2), (2, 20), rank=0),
    Case(1, (1, 20, 15), (1, 30, 25), (1, 3, 3), (1, 30, 25), (16, 3), rank=17),
    Case(5, (1, 20, 15), (1, 30, 25), (1, 3, 3), (1, 30, 5), (40, 3), rank=17),
    Case(3, (1, 9, 9), (1, 14, 13), (1, 4, 5), (1, 2, 13), (33, 8), rank=9),
    Case(2, (1, 12, 9), (1, 8, 6), (1, 3, 3), (1, 3, 6), (7, 5), rank=21),
    Case(2, (4, 5, 6), (5, 7, 9), (2, 3, 3), (5, 7, 9), (20, 1), rank=34),
    Case(1, (1, 1, 90), (1, 1, 140), (1, 1, 5), (1, 1, 140), (9, 2), rank=4),
    Case(0, (1, 9, 9), (1, 6, 6), (1, 3, 3), (1, 2, 2), (16, 3)),
    Case(2, (1, 9, 9), (1, 6, 0), (1, 3, 3), (1, 2, 2), (16, 3)),
    Case(0, (1, 9, 9), (1, 6, 6), (1, 3, 3), (1, 2, 2), (6, 6), groups=2),
    Case(0, (1, 9, 9), (1, 6, 6), (1, 3, 3), (1, 2, 2), (6, 6), rank=0),
    Case(2, (1, 9, 9), (1, 0, 6), (1, 3, 3), (1, 2, 2), (6, 6)),
    Case(2, (1, 9, 9), (1, 0, 6), (1, 3, 3), (1, 2, 2), (6, 6), rank=0),
    Case(2, (1, 9, 9), (1, 6, 0), (1, 3, 3), (1, 2, 2), (6, 6), rank=0),
]


@dataclass(frozen=True)
class Problem:
    """The tensors of a case. Of the sources, half are windows of neighbours, as plans make them, reaching over the
    borders; the others are drawn freely, so that they repeat (aliasing) and miss (padding)."""

    x: Tensor
    tables: tuple[Tensor, Tensor, Tensor]
    weights: Tensor
    mixing: Tensor | None
    bias: Tensor
    grad_y: Tensor
    groups: int

    def leaves(self) -> list[Tensor]:
        return [self.x, self.weights, *([] if self.mixing is None else [self.mixing]), self.bias]


def problem(case: Case, seed: int = 0) -> Problem:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    def table(size: int, out: int, taps: int, phases: int) -> Tensor:
        lowest = -1 if size > 1 else 0
        free = torch.randint(lowest, size, (out, taps), generator=generator)
        window = torch.randint(-1, max(size - taps + 2, 0), (out, 1), generator=generator) + torch.arange(taps)
        window = window.where((window >= 0) & (window < size), lowest)
        source = torch.where(torch.randint(2, (out, 1), generator=generator) == 0, free, window)
        return ops.axis_table(source, torch.randint(0, phases, (out,), generator=generator))

    tables = [table(*a) for a in zip(case.in_size, case.out_size, case.taps, case.phases, strict=True)]
    taps = case.taps[0] * case.taps[1] * case.taps[2]
    matrix = (case.channels[1], case.channels[0] // case.groups)
    mixing = normal(*((taps,) if case.per_tap else ()), case.rank, *matrix) if case.rank else None
    weights = normal(*case.phases, taps, case.rank) if case.rank else normal(*case.phases, taps, *matrix)
    x = normal(case.batch, *case.in_size, case.channels[0])
    grad_y = normal(case.batch, *case.out_size, case.channels[1])
    return Problem(x, (tables[0], tables[1], tables[2]), weights, mixing, normal(case.channels[1]), grad_y, case.groups)


def expected(
    x: Tensor, tables: tuple[Tensor, ...], weights: Tensor, mixing: Tensor | None, bias: Tensor, groups: int
) -> Tensor:
    """y by gathering every tap of every output pixel: [N, Do, Ho, Wo, Cout]."""
    filters = weights
    if mixing is not None:
        filters = torch.einsum("...tr,troi->...toi" if mixing.ndim == 4 else "...tr,roi->...toi", weights, mixing)
    padded = torch.nn.functional.pad(x, (0, 0, 0, 1, 0, 1, 0, 1))  # index -1 is the last one: a zero
    s0, s1, s2 = (table[:, 1:].long() for table in tables)
    p0, p1, p2 = (table[:, 0].long() for table in tables)
    under_taps = padded[:, s0][:, :, :, s1][:, :, :, :, :, s2]  # [N, Do, K0, Ho, K1, Wo, K2, Cin]
    under_taps = under_taps.permute(0, 1, 3, 5, 2, 4, 6, 7).flatten(4, 6).unflatten(-1, (groups, -1))
    per_pixel = filters[p0][:, p1][:, :, p2].unflatten(-2, (groups, -1))  # [Do, Ho, Wo, T, groups, Cout / g, Cin / g]
    return torch.einsum("nabctgi,abctgoi->nabcgo", under_taps, per_pixel).flatten(4) + bias


def layer_gradients(layer: nn.Module, x: Tensor, scale: object, wanted: str = "") -> dict[str, Tensor]:
    """Of x and of every parameter of a layer, or of those only whose name contains `wanted`; none of the others is
    asked for."""
    leaves = {"x": x.clone(), **dict(layer.named_parameters())}
    for name, leaf in leaves.items():
        leaf.requires_grad_(wanted in name)
    y = layer(leaves["x"], scale=scale)
    sent = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y)
    chosen = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
    return dict(zip(chosen, torch.autograd.grad(y, list(chosen.values()), sent), strict=True))


def relative_error(got: Tensor, want: Tensor) -> float:
    if want.numel() == 0:
        return 0.0
    return ((got.double() - want).abs().max() / want.abs().max().clamp_min(1e-30)).item()
