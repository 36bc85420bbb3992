"""Images resized by a fixed kernel (Keys' cubic, antialiased): ours beside `F.interpolate` and ResizeRight, by turns.

python benchmarks/images.py (`make bench-images`)
"""

import argparse
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import torch
from measure import interleaved_seconds
from resize_right import interp_methods, resize
from torch import Tensor
from torch.nn import functional as F

import contconv

SIZES = ((1, 3, 512, 768), (16, 3, 224, 224))
SCALES = (Fraction(1, 2), Fraction(2, 3), 0.6789, Fraction(3, 2), 2.3)


def contenders(x: Tensor, scale: float | Fraction) -> dict[str, Callable[[], Tensor]]:
    """What resizes x by the scale along both axes."""
    factors = [float(scale)] * 2
    (size,) = contconv.output_sizes(x.shape[2:], [(scale, scale)])
    return {
        "ours": lambda: contconv.continuous_conv(x, contconv.Cubic(), scale=scale, antialias=True),
        "F.interpolate": lambda: F.interpolate(x, size=size, mode="bicubic", antialias=True),
        "ResizeRight": lambda: resize(x, factors, interp_method=interp_methods.cubic),
        "ResizeRight, by_convs": lambda: resize(x, factors, interp_method=interp_methods.cubic, by_convs=True),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--out", type=Path, default=Path("out/images.json"))
    options = parser.parse_args()
    rows = []
    for shape in SIZES:
        x = torch.rand(shape)
        for scale in SCALES:
            with torch.inference_mode():
                calls = contenders(x, scale)
                seconds = interleaved_seconds(calls, options.rounds, budget=10)
            sizes = {tuple(call().shape) for call in calls.values()}
            if len(sizes) != 1:
                raise RuntimeError(f"not the same thing: {sizes}")
            ratios = {name: seconds["ours"] / took for name, took in seconds.items() if name != "ours"}
            rows.append({"shape": shape, "scale": str(scale), "seconds": seconds, "ours over": ratios})
            said = ", ".join(f"{ratio:.2f} of {name}" for name, ratio in ratios.items())
            print(f"{'x'.join(map(str, shape)):14s} by {scale!s:7s} ours takes {said}", flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    partial = options.out.with_suffix(".part")
    partial.write_text(json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads(), "rows": rows}))
    partial.replace(options.out)


if __name__ == "__main__":
    main()
