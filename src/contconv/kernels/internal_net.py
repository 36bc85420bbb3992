"""The paper's kernel: a small net from displacements to weights."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeGuard, cast

import torch
from torch import Tensor, nn

from contconv.kernels.base import Kernel, LearnedKernel
from contconv.kernels.initial import initial_variance
from contconv.native import nets
from contconv.size import exact_sizes

SLOPE = 0.01  # of the LeakyReLU
# Of the variance of the initial weights, what varies with the displacement; the rest is the constant term's. The paper
# gives it all to the constant; a little keeps the hidden layers learning from the first step.
VARYING_SHARE = 0.1


class InternalNet(LearnedKernel):
    """The paper's internal net D -> 16 -> 16 -> Cout*Cin with LeakyReLU, as basis and mixing.

    The basis is the last hidden layer and a constant (R = 17), the mixing is the last layer's weight and, in its last
    row, its bias. `per_tap=True` is the paper's "weights directly from the grid": one mixing per tap.

    >>> kernel = InternalNet(8, 4, (3, 3))
    >>> kernel(torch.zeros(5, 2)).shape
    torch.Size([5, 4, 8])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sequence[int],
        *,
        groups: int = 1,
        per_tap: bool = False,
        hidden: Sequence[int] = (16, 16),
        init: str = "default",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, groups, init)
        assert isinstance(self.kernel_size, tuple)
        self.per_tap = per_tap
        self.hidden = exact_sizes(hidden, len(hidden), "hidden")
        if not self.hidden:
            raise ValueError("hidden must have at least one layer, got ()")
        widths = (len(self.kernel_size), *self.hidden)
        self.layers = nn.ModuleList(nn.Linear(i, o, device=device, dtype=dtype) for i, o in pairwise(widths))
        taps = (torch.Size(self.kernel_size).numel(),) if per_tap else ()
        shape = (*taps, self.hidden[-1] + 1, out_channels, in_channels // groups)
        self.mixing = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start with the variance of the matching convolution's weights, at every displacement."""
        assert isinstance(self.kernel_size, tuple)
        variance = initial_variance(self.init, self.in_channels, self.out_channels, self.kernel_size, self.groups)
        for layer in self.layers:
            layer.reset_parameters()  # type: ignore[operator]
        with torch.no_grad():
            energy = self._energy()
            *_, constant = self.mixing.unbind(-3)
            self.mixing.normal_().mul_((VARYING_SHARE * variance / energy).sqrt())
            constant.normal_(std=((1 - VARYING_SHARE) * variance) ** 0.5)

    def _energy(self) -> Tensor:
        """The mean over the support of the hidden basis functions' sum of squares."""
        assert isinstance(self.kernel_size, tuple)
        device, dtype = self.mixing.device, torch.promote_types(self.mixing.dtype, torch.float32)
        spans = [1.0 if self.per_tap else float(k) for k in self.kernel_size]
        lines = [(torch.arange(8, device=device, dtype=dtype) / 7 - 0.5) * span for span in spans]
        hidden = self.basis(torch.cartesian_prod(*lines).reshape(-1, len(lines)))[..., :-1]
        return hidden.square().sum(-1).mean().clamp_min(torch.finfo(dtype).tiny)

    def basis(self, d: Tensor) -> Tensor:
        """[..., D] -> [..., R]. The last function is the constant one."""
        parameters = [parameter.to(d.dtype) for parameter in self.net_parameters()]
        return nets.units(d.reshape(-1, d.shape[-1]), parameters, SLOPE).reshape(*d.shape[:-1], -1)

    def net_parameters(self) -> list[Tensor]:
        """Weight and bias of each hidden layer in turn."""
        linear = cast(Sequence[nn.Linear], self.layers)
        for number, layer in enumerate(linear):
            if layer.bias is None:
                raise ValueError(f"layers[{number}] of the kernel must have a bias, as all of its layers")
        return [parameter for layer in linear for parameter in (layer.weight, layer.bias)]

    def forward(self, d: Tensor) -> Tensor:
        if not self.per_tap:
            return super().forward(d)
        tap, u = tap_and_rest(d, self.kernel_size)
        return torch.einsum("...r,...roi->...oi", self.basis(u), self.mixing.to(d.dtype)[tap])

    def extra_repr(self) -> str:
        text = super().extra_repr()
        if self.per_tap:
            text += ", per_tap=True"
        if self.hidden != (16, 16):
            text += f", hidden={self.hidden}"
        return text


def is_net(kernel: Kernel) -> TypeGuard[InternalNet]:
    """Whether the basis is what the hidden layers say, one for all taps; a subclass, or somebody's patch, may make it
    another."""
    own = isinstance(kernel, InternalNet) and getattr(kernel.basis, "__func__", None) is InternalNet.basis
    return own and not kernel.per_tap


def tap_and_rest(d: Tensor, kernel_size: Sequence[int] | int) -> tuple[Tensor, Tensor]:
    """The tap (row-major over the axes) whose window holds displacement d, and d from that window's centre.

    d: [..., D] -> tap: [...] int, rest: [..., D], in (-1/2, 1/2] within the support.
    """
    size = torch.as_tensor(kernel_size, device=d.device).expand(d.shape[-1])
    tap = torch.minimum((size / 2 - d).floor().long().clamp_min(0), size - 1)  # [..., D]
    rest = d - ((size - 1) / 2 - tap)
    flat = tap[..., 0]
    for axis in range(1, d.shape[-1]):
        flat = flat * size[axis] + tap[..., axis]
    return flat, rest
