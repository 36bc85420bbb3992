"""Fits the rates of the cost model, and checks its choices.

    python benchmarks/fit.py measure --count 160 --seed 1 --out benchmarks/data/fit.json
    python benchmarks/fit.py measure --count 160 --seed 5 --out benchmarks/data/fit-more.json
    python benchmarks/fit.py measure --count 280 --seed 3 --plain --out benchmarks/data/plain.json
    python benchmarks/fit.py measure --count 40 --seed 7 --kind large --out benchmarks/data/large.json
    python benchmarks/fit.py measure --count 160 --seed 9 --kind few --out benchmarks/data/few.json
    python benchmarks/fit.py fit benchmarks/data/{fit,fit-more,plain,large,few}.json     writes the package's rates.json
    python benchmarks/fit.py measure --count 200 --seed 2 --out benchmarks/data/check.json
    python benchmarks/fit.py measure --count 100 --seed 4 --kind few --out benchmarks/data/check-few.json
    python benchmarks/fit.py check benchmarks/data/check.json     exits with 1 unless 95 % are within 1.25x of the best

Every strategy that can run a problem, native or plain, is timed on it, interleaved. The fit is a non-negative least
squares of the relative error, one for each strategy, engine and mode.
"""

import argparse
import json
import platform
import sys
from pathlib import Path

import numpy as np
import torch
from cases import Case
from contenders import continuous, input_of
from measure import inferred, interleaved_seconds, trained
from problems import random_cases

import contconv
from contconv.functional import planned
from contconv.strategies import STRATEGIES, Cost, Problem, Strategy
from contconv.strategies.factored import Factored
from contconv.strategies.phases import Phases

RATES = Path(contconv.__file__).parent / "strategies" / "rates.json"
COMPETING = ("phases", "factored")
PLAIN = (Phases(native=False), Factored(native=False))

# What does ten times the arithmetic of another strategy, or takes gigabytes, is out of the race without being timed.
MOST_MACS_RATIO = 5
MOST_BYTES = 2**30


def _worth_timing(cost: Cost, least: int) -> bool:
    return cost.macs <= MOST_MACS_RATIO * least and cost.bytes <= MOST_BYTES


def timed(case: Case, plain: bool) -> dict[str, object]:
    """The time of every strategy that can run the case, with its counts; with `plain`, those of PyTorch alone."""
    x = input_of(case)
    net, parameters = continuous(case)
    layer = net[0]
    problem = planned(
        x.shape, layer.kernel, scale=layer.scale, size=None, padding_mode="zeros", antialias=False, center=0,
        training=case.training,
    )  # fmt: skip
    strategies = [s for s in (PLAIN if plain else (STRATEGIES[n] for n in COMPETING)) if not s.why_not(problem)]
    least = min(s.cost(problem).macs for s in strategies)
    able = {s.engine(problem): s for s in strategies if _worth_timing(s.cost(problem), least)}
    calls = {engine: _call(s, layer, x, parameters, problem, case.training) for engine, s in able.items()}
    seconds = interleaved_seconds(calls, rounds=25, budget=0.4)
    mode = "training" if case.training else "inference"
    return {
        "case": case.name,
        "competing": [s.engine(problem) for s in strategies],
        "strategies": {
            f"{engine}/{mode}": {"seconds": seconds[engine], "counts": s.counts(problem)} for engine, s in able.items()
        },
    }


def _call(strategy: Strategy, layer, x, parameters, problem: Problem, training: bool):
    def run(x: torch.Tensor) -> torch.Tensor:
        return strategy.run(x, layer.kernel, layer.bias, problem)

    return trained(run, x, parameters) if training else inferred(run, x)


def measure(arguments: argparse.Namespace) -> int:
    rows = []
    for number, case in enumerate(random_cases(arguments.count, arguments.seed, kind=arguments.kind)):
        rows.append(timed(case, plain=arguments.plain))
        print(f"{number + 1}/{arguments.count} {case.name}", file=sys.stderr, flush=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    about = {"torch": torch.__version__, "native": contconv.native.status(), "machine": platform.machine()}
    write(arguments.out, {**about, "rows": rows})
    return 0


def write(path: Path, data: object) -> None:
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(data, indent=1) + "\n")
    partial.replace(path)


