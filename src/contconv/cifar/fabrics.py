"""Lightning Fabric, set up for a run: devices, precision, processes."""

import gc
import logging
import os
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import distributed

if TYPE_CHECKING:
    import safetensors.torch  # noqa: F401 - needed for the first checkpoint; if it is missing, say so now
    from lightning_fabric import Fabric


@dataclass(frozen=True)
class Devices:
    """Where to run; the weights depend on it by rounding only."""

    accelerator: str = "auto"
    """cpu, cuda, mps, ... as Lightning Fabric names them."""
    devices: int = 1
    """Processes on each machine; on the CPU any number, elsewhere one for each device."""
    nodes: int = 1
    """Machines; each runs this command, started by torchrun or with the variables that Fabric asks for."""

    def __post_init__(self) -> None:
        for name in ("devices", "nodes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


def launched(where: Devices, precision: str) -> "Fabric":
    """A Fabric whose processes all run from here on: one, or as many as there are devices and machines."""
    import safetensors.torch  # noqa: F401 - needed for the first checkpoint; if it is missing, say so now
    from lightning_fabric import Fabric

    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    processes = where.devices * where.nodes
    check_torchrun(processes)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*srun.*")
        fabric = Fabric(
            accelerator=where.accelerator,
            devices=where.devices,
            num_nodes=where.nodes,
            strategy="ddp" if processes > 1 else "auto",
            precision=precision,  # type: ignore[arg-type]
        )
    fabric.launch()
    return fabric


def leave() -> None:
    """End what the processes have in common, when nothing of the run is needed any more: a thread of gloo that lets go
    of a tensor while the interpreter ends aborts the process."""
    if distributed.is_available() and distributed.is_initialized():
        gc.collect()  # whoever still has the group keeps its threads alive
        distributed.destroy_process_group()


def check_torchrun(processes: int) -> None:
    """Refuse to be one of several runs in the same folder that do not know of each other."""
    if "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ["WORLD_SIZE"]) != processes:
        raise ValueError(
            f"devices x nodes must be the number of processes that torchrun started, {os.environ['WORLD_SIZE']}, "
            f"got {processes}"
        )
