"""What a step needs beyond its results under a `memory_limit`, told and measured.

    python benchmarks/memory.py (`make bench-memory`)

A forward and a backward pass, peak growth of the process less x, y, their gradients and the parameters'. What the C
library's allocator keeps between tensors that live belongs to the process, too: it is told not to recycle, which
takes time and is done here alone.
"""

import os
import sys

SETTING = {"MALLOC_MMAP_THRESHOLD_": "262144"}  # larger ones go back to the system at once
if any(os.environ.get(name) != value for name, value in SETTING.items()):
    os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | SETTING)

import torch  # noqa: E402
from measure import peak_bytes, trained  # noqa: E402

import contconv  # noqa: E402
from contconv.functional import planned  # noqa: E402
from contconv.strategies import chosen  # noqa: E402

MIB = 2**20
IRREGULAR = (0.6789, 0.7123)
CASES = [  # batch, channels, size, scale, strategy, limits in MiB
    (50, (32, 32), (64, 64), IRREGULAR, None, (None, 2)),
    (50, (32, 32), (64, 64), IRREGULAR, "reference", (None, 64, 16)),
    (8, (64, 64), (64, 64), (2 / 3, 2 / 3), "reference", (None, 64, 32)),
    (8, (256, 256), (16, 16), IRREGULAR, None, (None,)),
    (1, (512, 512), (8, 8), (2 / 3, 2 / 3), None, (None,)),
]


def main() -> None:
    torch.manual_seed(0)
    print("MiB beyond results                                              limit   strategy      told  measured")
    for batch, channels, size, scale, strategy, limits in CASES:
        for limit in limits:
            layer = contconv.ContinuousConv2d(*channels, 3, scale=scale, strategy=strategy)
            layer.memory_limit = limit and limit * MIB
            x = torch.randn(batch, channels[0], *size).to(memory_format=torch.channels_last).requires_grad_()
            step = trained(layer, x, list(layer.parameters()))
            results = step()
            bytes_of = sum(4 * one.numel() for one in (*results, results[0]))  # y has a gradient, too
            problem = planned(
                x.shape, layer.kernel, scale=layer.scale, size=None, padding_mode="zeros", antialias=False, center=0,
                training=True, memory_limit=layer.memory_limit,
            )  # fmt: skip
            picked = chosen(problem, strategy)
            told, took = picked.cost(problem).bytes / MIB, (peak_bytes(step) - bytes_of) / MIB
            what = (
                f"batch {batch}, {channels[0]} -> {channels[1]}, {size[0]}x{size[1]} by {scale[0]:.4g} x {scale[1]:.4g}"
            )
            print(f"{what:60s} {limit or '-':>8}   {picked.name:10s} {told:7.1f}  {max(0.0, took):8.1f}", flush=True)


if __name__ == "__main__":
    main()
