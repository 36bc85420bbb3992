"""Every device that is there gives what the CPU gives; a second call sends nothing to it and asks nothing of it.

The meta device stands in for an accelerator: it holds no data, so whatever is read from it would fail, and whatever
is sent to it is seen here.
"""

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import contconv
from contconv import ContinuousConv2d
from contconv.kernels import KERNELS
from contconv.strategies import STRATEGIES

PRESENT = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
DEVICES = [name for name, present in PRESENT.items() if present]

KERNEL_MAKES = {
    **{name: lambda name=name: ContinuousConv2d(4, 4, 3, kernel=name) for name in KERNELS},
    "dense-spline": lambda: ContinuousConv2d(4, 4, 3, kernel=contconv.SplineKernel(4, 4, (3, 3), density=2)),
    "cubic": lambda: ContinuousConv2d(4, 4, 4, kernel=contconv.Cubic(), groups=4),
    "gaussian": lambda: ContinuousConv2d(4, 4, 5, kernel=contconv.Gaussian([[2.0, 1.0], [1.0, 2.0]], 5), groups=4),
}
FROM_HOST = (torch.tensor, torch.as_tensor, torch.asarray, torch.from_numpy, Tensor.new_tensor)
TO_HOST = (Tensor.item, Tensor.tolist, Tensor.numpy, Tensor.cpu, Tensor.__bool__, Tensor.__int__, Tensor.__float__)
SYNCHRONISING = (*TO_HOST, torch.nonzero, Tensor.nonzero, torch.equal, Tensor.equal, torch.unique, Tensor.unique)


class Traffic(TorchFunctionMode):
    """Notes calls that make a tensor of Python data, or that a device would have to be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in FROM_HOST or func in SYNCHRONISING:
            self.seen.append(func.__name__)
        return func(*args, **(kwargs or {}))


class HostTensors(TorchDispatchMode):
    """Notes operations that have a tensor of the host among their arguments or results."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, Tensor)]
        if any(tensor.device.type == "cpu" for tensor in tensors):
            self.seen.append(str(func))
        return result


def traffic(call) -> list[str]:
    with Traffic() as functions, HostTensors() as operations:
        call()
    return functions.seen + operations.seen


@pytest.mark.parametrize("padding_mode", ["zeros", "reflect"])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", KERNEL_MAKES)
def test_a_second_call_sends_nothing_and_waits_for_nothing(name, strategy, padding_mode):
    layer = KERNEL_MAKES[name]().to("meta")
    layer.padding_mode = padding_mode
    x = torch.empty(2, 4, 9, 9, device="meta", requires_grad=True)
    for scale in (1 / 2, 2 / 3):
        if contconv.explain(layer, x, scale=scale).reasons[strategy]:
            continue
        layer.strategy = strategy

        def step(scale=scale) -> None:
            layer(x, scale=scale).sum().backward()

        step()
        assert traffic(step) == []
        layer.strategy = None


SENDING = {
    "from a list": lambda: torch.tensor([1.0], device="meta"),
    "from a tensor": lambda: torch.ones(1).to("meta"),
}


@pytest.mark.parametrize("name", SENDING)
def test_the_counter_sees_what_is_sent(name):
    """Or the test above could not fail."""
    assert traffic(SENDING[name])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", KERNEL_MAKES)
def test_a_device_gives_what_the_reference_gives_on_the_cpu(name, strategy, device):
    layer = KERNEL_MAKES[name]()
    x = torch.randn(2, 4, 9, 9)
    for scale in (1 / 2, 2 / 3):
        layer.strategy = "reference"
        want = layer.cpu()(x, scale=scale)
        layer.strategy = None
        if not contconv.explain(layer, x, scale=scale).reasons[strategy]:
            layer.strategy = strategy
            got = layer.to(device)(x.to(device), scale=scale)
            assert got.device.type == device
            torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)
