"""The variance that the weights of a discrete convolution start with."""

import math
from collections.abc import Sequence

INITS = ("default", "xavier", "kaiming")


def initial_variance(init: str, in_channels: int, out_channels: int, kernel_size: Sequence[int], groups: int) -> float:
    """The variance of the weights of the matching `nn.ConvNd`, as `init` draws them.

    "default" is PyTorch's own (`kaiming_uniform_` with a = sqrt(5)), "xavier" is `xavier_normal_`, "kaiming" is
    `kaiming_normal_` for ReLU.

    >>> round(1 / initial_variance("default", 32, 64, (3, 3), groups=1))
    864
    """
    taps = math.prod(kernel_size)
    fan_in, fan_out = in_channels // groups * taps, out_channels * taps
    if init == "default":
        return 1 / (3 * fan_in)
    if init == "xavier":
        return 2 / (fan_in + fan_out)
    if init == "kaiming":
        return 2 / fan_in
    raise ValueError(f"init must be one of {INITS}, got {init!r}")