def fit(arguments: argparse.Namespace) -> int:
    measured: dict[str, list[dict]] = {}
    for path in arguments.data:
        data = json.loads(path.read_text())
        for row in data["rows"]:
            for name, sample in row["strategies"].items():
                measured.setdefault(name, []).append(sample)
    rates, errors = {}, {}
    for name, samples in sorted(measured.items()):
        counts = list(dict.fromkeys(count for sample in samples for count in sample["counts"]))
        seconds = np.array([sample["seconds"] for sample in samples])
        matrix = np.array([[sample["counts"].get(c, 0.0) for c in counts] for sample in samples])
        found = non_negative(matrix / seconds[:, None], np.ones(len(seconds)))
        rates[name] = dict(zip(counts, found.tolist(), strict=True))
        ratio = matrix @ found / seconds
        errors[name] = {"measurements": len(samples), "median relative error": float(np.median(np.abs(ratio - 1)))}
        print(f"{name:<28} {len(samples):4d} measurements, median relative error {np.median(np.abs(ratio - 1)):.2f}")
    for name in rates:
        if name.endswith("native/inference"):  # a basis takes as long to make whoever uses it
            rates[name]["sampled"] = max(found.get("sampled", 0.0) for found in rates.values())
    about = {key: data[key] for key in ("torch", "native", "machine")}
    write(RATES, {**about, "fit": errors, "seconds per count": rates})
    return 0


def non_negative(matrix: np.ndarray, target: np.ndarray, steps: int = 20000) -> np.ndarray:
    """The least squares solution without negative entries, by multiplicative updates (all data are positive)."""
    scale = np.maximum(matrix.max(0), 1e-300)  # a count that no sample has gets no rate
    scaled = matrix / scale
    solution = np.full(matrix.shape[1], 0.1)
    gram, right = scaled.T @ scaled, scaled.T @ target
    for _ in range(steps):
        solution *= right / np.maximum(gram @ solution, 1e-300)
    return solution / scale


def check(arguments: argparse.Namespace) -> int:
    rows = json.loads(arguments.data.read_text())["rows"]
    rates = json.loads(RATES.read_text())["seconds per count"]
    slowdowns = []
    for row in rows:
        competing = [n for n in row["strategies"] if n.rsplit("/", 1)[0] in row["competing"]]
        real = {n: row["strategies"][n]["seconds"] for n in competing}
        guess = {n: sum(rates[n][c] * v for c, v in row["strategies"][n]["counts"].items()) for n in competing}
        pick = min(guess, key=guess.__getitem__)
        slowdowns.append(real[pick] / min(real.values()))
        if slowdowns[-1] > arguments.within:
            print(f"{slowdowns[-1]:5.2f}x {row['case']}: picked {pick}, best {min(real, key=real.__getitem__)}")
    share = float(np.mean(np.array(slowdowns) <= arguments.within))
    print(f"{share:.1%} of {len(rows)} choices within {arguments.within}x of the best; worst {max(slowdowns):.2f}x")
    return 0 if share >= arguments.share else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("measure")
    command.add_argument("--count", type=int, default=200)
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--plain", action="store_true", help="time PyTorch without the native kernel")
    command.add_argument("--kind", choices=("all", "large", "few"), default="all", help="of problems, see problems.py")
    command.add_argument("--out", type=Path, required=True)
    command.set_defaults(run=measure)
    command = commands.add_parser("fit")
    command.add_argument("data", type=Path, nargs="+")
    command.set_defaults(run=fit)
    command = commands.add_parser("check")
    command.add_argument("data", type=Path)
    command.add_argument("--within", type=float, default=1.25)
    command.add_argument("--share", type=float, default=0.95)
    command.set_defaults(run=check)
    arguments = parser.parse_args()
    return arguments.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
