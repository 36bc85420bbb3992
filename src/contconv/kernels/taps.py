"""The weight of a trained convolution as a continuous kernel: its parameter *is* that weight, bit for bit."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from contconv.kernels.initial import initial_variance
from contconv.kernels.product import ProductKernel, folded
from contconv.size import Size, exact_sizes

INTERPOLATIONS = ("spline", "nearest")
POLE = math.sqrt(3) - 2  # from one pixel to the next, the cardinal spline changes by this factor


class TapKernel(ProductKernel):
    """W(d) = sum over taps j of weight_j * prod over axes of eta(density * d - dilation * x_j), x_j = (k-1)/2 - j.

    eta is the cubic spline that is 1 at 0 and 0 at every other integer ("spline"), or 1 on the pixel around 0
    ("nearest"). On the grid of the convolution that the taps come from, W is exactly the taps, zero between them.

    `dilation` spreads the taps, as in `nn.ConvNd`. `density` puts so many of them on an input pixel: the taps of a
    transposed convolution of stride s have density s. A spline is never cut off at the border of its support: the
    outermost neighbour takes what lies beyond it, so that a constant input has one response, as under the convolution.

    >>> kernel = TapKernel.from_taps(torch.tensor([[[1.0, 2.0, 4.0]]]), dilation=2)
    >>> kernel.kernel_size, kernel(torch.tensor([[2.0], [0.0], [-1.0]])).flatten().tolist()
    ((5,), [1.0, 2.0, 0.0])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        taps: Sequence[int],
        *,
        groups: int = 1,
        density: Size = 1,
        dilation: Size = 1,
        interpolation: str = "spline",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self_taps = exact_sizes(taps, len(taps), "taps")
        densities = exact_sizes(density, len(taps), "density")
        dilations = exact_sizes(dilation, len(taps), "dilation")
        reach = [k * (n - 1) // s + 1 for n, s, k in zip(self_taps, densities, dilations, strict=True)]
        super().__init__(in_channels, out_channels, reach, groups, "default")
        if interpolation not in INTERPOLATIONS:
            raise ValueError(f"interpolation must be one of {', '.join(INTERPOLATIONS)}, got {interpolation!r}")
        self.taps = self_taps
        self.density = densities
        self.dilation = dilations
        self.interpolation = interpolation
        shape = (out_channels, in_channels // groups, *self.taps)
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    @classmethod
    def from_taps(
        cls, taps: Tensor, *, groups: int = 1, density: Size = 1, dilation: Size = 1, interpolation: str = "spline"
    ) -> "TapKernel":
        """The kernel through the taps [Cout, Cin/groups, *k] of a discrete filter."""
        out_channels, per_group, *count = taps.shape
        kernel = cls(
            per_group * groups, out_channels, count, groups=groups, density=density, dilation=dilation,
            interpolation=interpolation, device="meta",
        )  # fmt: skip
        kernel.weight = nn.Parameter(taps.detach().clone(memory_format=torch.contiguous_format), taps.requires_grad)
        return kernel

    def reset_parameters(self) -> None:
        """Taps with the variance that those of the convolution would start with."""
        variance = initial_variance(self.init, self.in_channels, self.out_channels, self.taps, self.groups)
        with torch.no_grad():
            self.weight.normal_(std=variance**0.5)

    @property
    def mixing(self) -> Tensor:  # type: ignore[override]
        """[R, Cout, Cin/groups]."""
        return self.weight.flatten(2).permute(2, 0, 1)

    def along(self, d: Tensor, axis: int) -> Tensor:
        """[...] -> [..., k]: the basis of one axis."""
        count, density, size = self.taps[axis], self.density[axis], self.kernel_size[axis]  # type: ignore[index]
        place = self.dilation[axis] * ((count - 1) / 2 - torch.arange(count, dtype=d.dtype, device=d.device))
        u = density * d[..., None] - place
        if self.interpolation == "nearest":
            return ((u > -0.5) & (u <= 0.5)).to(d.dtype)
        # From 1 on, cardinal(u), cardinal(u + s), cardinal(u + 2s) ... is a geometric series.
        return folded(cardinal, u, d, size, density, last=1 / (1 - POLE**density))

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, taps={self.taps}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        for name in ("density", "dilation"):
            if set(getattr(self, name)) != {1}:
                text += f", {name}={getattr(self, name)}"
        return text if self.interpolation == "spline" else f"{text}, interpolation={self.interpolation!r}"


def cardinal(u: Tensor) -> Tensor:
    """The cubic spline that is 1 at 0 and 0 at every other integer, exactly.

    >>> cardinal(torch.tensor([0.0, 1.0, -7.0])) == torch.tensor([1.0, 0.0, 0.0])
    tensor([True, True, True])
    """
    root = math.sqrt(3)
    whole = u.abs().floor()
    t = u.abs() - whole
    first = 1 + t.square() * (3 - 3 * root + (3 * root - 4) * t)
    later = t * (3 * root - 6 + t * (6 * root - 9 + (15 - 9 * root) * t))
    return torch.where(whole == 0, first, torch.pow(POLE, (whole - 1).clamp_min(0)) * later)


def dilation_of(kernel: nn.Module) -> tuple[int, ...] | None:
    """The dilation of the convolution that the kernel is on the grid of its taps; None if it is none there."""
    return kernel.dilation if isinstance(kernel, TapKernel) and set(kernel.density) == {1} else None
