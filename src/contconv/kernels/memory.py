"""Samples of a kernel, kept for as long as its parameters stay what they are."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from threading import Lock
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from contconv.kernels.base import Kernel, traits
from contconv.transforms import forward_mode, traced, unobserved

MOST_ENTRIES = 32
MOST_BYTES = 128 * 2**20


@dataclass
class _Memory:
    """What was sampled from one kernel, least recently used first, and the state that it was sampled from."""

    state: list[Tensor]  # copies
    stamps: list[Hashable]
    samples: OrderedDict[Hashable, Tensor] = field(default_factory=OrderedDict)
    bytes: int = 0

    def keep(self, key: Hashable, sample: Tensor) -> None:
        size = sample.nbytes
        if size > MOST_BYTES:
            return
        self.bytes += size - (self.samples[key].nbytes if key in self.samples else 0)
        self.samples[key] = sample
        while len(self.samples) > MOST_ENTRIES or self.bytes > MOST_BYTES:
            _, oldest = self.samples.popitem(last=False)
            self.bytes -= oldest.nbytes


# Beside the modules and not in them: copies, pickles and state_dicts know nothing of it.
_memories: WeakKeyDictionary[nn.Module, _Memory] = WeakKeyDictionary()
_lock = Lock()


def remembered(kernel: Kernel, key: Hashable, sample: Callable[[], Tensor]) -> Tensor:
    """sample(), or what it was last time if nothing that it depends on has changed since."""
    if not may_remember(kernel):
        return sample()
    state = state_of(kernel)
    if not all(_plain(tensor) for tensor in state):
        return sample()
    key = key, kernel.extra_repr()
    with _lock:
        memory = _memories.get(kernel)
        if memory is None or not _unchanged(memory, state):
            memory = _memories[kernel] = _Memory([t.detach().clone() for t in state], [_stamp(t) for t in state])
        if key in memory.samples:
            memory.samples.move_to_end(key)
            return memory.samples[key]
    # Not an inference tensor even in inference mode: the next call may need it for the gradient of x.
    with unobserved(), torch.no_grad():
        result = sample()
    with _lock:
        memory.keep(key, result)
    return result


def state_of(kernel: Kernel) -> list[Tensor]:
    """All parameters and buffers."""
    if kernel._modules:
        return [*kernel.parameters(), *kernel.buffers()]
    own = (*kernel._parameters.values(), *kernel._buffers.values())  # the same, without a walk through modules
    return [tensor for tensor in own if tensor is not None]


def may_remember(kernel: Kernel) -> bool:
    """In evaluation without gradients, or where there is nothing to train; never while tracing or with tangents."""
    if (kernel.training or torch.is_grad_enabled()) and _is_trained(kernel):
        return False
    return traits(kernel).remembers and not (traced() or forward_mode())


def _is_trained(kernel: Kernel) -> bool:
    own = kernel._parameters.values()  # before a walk through modules, which takes a while
    if any(parameter is not None and parameter.requires_grad for parameter in own):
        return True
    return any(tensor.requires_grad for tensor in state_of(kernel))


def _plain(tensor: Tensor) -> bool:
    """A tensor with memory of its own: no subclass, no wrapper of a transform."""
    return type(tensor) in (Tensor, nn.Parameter) and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def _unchanged(memory: _Memory, state: list[Tensor]) -> bool:
    """The same tensors, and on the CPU, where looking costs little, the same numbers: `.data` leaves no other trace."""
    if memory.stamps != [_stamp(t) for t in state]:
        return False
    pairs = zip(memory.state, state, strict=True)
    return all(then.device.type != "cpu" or torch.equal(then, now) for then, now in pairs)


def _stamp(tensor: Tensor) -> Hashable:
    version = None if tensor.is_inference() else tensor._version
    return tensor.data_ptr(), version, tensor.dtype, tensor.device, tensor.shape
