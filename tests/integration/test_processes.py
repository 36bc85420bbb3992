"""Several processes train to the weights of one, and plans and caches are right wherever a module goes."""

import copy
import pickle
import sys
from pathlib import Path

import pytest
import torch
from torch import multiprocessing

from contconv import ContinuousConv2d
from contconv.kernels import KERNELS

sys.path.insert(0, str(Path(__file__).parent))
import workers


def test_two_processes_train_to_the_weights_of_one(tmp_path):
    multiprocessing.spawn(workers.run, (str(tmp_path),), nprocs=workers.PROCESSES)
    alone = workers.network()
    start = copy.deepcopy(alone.state_dict())
    workers.trained(alone, 0, 1)
    assert max((value - start[name]).abs().max() for name, value in alone.state_dict().items()) > 1e-3
    results = sorted(tmp_path.glob("*.pt"))
    assert [path.stem for path in results] == ["ddp-0", "ddp-1", "fsdp-0", "fsdp-1"]
    for path in results:
        state = torch.load(path)
        for name, value in alone.state_dict().items():
            torch.testing.assert_close(state[name], value, rtol=1e-4, atol=1e-6)


def pickled(layer):
    return pickle.loads(pickle.dumps(layer))


def warm(kernel: str) -> tuple[ContinuousConv2d, torch.Tensor]:
    """A layer in evaluation that has kept its samples, and an input."""
    layer = ContinuousConv2d(4, 6, 3, kernel=kernel).eval()
    x = torch.randn(1, 4, 9, 9)
    with torch.no_grad():
        layer(x, scale=0.7)
    return layer, x


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("way", [copy.deepcopy, pickled])
def test_a_copy_is_equal_and_goes_its_own_way(way, kernel):
    layer, x = warm(kernel)
    with torch.no_grad():
        y, other = layer(x, scale=0.7), way(layer)
        assert torch.equal(other(x, scale=0.7), y)
        for parameter in other.parameters():
            parameter.mul_(2)
        assert not torch.allclose(other(x, scale=0.7), y)
        assert torch.equal(layer(x, scale=0.7), y)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_change_of_dtype_and_back(kernel):
    layer, x = warm(kernel)
    with torch.no_grad():
        y = layer(x, scale=0.7)
        double = layer.double()(x.double(), scale=0.7)
        assert double.dtype == torch.float64
        torch.testing.assert_close(double.float(), y, rtol=1e-5, atol=1e-6)
        assert torch.equal(layer.float()(x, scale=0.7), y)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_worker_process_answers_as_this_one(start):
    layer, x = warm("internal")
    context = multiprocessing.get_context(start)
    answers = context.SimpleQueue()
    worker = context.Process(target=workers.answer, args=(layer, x, answers))
    worker.start()
    answer = torch.from_numpy(answers.get())
    worker.join()
    with torch.no_grad():
        assert torch.equal(answer, layer(x, scale=0.7))
