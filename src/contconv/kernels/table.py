"""Discrete taps as a kernel: constant on the pixel around each tap, which is what a convolution has."""

from torch import Tensor, nn

from contconv.kernels.base import Kernel
from contconv.kernels.internal_net import tap_and_rest


class Table(Kernel):
    """The taps of a discrete filter: tap j for every displacement nearest to it.

    taps [Cout, Cin/groups, *K] are a convolution's weight, not normalised, and trained if they are an `nn.Parameter`.
    taps [*K] (1-D, 2-D, or 3-D with `channelwise=True`) act on each channel alone and are normalised unless
    `normalize=False`. Either way all K taps count at a tie, as in a convolution: the support is half open.

    >>> blur = Table(torch.tensor([1.0, 2.0, 1.0]))
    >>> blur(torch.tensor([0.0])).item()
    2.0
    """

    per_tap = True

    def __init__(self, taps: Tensor, *, channelwise: bool | None = None, normalize: bool | None = None) -> None:
        super().__init__()
        if not isinstance(taps, Tensor) or not taps.is_floating_point():
            raise TypeError(f"taps must be a floating-point tensor, got {taps!r:.60}")
        self.channelwise = taps.ndim <= 2 if channelwise is None else channelwise
        self.normalize = self.channelwise if normalize is None else normalize
        if self.normalize and not self.channelwise:
            raise ValueError("normalize=True is for channelwise taps: a convolution's taps have no sum to keep")
        self.kernel_size = tuple(taps.shape) if self.channelwise else tuple(taps.shape[2:])
        if not 1 <= len(self.kernel_size) <= 3:
            raise ValueError(f"taps must have 1 to 3 spatial axes, got shape {tuple(taps.shape)}")
        if self.normalize and not taps.is_meta and abs(taps.sum()) <= 1e-6 * taps.abs().sum():
            raise ValueError("taps sum to zero, so they cannot be normalised: give normalize=False")
        if isinstance(taps, nn.Parameter):
            self.taps = taps
        else:
            self.register_buffer("taps", taps)

    @property
    def mixing(self) -> Tensor:  # type: ignore[override]
        """[T, 1, Cout, Cin/groups]."""
        taps = self.taps[None, None] if self.channelwise else self.taps
        return taps.flatten(2).movedim(-1, 0)[:, None]

    def basis(self, d: Tensor) -> Tensor:
        """[..., D] -> [..., 1]: constant."""
        return d.new_ones(*d.shape[:-1], 1)

    def forward(self, d: Tensor) -> Tensor:
        tap, _ = tap_and_rest(d, self.kernel_size)
        return self.mixing.to(d.dtype)[tap, 0]

    def extra_repr(self) -> str:
        return f"torch.empty{tuple(self.taps.shape)}, channelwise={self.channelwise}, normalize={self.normalize}"
