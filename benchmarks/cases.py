"""The workloads, as data. A case's name says everything about it."""

import math
from dataclasses import dataclass
from fractions import Fraction

import contconv

IRREGULAR = (0.6789, 0.7123)


@dataclass(frozen=True)
class Case:
    """One layer on one input. `paper` is the paper's own ratio to its convolution, where it has one (V100)."""

    family: str
    batch: int
    channels: tuple[int, int]
    kernel_size: int
    in_size: tuple[int, int]
    scale: tuple[float | Fraction, float | Fraction]
    layers: int = 1
    training: bool = True
    kernel: str = "internal"
    contiguous: bool = False  # NCHW instead of channels_last
    paper: dict[str, float] | None = None
    must: float | None = None  # the largest ratio to the convolution that we accept

    @property
    def macs(self) -> int:
        """Multiply-adds of a forward pass by filters, as if they were given."""
        per_pixel = self.layers * self.kernel_size**2 * self.channels[0] * self.channels[1]
        return self.batch * math.prod(contconv.output_sizes(self.in_size, [self.scale])[0]) * per_pixel

    @property
    def name(self) -> str:
        sizes = "x".join(map(str, self.in_size))
        scales = "x".join(str(s) for s in self.scale)
        parts = [
            self.family,
            f"n{self.batch}",
            f"c{self.channels[0]}-{self.channels[1]}",
            f"k{self.kernel_size}",
            sizes,
        ]
        parts += [f"by{scales}"] + [f"{self.layers}layers"] * (self.layers > 1) + ["infer"] * (not self.training)
        return "-".join(parts + [self.kernel] * (self.kernel != "internal") + ["nchw"] * self.contiguous)


THIRD = (Fraction(2, 3), Fraction(2, 3))
PAPER_BY_SIZE = {
    32: {"standard": 8.7 / 0.8, "clear memory": 19.7 / 0.8, "discrete convs": 3.5 / 0.8},
    64: {"standard": 30.0 / 1.3, "clear memory": 76.1 / 1.3, "discrete convs": 3.6 / 1.3},
    96: {"standard": 72.3 / 2.7, "clear memory": 155.4 / 2.7, "discrete convs": 5.1 / 2.7},
    128: {"standard": 131.5 / 4.0, "clear memory": 285.9 / 4.0, "discrete convs": 7.6 / 4.0},
}
PAPER_BY_LAYERS = {
    1: {"standard": 71.7 / 1.3, "clear memory": 158.7 / 1.3, "discrete convs": 3.5 / 1.3},
    2: {"clear memory": 317.9 / 2.8, "discrete convs": 7.0 / 2.8},
    4: {"clear memory": 635.0 / 6.0, "discrete convs": 14.1 / 6.0},
    8: {"clear memory": 1270.2 / 12.5, "discrete convs": 27.1 / 12.5},
    16: {"clear memory": 2538.7 / 25.2, "discrete convs": 54.6 / 25.2},
    32: {"clear memory": 5074.7 / 51.6, "discrete convs": 111.3 / 51.6},
}

W1 = [Case("W1", 50, (32, 32), 3, (n, n), THIRD, paper=PAPER_BY_SIZE[n], must=0.65) for n in (32, 64, 96, 128)]
LAYERS = [
    Case("W1", 50, (32, 32), 3, (64, 64), (1, 1), layers=n, paper=PAPER_BY_LAYERS[n], must=1.05)
    for n in (1, 2, 4, 8, 16, 32)
]
W2 = [Case("W2", 50, (32, 32), 3, (n, n), IRREGULAR, must=1.25) for n in (32, 64, 96, 128)]
W2_ONE = [Case("W2", 1, (32, 32), 3, (64, 64), IRREGULAR, must=2.4)]
W3 = [
    Case("W3", 64, (64, 64), 3, (16, 16), scale, must=1.15)
    for scale in ((Fraction(5, 6), Fraction(4, 5)), (Fraction(189, 250), Fraction(3, 4)))
]
W4 = [Case("W4", 1, (64, 64), 3, (256, 256), (1.7, 2.3), training=False, must=4.7)]
ODD = [
    Case("odd", 50, channels, kernel_size, (100, 37), scale)
    for scale in (THIRD, IRREGULAR)
    for channels, kernel_size in (((3, 32), 3), ((48, 80), 3), ((17, 23), 3), ((32, 32), 5), ((32, 32), 4))
]
NCHW = [Case("W1", 50, (32, 32), 3, (64, 64), THIRD, contiguous=True)]
SPLINE = [
    Case("W1", 50, (32, 32), 3, (64, 64), THIRD, kernel="spline"),
    Case("W2", 50, (32, 32), 3, (64, 64), IRREGULAR, kernel="spline"),
]

SMALL = [  # few images or few channels, and what is upscaled in training
    Case("small", 8, (3, 16), 3, (128, 128), IRREGULAR),
    Case("small", 4, (32, 32), 3, (64, 64), IRREGULAR),
    Case("up", 1, (32, 32), 3, (256, 256), (1.37, 1.43)),
    Case("up", 8, (3, 16), 3, (128, 128), (1.37, 1.43)),
    Case("up", 16, (64, 3), 3, (48, 48), (1.7, 2.3)),
]

CASES = [*W1, *W2, *W2_ONE, *W3, *W4, *ODD, *SMALL, *NCHW, *SPLINE, *LAYERS]
QUICK = [W1[1], W2[1], *W2_ONE, *W3, *W4]
