"""Everything random about training, each from the seed, its purpose and a number, and from nothing else.

So a run that was stopped goes on with the same draws, and all processes of a run agree without talking.
"""

import hashlib
from functools import lru_cache

import torch
from torch import Tensor

from contconv.models.ccnet import STEPS, TARGET
from contconv.sequences import Scales, sample_scales


def generator(seed: int, purpose: str, number: int = 0) -> torch.Generator:
    """A source of randomness of its own for each seed, purpose and number."""
    digest = hashlib.blake2b(f"{seed} {purpose} {number}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


@lru_cache(maxsize=1)
def order(seed: int, epoch: int, count: int) -> Tensor:
    """The order in which an epoch takes its images: [count] int64, not to be written to."""
    return torch.randperm(count, generator=generator(seed, "order", epoch))


def scales(seed: int, step: int, *, std: float, max_denominator: int, purpose: str = "scales") -> Scales:
    """The scales of CCNet's layers in one training step."""
    source = generator(seed, purpose, step)
    return sample_scales(STEPS, TARGET, std=std, max_denominator=max_denominator, generator=source)


def noise(seed: int, step: int, shape: tuple[int, ...]) -> Tensor:
    """Standard Gaussian noise, as the images of one training step are normalised."""
    return torch.randn(shape, generator=generator(seed, "noise", step))
