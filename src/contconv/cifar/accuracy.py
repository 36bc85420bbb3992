"""What a network says about many images, batch by batch, and how often it is right."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from contconv.size import PerAxis

BATCH = 500


class Outputs(NamedTuple):
    """Of N images: the output of the last convolutional layer [N, C, h, w], before its ReLU; logits [N, classes]."""

    responses: Tensor
    logits: Tensor


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; what was training trains again afterwards."""
    before = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(before)


def batches(x: Tensor, model: nn.Module, batch: int) -> Iterator[Tensor]:
    """The images in channels_last and on the model's device, so many at a time."""
    device = next(model.parameters()).device if any(True for _ in model.parameters()) else x.device
    for start in range(0, len(x), batch):
        yield x[start : start + batch].to(device, memory_format=torch.channels_last)


def logits(model: nn.Module, x: Tensor, *, scales: Sequence[PerAxis] | None = None, batch: int = BATCH) -> Tensor:
    """[N, C, H, W] normalised images -> [N, classes], on the CPU."""
    options = {} if scales is None else {"scales": scales}
    with evaluating(model):
        return torch.cat([model(part, **options).float().cpu() for part in batches(x, model, batch)])


def responses(model: nn.Module, x: Tensor, *, batch: int = BATCH) -> Tensor:
    """The last convolutional layer's output alone, for normalised images of any size."""
    with evaluating(model):
        maps = [model.responses(part).float().cpu() for part in batches(x, model, batch)]  # type: ignore[operator]
    return torch.cat(maps)


def outputs(model: nn.Module, x: Tensor, *, batch: int = BATCH) -> Outputs:
    """Both for normalised images, in one pass: `model.responses`, then `model.head` of what ReLU leaves of them."""
    with evaluating(model):
        maps = [model.responses(part) for part in batches(x, model, batch)]  # type: ignore[operator]
        said = [model.head(part.relu()).float().cpu() for part in maps]  # type: ignore[operator]
    return Outputs(torch.cat([part.float().cpu() for part in maps]), torch.cat(said))


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """The percentage of images whose largest logit is that of their label.

    >>> accuracy(torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]]), torch.tensor([1, 0, 0, 0]))
    75.0
    """
    if len(logits) != len(labels) or len(labels) == 0:
        raise ValueError(f"labels must be one per image, and at least one, got {len(labels)} for {len(logits)} images")
    return 100 * (logits.argmax(1) == labels).sum().item() / len(labels)
