"""Kernels by number: a graph can hold a number, and not a module."""

from dataclasses import dataclass
from itertools import count
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch
from torch import Tensor, nn

from contconv.kernels import Kernel, as_kernel, traits
from contconv.strategies.recompute import owns_its_inputs
from contconv.transforms import unobserved

_numbers: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
_kernels: WeakValueDictionary[int, nn.Module] = WeakValueDictionary()
_next = count()


@dataclass(frozen=True)
class _Probe:
    """Asks a kernel for everything that a strategy would ask for."""

    axes: int

    def __call__(self, kernel: Kernel) -> tuple[Tensor, Tensor]:
        dtype = torch.promote_types(kernel.mixing.dtype, torch.float32)
        return kernel.basis(torch.zeros(1, self.axes, device=kernel.mixing.device, dtype=dtype)), kernel.mixing


def number_of(kernel: object, axes: int) -> tuple[int, int]:
    """The number of a kernel, and its output channels (0: as many as go in)."""
    module = as_kernel(kernel)
    if module not in _numbers:
        with unobserved():
            if not owns_its_inputs(module, _Probe(axes)):
                raise ValueError(
                    f"kernel {type(module).__name__} reads tensors that are not its own parameters, and torch.compile "
                    f"would lose their gradients: make them parameters of the kernel, or call the layer outside"
                )
        number = next(_next)
        _numbers[module], _kernels[number] = number, module
    return _numbers[module], 0 if traits(module).channelwise else int(module.mixing.shape[-2])


def kernel_of(number: int) -> Kernel:
    """The kernel of that number."""
    module = _kernels.get(number)
    if module is None:
        raise RuntimeError("the kernel of this compiled graph is gone: keep the layer alive, or compile again")
    return as_kernel(module)


def state_of(kernel: nn.Module) -> dict[str, Tensor]:
    """Everything that the kernel's output depends on, by name."""
    return {**dict(kernel.named_parameters()), **dict(kernel.named_buffers())}
