"""What `torch.utils.flop_counter` counts: two flops for every multiply-add that the loops of an operation do."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import bmm_flop, flop_registry, register_flop_formula

Shape = torch.Size | tuple[int, ...]


@dataclass(frozen=True)
class _Work:
    """The multiply-adds of the parts that forward and backward are made of."""

    batch: int
    inputs: int
    outputs: int
    taps: int
    functions: int  # of the basis; 0 where the filters themselves are given
    channels: tuple[int, int]
    filter_tap: int  # Cout * Cin / groups
    phases: int

    @property
    def applied(self) -> int:
        """Filters at every output pixel."""
        return self.batch * self.outputs * self.taps * self.filter_tap

    @property
    def formed(self) -> int:
        """Filters from basis and mixing, once per phase."""
        return self.functions * self.phases * self.taps * self.filter_tap

    def spread(self, channels: int) -> int:
        """The basis over the taps of every output pixel."""
        return self.batch * self.outputs * self.functions * channels * self.taps

    def mixed(self, pixels: int) -> int:
        """The mixing at every pixel."""
        return self.batch * pixels * self.functions * self.filter_tap


def _work(x: Shape, tables: tuple[Shape, Shape, Shape], weights: Shape, mixing: Shape | None) -> _Work:
    out_channels, per_group = (weights if mixing is None else mixing)[-2:]
    return _Work(
        batch=x[0],
        inputs=math.prod(x[1:4]),
        outputs=math.prod(table[0] for table in tables),
        taps=weights[3],
        functions=0 if mixing is None else weights[4],
        channels=(x[4], out_channels),
        filter_tap=out_channels * per_group,
        phases=math.prod(weights[:3]),
    )


def forward_flops(
    x: Shape, t0: Shape, t1: Shape, t2: Shape, weights: Shape, mixing: Shape | None, bias: Shape | None, groups: int,
    algorithm: int, **_: Any,
) -> int:  # fmt: skip
    """Of `contconv::forward`, from the shapes of its arguments."""
    work = _work(x, (t0, t1, t2), weights, mixing)
    in_channels, out_channels = work.channels
    macs = (
        work.applied + work.formed,
        work.spread(in_channels) + work.mixed(work.outputs),
        work.spread(out_channels) + work.mixed(work.inputs),
        work.applied + work.formed,
        work.spread(out_channels) + work.mixed(work.inputs),
    )
    return 2 * macs[algorithm]


def backward_flops(
    x: Shape, grad_y: Shape, t0: Shape, t1: Shape, t2: Shape, weights: Shape, mixing: Shape | None, groups: int,
    algorithm: int, need_x: bool, need_weights: bool, need_mixing: bool, **_: Any,
) -> int:  # fmt: skip
    """Of `contconv::backward`, likewise."""
    work = _work(x, (t0, t1, t2), weights, mixing)
    if algorithm in (0, 3):
        macs = need_x * (work.applied + work.formed)
        macs += (need_weights or need_mixing) * work.applied + (need_weights + need_mixing) * work.formed
        return 2 * macs
    if algorithm == 4:
        spread, mixed = work.spread(work.channels[1]), work.mixed(work.inputs)
        down = (need_x or need_mixing) * spread + (need_x + need_mixing) * mixed
        return 2 * (down + need_weights * (spread + mixed))
    spread, mixed = work.spread(work.channels[0]), work.mixed(work.outputs)
    macs = (need_x or need_weights) * mixed + (need_x + need_weights) * spread
    return 2 * (macs + need_mixing * (spread + mixed))


def _baddbmm_flops(total: Shape, a: Shape, b: Shape, *_: Any, **__: Any) -> int:
    return bmm_flop(a, b)


register_flop_formula(torch.ops.contconv.forward)(forward_flops)
register_flop_formula(torch.ops.contconv.backward)(backward_flops)
if torch.ops.aten.baddbmm_ not in flop_registry:  # torch has a formula for baddbmm, and none for doing it in place
    register_flop_formula(torch.ops.aten.baddbmm_)(_baddbmm_flops)
