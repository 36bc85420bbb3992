"""What the paper states about its networks, as claims that the evaluations can make true or false."""

from contconv.cifar.cost import Timed
from contconv.cifar.groups import Group, pairs
from contconv.cifar.statistics import mean, spread
from contconv.experiments.record import Claim

LEAST_ACCURACY = 85.0
MOST_COST = 1.5
SIGNIFICANT = 0.05
ACCURACY = {"convnet": 87.14, "ccnet": 87.81}
GAINS = {2: 1.7, 3: 2.4}
# By input and largest shift: ConvNet, CCNet.
EQUIVARIANCE = {
    "images": {"2": (0.90, 0.92), "4": (0.78, 0.85), "6": (0.65, 0.77)},
    "noise": {"2": (0.80, 0.91), "4": (0.67, 0.85), "6": (0.56, 0.85)},
}


def accuracy_claims(found: list[Group]) -> list[Claim]:
    """CCNet at least as good as ConvNet, and both good enough."""
    claims = []
    for group in (group for group in found if group.model in ACCURACY):
        values = accuracies(group)
        claims.append(
            Claim(
                f"accuracy: {group.label}", f"{ACCURACY[group.model]} %", f"mean >= {LEAST_ACCURACY:g} %",
                spoken(values, " %"), mean(values) >= LEAST_ACCURACY, tuple(values),
            )
        )  # fmt: skip
    for group, other in pairs(found):
        ours, theirs = mean(accuracies(group)), mean(accuracies(other))
        claims.append(
            Claim(
                f"accuracy: {group.label} against {other.label}", "87.81 against 87.14 %", "at least as good",
                f"{ours:.2f} against {theirs:.2f} %", ours >= theirs, (ours - theirs,),
            )
        )  # fmt: skip
    return claims


def equivariance_claims(found: list[Group]) -> list[Claim]:
    """CCNet ahead of ConvNet by at least the paper's margin, row by row.

    No similarity is more than 1. Where ConvNet's is so high that the margin would go beyond, CCNet has to make up for
    the same share of what ConvNet lacks as in the paper.
    """
    claims = []
    for group, other in pairs(found):
        for inputs, rows in EQUIVARIANCE.items():
            for largest, (baseline, continuous) in rows.items():
                if largest not in group.first["results"]["equivariance"][inputs]:
                    continue
                ours, theirs = (mean(one.equivariance(inputs, largest)) for one in (group, other))
                margin = round(continuous - baseline, 2)
                wanted, least = f"ahead of {other.label} by at least {margin:.2f}", margin
                if theirs + margin > 1:
                    share = margin / (1 - baseline)
                    least = share * (1 - theirs)
                    wanted = f"{share:.0%} of what {other.label} lacks (+{margin:.2f} would be more than 1)"
                claims.append(
                    Claim(
                        f"equivariance: {inputs}, ±{largest}: {group.label}",
                        f"{continuous:.2f} against {baseline:.2f}",
                        wanted,
                        f"{ours:.3f} against {theirs:.3f} ({ours - theirs:+.3f}{share_of_lack(ours, theirs)})",
                        ours - theirs >= least, (ours - theirs,),
                    )
                )  # fmt: skip
    return claims


def share_of_lack(ours: float, theirs: float) -> str:
    """How much of what they lack to 1 we make up for, in words."""
    return f", {(ours - theirs) / (1 - theirs):.0%} of what lacks" if theirs < 1 else ""


def ensemble_claims(found: list[Group]) -> list[Claim]:
    """Two and three sequences better than one, significantly, with every seed's weights.

    What one random sequence reaches is the mean of what an ensemble's own members reach alone: the same in expectation
    as the first of them, and not left to the chance of which one comes first.
    """
    claims = []
    for group in found:
        ensembles = [one["results"]["ensemble"] for one in group.evaluations]
        for k, gain in GAINS.items():
            rows = [row for one in ensembles if one is not None for row in one["members"] if row["k"] == k]
            if not rows or len(rows) < len(ensembles):
                continue
            gains = [row["over_members"] for row in rows]
            claims.append(
                Claim(
                    f"ensemble of {k}: {group.label}", f"+{gain} over a single sequence",
                    f"gain > 0 over its sequences alone, p < {SIGNIFICANT} over {ensembles[0]['draws']} draws",
                    "; ".join(f"{one['mean']:+.2f} (p = {one['p']:.2g})" for one in gains),
                    all(one["mean"] > 0 and one["p"] < SIGNIFICANT for one in gains),
                    tuple(one["mean"] for one in gains),
                )
            )  # fmt: skip
    return claims


def cost_claims(found: list[Group], steps: list[Timed]) -> list[Claim]:
    """A step of CCNet not much longer than one of ConvNet with as many images in the same precision."""
    claims = []
    for group, other in pairs(found):
        for step in (step for step in steps if step.label == group.label):
            like = (other.label, False, step.batch, step.precision)
            theirs = [one for one in steps if (one.label, one.agreeing, one.batch, one.precision) == like]
            if not theirs:
                continue
            ratio = step.seconds / theirs[0].seconds
            claims.append(
                Claim(
                    f"cost: a step of {step.name}", "15 times an epoch of ConvNet",
                    f"<= {MOST_COST:g} times a step of {other.label}", f"{ratio:.2f} times", ratio <= MOST_COST,
                    (ratio,),
                )
            )  # fmt: skip
    return claims


def accuracies(group: Group) -> list[float]:
    return group.values(lambda one: one["results"]["accuracy"])


def spoken(values: list[float], unit: str = "") -> str:
    """The mean, and the spread where there are several."""
    if len(values) == 1:
        return f"{values[0]:.2f}{unit}"
    return f"{mean(values):.2f} ± {spread(values):.2f}{unit} ({len(values)} seeds)"
