"""The filters of a network's first layer, sampled for a picture."""

from typing import Any

import torch
from torch import Tensor, nn

from contconv.modules import ContinuousConv2d

RESOLUTION = 21  # samples along each axis of a continuous filter
FILTERS = 12


def first_kernels(model: nn.Module, filters: int = FILTERS, resolution: int = RESOLUTION) -> dict[str, Any]:
    """The strongest filters: [filters][input channels][rows][columns] numbers, over the support of `kernel_size`."""
    layer: Any = model.convs[0]  # type: ignore[index]
    with torch.no_grad():
        sampled = continuous(layer, resolution) if isinstance(layer, ContinuousConv2d) else layer.weight
    strength = sampled.flatten(1).norm(dim=1)
    chosen = sampled[strength.argsort(descending=True)[:filters]].double().cpu()
    rounded = [[[[float(f"{v:.3g}") for v in line] for line in plane] for plane in one] for one in chosen.tolist()]
    return {"kernel_size": layer.kernel_size[0], "filters": rounded}


def continuous(layer: ContinuousConv2d, resolution: int) -> Tensor:
    """[Cout, Cin, resolution, resolution]: the layer's kernel over its support."""
    lines = [torch.linspace(-size / 2, size / 2, resolution) for size in layer.kernel_size]
    d = torch.stack(torch.meshgrid(*lines, indexing="ij"), -1).to(layer.kernel.mixing)
    return layer.kernel(d).permute(2, 3, 0, 1)
