"""The paper's network of continuous layers, which shrinks by 4 in small steps chosen at call time."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache

import torch
from torch import Tensor, nn

from contconv.kernels import Kernel
from contconv.models.architecture import SHRINK, Head, PaddingMode, layers
from contconv.modules import ContinuousConv2d
from contconv.sequences import Scales, output_sizes
from contconv.size import PerAxis, exact, exact_scales

KernelChoice = str | Callable[[int, int, tuple[int, int]], Kernel]

TARGET = Fraction(1, SHRINK)
STEPS = 7  # the layers that shrink: all but the first


@cache
def equal_steps(steps: int = STEPS, target: Fraction = TARGET) -> Scales:
    """Scales of target^(1/steps) each; the last takes the rounding, so that their product is exactly `target`.

    >>> [round(float(height), 4) for height, width in equal_steps()]
    [0.8203, 0.8203, 0.8203, 0.8203, 0.8203, 0.8203, 0.8203]
    """
    step = exact(float(target) ** (1 / steps), "step")
    column = [step] * (steps - 1) + [target / step ** (steps - 1)]
    return tuple((s, s) for s in column)


EQUAL_STEPS = equal_steps()


class CCNet(nn.Module):
    """ConvNet's eight layers, 3x3 and 4x4, as continuous ones; then the same FC 512-512-classes.

    kernel: a name in `contconv.kernels.KERNELS` ("internal-per-tap" is the paper's), or a function that makes a kernel
        of (in_channels, out_channels, kernel_size), one for each layer.
    last_kernel: another one for the last layers, as many as `last_layers`: a smooth one makes maps that move with the
        picture, by fractions of a pixel too.

    The first layer keeps the size. `scales` has one entry for each of the other seven (a number, or one for each axis,
    as `sample_scales(7, 1/4)` draws them); by default all are (1/4)^(1/7). A layer's size is ceil(input size * product
    of the scales so far), so 32x32 ends at the 8x8 which the fully connected layers need if the product is 1/4.
    `features` takes images of any size and scales of any product. `width` and `hidden` make smaller networks.

    >>> CCNet("spline")(torch.zeros(2, 3, 32, 32), contconv.sample_scales(7, 1 / 4)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        kernel: KernelChoice = "internal-per-tap",
        in_channels: int = 3,
        classes: int = 10,
        *,
        last_kernel: KernelChoice | None = None,
        last_layers: int = 1,
        width: int = 32,
        hidden: int = 512,
        padding_mode: PaddingMode = "zeros",
    ) -> None:
        super().__init__()
        lines = layers(in_channels, width)
        kernels = [kernel] * len(lines)
        check_last_layers(last_layers)
        if last_kernel is not None:
            kernels[-last_layers:] = [last_kernel] * last_layers
        self.convs = nn.ModuleList(
            ContinuousConv2d(
                i, o, k, kernel=kind if isinstance(kind, str) else kind(i, o, (k, k)), padding_mode=padding_mode
            )
            for (i, o, k, _), kind in zip(lines, kernels, strict=True)
        )
        self.head = Head(2 * width, hidden, classes)

    def responses(self, x: Tensor, scales: Sequence[PerAxis] | None = None) -> Tensor:
        """The last layer's map, before its ReLU: [N, Cin, H, W] -> [N, 64, ceil(H * product), ceil(W * product)]."""
        chosen = EQUAL_STEPS if scales is None else checked(scales)
        first, *rest = self.convs
        sizes = output_sizes(x.shape[-2:], chosen)
        x = first(x, scale=1)
        for conv, scale, size in zip(rest, chosen, sizes, strict=True):
            x = conv(x.relu(), scale=scale, size=size)
        return x

    def features(self, x: Tensor, scales: Sequence[PerAxis] | None = None) -> Tensor:
        """The same, after its ReLU."""
        return self.responses(x, scales).relu()

    def forward(self, x: Tensor, scales: Sequence[PerAxis] | None = None) -> Tensor:
        """[N, Cin, 32, 32] -> [N, classes]."""
        return self.head(self.features(x, scales))


def check_last_layers(last_layers: int) -> None:
    """Refuse more layers than there are."""
    if last_layers not in range(1, STEPS + 2):
        raise ValueError(f"last_layers must be a number from 1 to {STEPS + 1}, ccnet's layers, got {last_layers!r}")


def checked(scales: Sequence[PerAxis]) -> Scales:
    """One exact scale per layer and axis."""
    if isinstance(scales, str) or not isinstance(scales, Sequence):
        raise TypeError(
            f"scales must be a sequence of {STEPS} scales, one for each layer but the first, got {scales!r}"
        )
    if len(scales) != STEPS:
        raise ValueError(
            f"scales must have {STEPS} entries, one for each layer but the first, as "
            f"sample_scales({STEPS}, 1/{SHRINK}) draws them; got {len(scales)}"
        )
    if torch.compiler.is_compiling():  # as they are: the layers know what a scale may be
        return tuple(scale if isinstance(scale, tuple | list) else (scale, scale) for scale in scales)  # type: ignore[misc]
    return tuple(exact_scales(scale, 2) for scale in scales)
