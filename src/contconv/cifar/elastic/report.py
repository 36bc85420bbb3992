"""All of a study's measurements, and the page about them."""

from pathlib import Path
from typing import Any, Literal

from contconv import files
from contconv.cifar import folder
from contconv.cifar.elastic import measurements
from contconv.cifar.elastic.figures import figures
from contconv.cifar.elastic.study import Study
from contconv.cifar.elastic.tables import LABELS, tables
from contconv.experiments.drawing import drawn
from contconv.experiments.record import plain
from contconv.experiments.report import table
from contconv.experiments.report_words import circumstances, spoken_time

Part = Literal["identity", "budgets", "scales", "consistency", "ensembles"]
PARTS: tuple[Part, ...] = (
    "identity",
    "budgets",
    "scales",
    "consistency",
    "ensembles",
)  # in the order in which they are measured
Row = dict[str, Any]


def states(study: Study) -> dict[str, tuple[bool, bool]]:
    """What is compared: (fine-tuned or not, statistics of normalisations taken anew for each way to run, or not)."""
    made = {"as trained": (False, False), "calibrated": (False, True)}
    if study.tuning.epochs:
        made["fine-tuned"] = (True, study.tuning.statistics == "batch")
    return made


def found(study: Study, parts: tuple[Part, ...] = PARTS) -> Row:
    """What is known and what has to be measured, in the form of the tables; what needs no fine-tuning comes first."""
    compared = states(study)
    measured(study, parts, {state: how for state, how in compared.items() if not how[0]})
    return measured(study, parts, compared)


def measured(study: Study, parts: tuple[Part, ...], compared: dict[str, tuple[bool, bool]]) -> Row:
    """The parts for some states; shifts and ensembles are not measured on a network that is calibrated alone."""
    alone = {state: how for state, how in compared.items() if how != (False, True)}
    calibrate = dict(alone.values())
    whole: Row = {"images": len(study.some), "identity": measurements.identity(study)}
    if "budgets" in parts:
        whole["latency"] = measurements.latencies(study)
        whole["budgets"] = {state: measurements.over_budgets(study, *how) for state, how in compared.items()}
    if "scales" in parts:
        whole["scales"] = {state: measurements.over_scales(study, *how) for state, how in compared.items()}
    if "consistency" in parts:
        whole["consistency"] = {
            label: measurements.consistency(study, kind, after, calibrate[after])
            for (kind, after), label in LABELS.items()
            if after in calibrate
        }
    if "ensembles" in parts:
        whole["ensembles"] = {state: measurements.ensembles(study, *how) for state, how in alone.items()}
    return whole


def write(study: Study, whole: Row, command: str) -> Path:
    """report.md, its figures and its numbers (report.json) beside result.json; return the first."""
    folder.write(study.out / "report.json", plain(whole))
    content = study.store.content
    name = Path(content["about"]["weights"]).stem
    spent = spoken_time(sum(content["seconds"].values()))
    lines = [f"# {name} at other scales inside", "", f"`{command}`", ""]
    lines += [f"All of it took {spent} of processor time; {circumstances(content)}."]
    for part, one in tables(whole).items():
        lines += ["", f"## {part}", "", *table(one["head"], one["rows"]), "", f"*{one['caption']}*"]
    for figure in figures(name, whole):
        drawn(figure, study.out / "figures")
        lines += ["", f"![{figure.caption}](figures/{figure.name}.png)", "", f"*{figure.caption}*"]
    path = study.out / "report.md"
    files.write_text(path, "\n".join(lines) + "\n")
    return path
