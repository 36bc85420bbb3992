"""Statistics of batch normalisation, which at other scales are others."""

import copy

import torch
from torch import Tensor, nn

from contconv.cifar.elastic.ways import Way

BATCH = 250


def normalisations(model: nn.Module) -> list[nn.BatchNorm2d]:
    return [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]


def calibrated(model: nn.Module, way: Way, x: Tensor) -> nn.Module:
    """A copy whose normalisations have the statistics of these images (normalised, as in training), run in this way."""
    fresh = copy.deepcopy(model)
    for layer in normalisations(fresh):
        layer.reset_running_stats()
        layer.momentum = None  # the mean over all batches
        layer.train()
    with torch.no_grad(), way.running(fresh):
        for part in x.split(BATCH):
            fresh(way.seen(part))
    return fresh.eval()
