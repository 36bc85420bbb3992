"""Turns saved results into the tables of `docs/benchmarks.md`.

python benchmarks/tables.py benchmarks/data/bench.json benchmarks/data/tables.json benchmarks/data/images.json
"""

import json
import sys
from pathlib import Path
from statistics import mean

HEAD = """# Benchmarks

Made by `make bench` in {seconds:.0f} s on {processor}, by `make bench-tables` in {table_seconds:.0f} s on
{table_processor}, and by `make bench-docs` ({machine}, {threads} threads, torch {torch}). {native}

A figure is the time of a forward and a backward pass with all gradients (W4: a forward pass in inference mode)
over that of `nn.Conv2d` with stride 1 on the same input, `channels_last`, measured interleaved in one process:
medians. *must* is the largest we accept. *memory* is the peak growth of the process over the convolution's.
*error* is the largest difference from the float64 reference, as a share of the largest value, of the output and of
the worst gradient.

Rows *small* and *up* are few images, and upscaling in training: 17 basis functions of an arbitrary scale are
multiply-adds that the convolution has not, and no batch shares them.

Repeated, a row moves by some 10 to 15 %, and single ones by more: what the C library's allocator gives back to the
system after a call has to be faulted in again by the next one, and whom that hits depends on what ran before. A row
that runs `F.conv2d` itself, scale 1, came out between 0.97 and 1.18.
*cores* are near where a round trip between the two takes 100 ns, far at 350 to 700 (`python benchmarks/cores.py`):
a virtual machine's cores move about, and plain PyTorch's products hand much from core to core.
"""

ODD = """
## Odd shapes

What a multiply-add costs beside W1 (at 2/3) or W2, in the mean of their four sizes; accepted is 1.5. In convolutions:
the ratio to the convolution of the same shape, over that of W1 or W2. In seconds: the time for a multiply-add, over
that of W1 or W2, and the same of the convolution, which has few channels and odd ones no cheaper.
"""

PAPER = """
## The paper's tables

The paper's figures were measured on a V100, ours on this CPU; both are ratios to the convolution of the same machine.
"standard" is the strategy `reference`, "clear memory" is `chunked`, "plain PyTorch" is without the native kernel.
"""

IMAGES = """
## Images resized by a fixed kernel

Keys' cubic with antialiasing, in inference mode (`make bench-images`): the time of
`continuous_conv(x, Cubic(), scale=..., antialias=True)` over that of others who do the same, interleaved.
"""

SCALING = """
## Scaling

![cost against image side, channels, batch and numerator](images/scaling.png)

`make bench-scaling`."""


def cell(value: float | None, form: str = ".2f") -> str:
    return "" if value is None else format(value, form)


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def workloads(rows: list[dict]) -> str:
    head = [
        "workload",
        "strategy",
        "ours",
        "must",
        "interpolate + conv",
        "ResizeRight + conv",
        "plain PyTorch",
        "memory",
        "error",
        "gradients",
        "cores",
    ]
    body = []
    for row in rows:
        ratio, error = row["ratio"], row["error"] or {}
        memory = row["peak_bytes"]["ours"] / max(1, row["peak_bytes"]["conv"])
        body.append(
            [
                f"`{row['case']}`",
                row["strategy"],
                f"**{ratio['ours']:.2f}**",
                cell(row["must"]),
                cell(ratio.get("interpolate+conv")),
                cell(ratio.get("ResizeRight+conv")),
                cell(ratio.get("plain PyTorch")),
                f"{memory:.2f}",
                cell(error.get("output"), ".0e"),
                cell(error.get("gradients"), ".0e"),
                row.get("cores", ""),
            ]
        )
    return table(head, body)


def odd_shapes(rows: list[dict]) -> str:
    """The cost of a multiply-add, over that of W1 or W2 at batch 50 and the same scale."""

    def per_mac(row: dict, name: str) -> float:
        return row["seconds"][name] / row["macs"]

    def in_convolutions(row: dict) -> float:
        return row["ratio"]["ours"]  # both do multiply-adds in proportion

    body = []
    for row in (row for row in rows if row["case"].startswith("odd-")):
        scale = row["case"].split("-")[-1]
        regular = [one for one in rows if one["case"].startswith(("W1-n50-", "W2-n50-"))]
        regular = [one for one in regular if one["case"].endswith(scale)]
        ratio = in_convolutions(row) / mean(map(in_convolutions, regular))
        times = [per_mac(row, name) / mean(per_mac(one, name) for one in regular) for name in ("ours", "conv")]
        body.append([f"`{row['case']}`", f"**{ratio:.2f}**", f"**{times[0]:.2f}**", f"{times[1]:.2f}"])
    return table(["workload", "in convolutions", "in seconds", "the convolution, in seconds"], body)


def papers(rows: list[dict]) -> str:
    """Ours beside the paper's, as ratios to the convolution of the same machine."""
    names = ("standard", "clear memory", "discrete convs")
    head = [
        "",
        *(f"{name}, paper" for name in names),
        "standard, here",
        "clear memory, here",
        "plain PyTorch",
        "**ours**",
        "MiB, ours",
        "MiB, conv",
    ]
    body = []
    for row in rows:
        ratio, peak = row["ratio"], row["peak_bytes"]
        body.append(
            [
                f"`{row['case']}`",
                *(cell(row["paper"].get(name), ".1f") for name in names),
                *(cell(ratio.get(name), ".1f") for name in ("standard", "clear memory", "plain PyTorch")),
                f"**{ratio['ours']:.2f}**",
                f"{peak['ours'] / 2**20:.0f}",
                f"{peak['conv'] / 2**20:.0f}",
            ]
        )
    return table(head, body)


def resized(rows: list[dict]) -> str:
    others = list(rows[0]["ours over"])
    body = [
        ["x".join(map(str, row["shape"])), row["scale"], *(f"{row['ours over'][name]:.2f}" for name in others)]
        for row in rows
    ]
    return table(["images", "scale", *(f"over {name}" for name in others)], body)


def main() -> None:
    bench, tables, images = (json.loads(Path(path).read_text()) for path in sys.argv[1:4])
    print(HEAD.format(**{**bench, "table_seconds": tables["seconds"], "table_processor": tables["processor"]}))
    print("## Workloads\n")
    print(workloads([row for row in bench["rows"] if "layers" not in row["case"]]))
    print(ODD)
    print(odd_shapes(bench["rows"]))
    print(PAPER)
    print(papers(tables["rows"]))
    print(IMAGES)
    print(resized(images["rows"]))
    print(SCALING)


if __name__ == "__main__":
    main()
