"""What the processes of test_processes.py do; in a file of its own because a spawned process imports it by name."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from contconv import sample_scales
from contconv.models import CCNet

STEPS, BATCH, PROCESSES = 2, 4, 2


def network() -> CCNet:
    torch.manual_seed(0)
    return CCNet("internal", width=2, hidden=4)


def trained(net: nn.Module, rank: int, world: int) -> None:
    """A few steps on this process's share of the batch, at another sequence of scales each."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        scales = sample_scales(7, 1 / 4, generator=generator)
        x, target = torch.randn(BATCH, 3, 32, 32, generator=generator), torch.arange(BATCH)
        share = slice(rank * BATCH // world, (rank + 1) * BATCH // world)
        loss = nn.functional.cross_entropy(net(x[share], scales), target[share])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def replicated(rank: int) -> dict[str, torch.Tensor]:
    """The weights after steps with DistributedDataParallel."""
    net = network()
    trained(DistributedDataParallel(net), rank, PROCESSES)
    return net.state_dict()


def sharded(rank: int) -> dict[str, torch.Tensor]:
    """The weights after steps with every layer sharded over the processes."""
    net = network()
    mesh = dist.device_mesh.init_device_mesh("cpu", (PROCESSES,))
    for conv in net.convs:
        fully_shard(conv, mesh=mesh)
    whole = fully_shard(net, mesh=mesh)
    trained(whole, rank, PROCESSES)
    return {name: value.full_tensor() for name, value in whole.state_dict().items()}


def run(rank: int, folder: str) -> None:
    """Train in both ways and leave the weights in the folder."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=PROCESSES)
    torch.save(replicated(rank), f"{folder}/ddp-{rank}.pt")
    torch.save(sharded(rank), f"{folder}/fsdp-{rank}.pt")
    dist.destroy_process_group()
    # fully_shard keeps gloo's threads alive, and one that drops a tensor while the interpreter ends aborts the process
    os._exit(0)


def answer(layer: nn.Module, x: torch.Tensor, answers) -> None:
    """One call in another process, sent back."""
    torch.set_num_threads(1)
    with torch.no_grad():
        answers.put(layer(x, scale=0.7).numpy())
