"""The accuracy of scale ensembles over their number of members, against one random sequence and the default one."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn

from contconv.cifar.accuracy import BATCH, accuracy, logits
from contconv.cifar.statistics import gain, mean, spread
from contconv.ensembles import draw_sequences
from contconv.experiments.progress import Bar

MEMBERS = (1, 2, 3, 5, 8)
LAYERS, TARGET = 7, Fraction(1, 4)  # of CCNet


def member_logits(model: nn.Module, x: Tensor, count: int, seed: int, batch: int, bar: Bar) -> Tensor:
    """[count, N, classes]: the logits of each of so many random sequences."""
    passes = []
    for sequence in draw_sequences(count, LAYERS, TARGET, seed=seed):
        passes.append(logits(model, x, scales=sequence, batch=batch))
        bar.step()
    return torch.stack(passes)


def curve(
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    default: float,
    *,
    members: Sequence[int] = MEMBERS,
    draws: int = 5,
    seed: int = 0,
    batch: int = BATCH,
) -> dict[str, Any]:
    """Accuracies [%] for ensembles of the first k of each draw's sequences, and what they gain.

    `over_one` pairs an ensemble with the first of its own sequences, `over_members` with the mean accuracy of all its
    members alone, `over_default` with `default`, the accuracy of the network's default sequence on these images.
    """
    most = max(members)
    alone: list[list[float]] = []  # [draw][member]
    joint: list[list[float]] = []  # [draw][k]
    with Bar(draws * most, "ensembles") as bar:
        for draw in range(draws):
            passes = member_logits(model, x, most, 1000 * seed + draw, batch, bar)
            sums = passes.cumsum(0)
            alone.append([accuracy(one, labels) for one in passes])
            joint.append([accuracy(sums[k - 1], labels) for k in members])
    rows = [row(k, [of[n] for of in joint], alone, default) for n, k in enumerate(members)]
    return {"images": len(x), "draws": draws, "default": default, "alone": alone, "members": rows}


def row(k: int, found: list[float], alone: list[list[float]], default: float) -> dict[str, Any]:
    """One line of the table: ensembles of k members."""
    pairs = list(zip(found, alone, strict=True))
    return {
        "k": k,
        "accuracy": found,
        "mean": mean(found),
        "std": spread(found),
        "over_one": gain([value - singles[0] for value, singles in pairs])._asdict(),
        "over_members": gain([value - mean(singles[:k]) for value, singles in pairs])._asdict(),
        "over_default": gain([value - default for value in found])._asdict(),
    }
