"""Lightning Fabric, set up for a run: devices, precision, processes."""

import logging
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    from lightning_fabric import Fabric

    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    several = where.devices * where.nodes > 1
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*srun.*")
        fabric = Fabric(
            accelerator=where.accelerator,
            devices=where.devices,
            num_nodes=where.nodes,
            strategy="ddp" if several else "auto",
            precision=precision,  # type: ignore[arg-type]
        )
    fabric.launch()
    return fabric
