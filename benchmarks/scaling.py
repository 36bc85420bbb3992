"""How the cost grows with image side, channels, batch and numerator of the scale: `docs/images/scaling.png`.

python benchmarks/scaling.py --out docs/images/scaling.png
"""

import argparse
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from cases import IRREGULAR, Case
from contenders import continuous, convolution, input_of, interpolation_and_convolution
from measure import interleaved_seconds, trained

BASE = Case("scaling", 16, (32, 32), 3, (48, 48), (Fraction(2, 3), Fraction(2, 3)))
SWEEPS = {
    "image side": [replace(BASE, in_size=(n, n)) for n in (16, 24, 32, 48, 64, 96, 128)],
    "channels": [replace(BASE, channels=(n, n)) for n in (8, 16, 32, 64, 128)],
    "batch": [replace(BASE, batch=n) for n in (1, 2, 4, 8, 16, 32, 64)],
    "numerator k of the scale k/(k+1)": [
        replace(BASE, scale=(Fraction(k, k + 1), Fraction(k, k + 1))) for k in (1, 2, 3, 5, 8, 13, 21, 34)
    ],
}
POSITION = {
    "image side": lambda case: case.in_size[0],
    "channels": lambda case: case.channels[0],
    "batch": lambda case: case.batch,
    "numerator k of the scale k/(k+1)": lambda case: Fraction(case.scale[0]).numerator,
}


def ratios(case: Case) -> dict[str, float]:
    """Forward and backward, over the convolution's."""
    x = input_of(case)
    contenders = {
        "conv": convolution(case),
        "scale 2/3, or k/(k+1)": continuous(case),
        "scale 0.6789 x 0.7123": continuous(replace(case, scale=IRREGULAR)),
        "interpolate + conv": interpolation_and_convolution(case),
    }
    calls = {name: trained(call, x, parameters) for name, (call, parameters) in contenders.items()}
    seconds = interleaved_seconds(calls, rounds=9, budget=2.0)
    return {name: value / seconds["conv"] for name, value in seconds.items() if name != "conv"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/scaling.png"))
    out = parser.parse_args().out
    figure, panels = plt.subplots(1, len(SWEEPS), figsize=(14, 3.6), layout="constrained", sharey=True)
    for panel, (what, cases) in zip(panels, SWEEPS.items(), strict=True):
        rows = [ratios(case) for case in cases]
        positions = [POSITION[what](case) for case in cases]
        for name in rows[0]:
            panel.plot(positions, [row[name] for row in rows], marker="o", markersize=3, label=name)
        panel.axhline(1, color="grey", linewidth=0.8)
        panel.set(xscale="log", xlabel=what)
        panel.set_xticks(positions, [str(p) for p in positions], fontsize=7)
        panel.minorticks_off()
        panel.set_ylim(0, 4)
    panels[0].set_ylabel("forward + backward, over nn.Conv2d")
    panels[0].legend(fontsize=7)
    figure.suptitle(
        f"batch {BASE.batch}, {BASE.channels[0]} channels, 3x3, 48x48, scale 2/3, where not varied", fontsize=9
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f"{out.stem}.part{out.suffix}")
    figure.savefig(partial, dpi=120)
    partial.replace(out)
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
