"""Random problems of the kinds that users have, for fitting the cost model and for checking it."""

import random
from fractions import Fraction

from cases import Case

# Multiply-adds of the convolution at the output size: of what takes well under a second in training, and of large
# images that are upscaled.
MACS = (1e5, 5e8)
LARGE_MACS = (5e8, 1.5e10)
FEW_MACS = (1e4, 5e7)


def random_cases(count: int, seed: int, *, kind: str = "all") -> list[Case]:
    """Problems of all kinds; `"large"`: single images that are upscaled; `"few"`: few channels, small batches."""
    draw = random.Random(seed)
    make, (least, most) = {
        "all": (_random_case, MACS),
        "large": (_random_upscaling, LARGE_MACS),
        "few": (_random_few, FEW_MACS),
    }[kind]
    found: list[Case] = []
    while len(found) < count:
        case = make(draw)
        out = [s * n for s, n in zip(case.scale, case.in_size, strict=True)]
        macs = case.batch * float(out[0] * out[1]) * case.channels[0] * case.channels[1] * case.kernel_size**2
        if least < macs < most:
            found.append(case)
    return found


def _random_case(draw: random.Random) -> Case:
    channels = draw.choice([(3, 32), (16, 16), (17, 23), (32, 32), (32, 64), (48, 80), (64, 64), (64, 3), (128, 128)])
    side = draw.choice([8, 12, 16, 24, 32, 48, 64, 100, 128, 200])
    return Case(
        "random",
        batch=draw.choice([1, 1, 2, 4, 8, 16, 32, 64]),
        channels=channels,
        kernel_size=draw.choice([2, 3, 3, 3, 4, 5]),
        in_size=(side, draw.choice([side, side, max(8, side * 3 // 4)])),
        scale=(_random_scale(draw), _random_scale(draw)),
        training=draw.random() < 0.6,
        kernel=draw.choice(["internal", "internal", "spline"]),
    )


def _random_upscaling(draw: random.Random) -> Case:
    side = draw.choice([96, 128, 200, 256])
    return Case(
        "random",
        batch=1,
        channels=draw.choice([(16, 16), (17, 23), (32, 32), (32, 64), (64, 64), (64, 64), (128, 128)]),
        kernel_size=draw.choice([3, 3, 3, 4, 5]),
        in_size=(side, draw.choice([side, side * 3 // 4])),
        scale=(draw.choice([Fraction(3, 2), draw.uniform(1, 3)]), draw.choice([Fraction(5, 4), draw.uniform(1, 3)])),
        training=False,
        kernel=draw.choice(["internal", "internal", "spline"]),
    )


def _random_few(draw: random.Random) -> Case:
    side = draw.choice([16, 32, 56, 100, 128, 224])
    return Case(
        "random",
        batch=draw.choice([1, 1, 1, 2, 4, 8]),
        channels=draw.choice([(1, 1), (1, 8), (3, 3), (3, 8), (8, 3), (8, 8), (32, 1), (3, 16)]),
        kernel_size=draw.choice([1, 2, 3, 3, 4, 5]),
        in_size=(side, draw.choice([side, side * 3 // 4])),
        scale=(_random_scale(draw), _random_scale(draw)),
        training=draw.random() < 0.6,
        kernel=draw.choice(["internal", "spline"]),
    )


def _random_scale(draw: random.Random) -> float | Fraction:
    kind = draw.random()
    if kind < 0.15:
        return Fraction(1, draw.choice([1, 1, 2, 3]))
    if kind < 0.6:
        denominator = draw.randint(2, 10)
        return Fraction(draw.randint(max(1, denominator // 3), 2 * denominator), denominator)
    return draw.uniform(0.3, 2.5)
