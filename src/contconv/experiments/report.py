"""The report of a folder of results: one HTML file with everything in it, the same in Markdown, and in JSON."""

import json
from functools import partial
from pathlib import Path

from contconv import files
from contconv.experiments.report_html import html
from contconv.experiments.report_words import Record, circumstances, spoken_time, summary

ORDER = ("imitate", "generalize", "misalign", "conv-special-case")
SUBJECT = "the paper's single-layer results"


def write(folder: Path) -> Path:
    """Write report.html, report.md and report.json from the records in the folder; return the first."""
    found = records(folder)
    if not found:
        raise ValueError(f"{folder}: no results of experiments here; run `contconv experiment all --out {folder}`")
    files.write_text(folder / "report.json", json.dumps({"passed": all(r["passed"] for r in found), "results": found}))
    files.write_text(folder / "report.md", markdown(found, SUBJECT))
    files.write_text(folder / "report.html", html(found, folder, SUBJECT))
    return folder / "report.html"


def records(folder: Path) -> list[Record]:
    """The records of a folder, in the order of the report."""
    return [
        json.loads((folder / f"{name}.json").read_text("utf-8")) for name in ORDER if (folder / f"{name}.json").exists()
    ]


def markdown(found: list[Record], subject: str, figures: str = "figures") -> str:
    """The report for terminals and repositories; `figures` is the folder of the pictures, as seen from the file."""
    lines = [f"# {subject[0].upper()}{subject[1:]}, run again", ""]
    lines += [f"**{summary(found)}.** {circumstances(found[0])}.", ""]
    lines += table(
        ["claim", "the paper", "wanted", "ours", ""], [claim_cells(claim) for r in found for claim in r["claims"]]
    )
    for record in found:
        lines += ["", f"## {record['experiment']}", "", record["statement"], ""]
        lines += [f"`{record['command']}`, seed {record['config']['seed']}, {record['seconds']:.0f} s."]
        for one in record.get("tables", []):
            lines += ["", *table(one["head"], one["rows"]), "", f"*{one['caption']}*"]
        for figure in record["figures"]:
            lines += ["", f"![{figure['caption']}]({figures}/{figure['name']}.png)", "", f"*{figure['caption']}*"]
        lines += ["", "```json", json.dumps(record["config"]), "```"]
    return "\n".join(lines) + "\n"


def copy_figures(found: list[Record], folder: Path, images: Path) -> None:
    """The light figures of a report's folder, for a page of the docs."""
    for figure in (figure for record in found for figure in record["figures"]):
        picture = (folder / "figures" / f"{figure['name']}.png").read_bytes()
        files.write(images / f"{figure['name']}.png", partial(Path.write_bytes, data=picture))


def claim_cells(claim: Record) -> list[str]:
    return [claim["name"], claim["paper"], claim["wanted"], claim["ours"], "pass" if claim["passed"] else "**FAIL**"]


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """The lines of a table in Markdown."""
    return [line(head), "|" + "---|" * len(head), *(line(row) for row in rows)]


def line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def reproducing(found: list[Record], command: str) -> str:
    """docs/reproducing.md: what the paper states, what we measured, how, and how long it takes."""
    lines = [
        "# Reproducing the paper's single-layer results",
        "",
        f"Made by `{command}` from the results of `contconv experiment all`. {summary(found)}.",
        f"Measured with {circumstances(found[0])}.",
        "",
    ]
    rows = []
    for record in found:
        for claim in record["claims"]:
            ours = f"{claim['ours']} (wanted: {claim['wanted']}; {'pass' if claim['passed'] else '**FAIL**'})"
            rows.append([claim["name"], claim["paper"], ours, f"`{record['command']}`", spoken_time(record["seconds"])])
    lines += table(["claim", "paper", "ours", "command", "time"], rows)
    lines += ["", "The time is that of the whole command, which may serve several claims. What each experiment does:"]
    for record in found:
        lines += ["", f"## {record['experiment']}", "", record["statement"]]
        for figure in record["figures"]:
            lines += ["", f"![{figure['caption']}](images/{figure['name']}.png)", "", f"*{figure['caption']}*"]
    return "\n".join(lines) + "\n"
