"""What is measured, on how much, and how networks are fine-tuned."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal


@dataclass(frozen=True)
class Settings:
    """What all measurements depend on, but for the weights."""

    images: int = 2000
    """Test images for scales, ensembles and consistency; identity and budgets take all."""
    factors: tuple[float, ...] = (0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.3, 1.4)
    """What the layers' own scales are multiplied by."""
    budgets: tuple[float, ...] = (0.5, 0.7, 1.4)
    """Shares of the original's multiply-adds."""
    members: tuple[int, ...] = (1, 2, 3, 5)
    """The sizes of ensembles."""
    draws: int = 5
    """How often an ensemble's scales are drawn."""
    spread: float = 0.15
    """Of an ensemble's scales: each layer's factor is within 1/(1 + spread) ... 1 + spread."""
    shifts: tuple[int, ...] = (2, 4, 6)
    """For consistency: the largest shifts, in pixels."""
    calibration: int = 1000
    """Training images, cropped and flipped, on which the statistics of normalisations are taken."""
    rounds: int = 21
    """Rounds in which latencies are measured by turns."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("images", "draws", "calibration", "rounds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("factors", "budgets", "members", "shifts"):
            given = getattr(self, name)
            if not given or min(given) <= 0:
                raise ValueError(f"{name} must be one or more positive numbers, got {given}")
        if not 0 < self.spread < 1:
            raise ValueError(f"spread must be between 0 and 1, got {self.spread}")


@dataclass(frozen=True)
class Tuning:
    """How a trained network is fine-tuned: SGD with momentum, the learning rate up and down once."""

    epochs: int = 1
    """0 leaves fine-tuning out."""
    batch: int = 128
    learning_rate: float = 0.01
    """The peak."""
    weight_decay: float = 1e-4
    momentum: float = 0.9
    keep: float = 1 / 3
    """How often a layer, or the input, keeps its own size in a step."""
    lowest: float = 0.6
    """Else its factor is between this one and the next, each octave as often as any other."""
    highest: float = 1.4
    statistics: Literal["frozen", "batch"] = "frozen"
    """Of normalisations, while training: "frozen" (those of the trained network) or "batch"."""

    def __post_init__(self) -> None:
        if self.epochs < 0:
            raise ValueError(f"epochs must be at least 0, got {self.epochs}")
        if self.batch < 1:
            raise ValueError(f"batch must be at least 1, got {self.batch}")
        if self.learning_rate <= 0:
            raise ValueError(f"learning_rate must be positive, got {self.learning_rate}")
        if not 0 < self.lowest <= self.highest:
            raise ValueError(f"lowest must be positive and at most highest, got {self.lowest} and {self.highest}")
        if self.statistics not in ("frozen", "batch"):
            raise ValueError(f"statistics must be frozen or batch, got {self.statistics!r}")


def simple(factor: float) -> Fraction:
    """A factor as a fraction of few pieces, for few phases."""
    return Fraction(factor).limit_denominator(16)
