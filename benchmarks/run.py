"""Time, memory and error of every case, beside `nn.Conv2d`, `F.interpolate` + conv and ResizeRight + conv, interleaved
in one run.

    python benchmarks/run.py                        all cases (`make bench`)
    python benchmarks/run.py --quick                the main ones
    python benchmarks/run.py --tables               the paper's two tables, with all columns (`make bench-tables`)
    python benchmarks/run.py --baseline FILE        exits with 1 where a ratio is worse than in FILE

A ratio is the time of the layer over that of the convolution with stride 1, channels_last (contiguous in nchw cases).
Whether the two cores were near each other (`cores.py`) is told in every row.
"""

import argparse
import json
import platform
import sys
import time
from pathlib import Path

import torch
from cases import CASES, LAYERS, QUICK, W1, Case
from contenders import (
    continuous,
    convolution,
    input_of,
    interpolation_and_convolution,
    plain_phases,
    resize_right_and_convolution,
)
from cores import how_far
from measure import inferred, interleaved_seconds, peak_bytes, relative_error, trained

import contconv

WORSE = 1.15  # a ratio this many times its baseline is a regression; the machine's own noise is below it


def measured(case: Case, rounds: int, budget: float, tables: bool) -> dict[str, object]:
    """One row: seconds, ratios, peak memory, errors."""
    x = input_of(case)
    contenders = {"conv": convolution(case), "ours": continuous(case)}
    if case.layers == 1:
        contenders["interpolate+conv"] = interpolation_and_convolution(case)
        contenders["ResizeRight+conv"] = resize_right_and_convolution(case)
    if case.training and (tables or case.must is not None):
        contenders["plain PyTorch"] = plain_phases(case)
    if tables and case.layers == 1:
        contenders |= {"standard": continuous(case, "reference"), "clear memory": continuous(case, "chunked")}
    calls = {
        name: trained(call, x, parameters) if case.training else inferred(call, x)
        for name, (call, parameters) in contenders.items()
    }
    before = how_far()
    seconds = interleaved_seconds(calls, rounds, budget)
    after = how_far()
    layer = contenders["ours"][0][0]
    return {
        "case": case.name,
        "strategy": strategy_of(layer, x, case),
        "seconds": seconds,
        "ratio": {name: value / seconds["conv"] for name, value in seconds.items() if name != "conv"},
        "peak_bytes": {name: peak_bytes(calls[name]) for name in ("conv", "ours")},
        "macs": case.macs,
        "error": errors(case) if case.layers == 1 else None,
        "must": case.must,
        "paper": case.paper,
        "cores": before if before == after else "moved",
    }


def errors(case: Case) -> dict[str, float]:
    """Of the output, and the worst of the gradients, against float64 on part of the batch."""
    x = input_of(case, torch.float64).detach()[:2].requires_grad_(case.training)
    call, parameters = continuous(case, "phases", torch.float64)
    fast, fast_parameters = continuous(case)
    x32 = x.detach().float().to(memory_format=torch.channels_last).requires_grad_(case.training)
    if not case.training:
        return {"output": relative_error(inferred(fast, x32)()[0], inferred(call, x)()[0])}
    want, have = trained(call, x, parameters)(), trained(fast, x32, fast_parameters)()
    pairs = list(zip(have, want, strict=True))
    return {"output": relative_error(*pairs[0]), "gradients": max(relative_error(*pair) for pair in pairs[1:])}


def line(row: dict, columns: list[str]) -> str:
    ratio, error = row["ratio"], row["error"] or {}
    memory = row["peak_bytes"]["ours"] / max(1, row["peak_bytes"]["conv"])
    cells = [f"{row['case']:<44}", f"{row['strategy']:<9}", *(_cell(ratio.get(name)) for name in columns)]
    cells += [
        _cell(row["must"]),
        f"{memory:6.2f}",
        *(f"{error.get(k, float('nan')):8.1e}" for k in ("output", "gradients")),
    ]
    paper = (row["paper"] or {}).get("discrete convs")
    return " ".join([*cells, _cell(paper), row["cores"]])


def strategy_of(layer: contconv.ContinuousConv2d, x: torch.Tensor, case: Case) -> str:
    """What the layer picks where it is timed: training and inference need not agree."""
    with torch.set_grad_enabled(case.training):
        return contconv.explain(layer, x).strategy


def _cell(value: float | None) -> str:
    return "     -" if value is None else f"{value:6.2f}"


def regressions(rows: list[dict], baseline: list[dict]) -> list[str]:
    before = {row["case"]: row["ratio"]["ours"] for row in baseline}
    return [
        f"{row['case']}: {row['ratio']['ours']:.2f}, was {before[row['case']]:.2f}"
        for row in rows
        if row["case"] in before and row["ratio"]["ours"] > WORSE * before[row["case"]]
    ]


def processor() -> str:
    """As Linux calls it; names of virtual machines say little without the numbers."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text().split("\n\n")[0].splitlines() if about.exists() else []
    told = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    numbers = f"family {told.get('cpu family')}, model {told.get('model')}"
    return f"{told['model name']} ({numbers})" if "model name" in told else platform.processor()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the main cases only")
    parser.add_argument("--tables", action="store_true", help="the paper's tables, with all columns")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--budget", type=float, default=8.0, help="seconds per case after which seven rounds are enough"
    )
    parser.add_argument("--out", type=Path, default=Path("out/bench.json"))
    parser.add_argument("--baseline", type=Path, help="compare with this earlier result")
    arguments = parser.parse_args()
    baseline = json.loads(arguments.baseline.read_text())["rows"] if arguments.baseline else []
    cases = [*W1, *LAYERS] if arguments.tables else QUICK if arguments.quick else CASES
    cases = [case for case in cases if arguments.only in case.name]
    if not cases:
        parser.error(f"--only {arguments.only}: no case has that in its name")
    columns = ["ours", "interpolate+conv", "ResizeRight+conv", "plain PyTorch"]
    columns += ["standard", "clear memory"] * arguments.tables
    print(f"{contconv.native.status()} torch {torch.__version__}, {platform.processor() or platform.machine()}")
    print(
        "ratios to nn.Conv2d of the same run: " + ", ".join(columns) + "; must; memory / conv's; errors; paper; cores"
    )
    start, rows = time.perf_counter(), []
    for case in cases:
        rows.append(measured(case, arguments.rounds, arguments.budget, arguments.tables))
        print(line(rows[-1], columns), flush=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    partial = arguments.out.with_suffix(".part")
    about = {
        "torch": torch.__version__,
        "native": contconv.native.status(),
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "processor": processor(),
        "seconds": time.perf_counter() - start,
        "rows": rows,
    }
    partial.write_text(json.dumps(about, indent=1))
    partial.replace(arguments.out)
    worse = regressions(rows, baseline)
    print("\n".join(["worse than the baseline:", *worse]) if worse else "no regression" if baseline else "")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
