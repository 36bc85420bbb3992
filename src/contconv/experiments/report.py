"""The report of a folder of results: one HTML file with everything in it, the same in Markdown, and in JSON."""

import base64
import json
from html import escape
from pathlib import Path
from typing import Any

from contconv import files
from contconv.experiments.report_style import PAGE

ORDER = ("imitate", "generalize", "misalign", "conv-special-case")
Record = dict[str, Any]


def write(folder: Path) -> Path:
    """Write report.html, report.md and report.json from the records in the folder; return the first."""
    found = records(folder)
    if not found:
        raise ValueError(f"{folder}: no results of experiments here; run `contconv experiment all --out {folder}`")
    files.write_text(folder / "report.json", json.dumps({"passed": all(r["passed"] for r in found), "results": found}))
    files.write_text(folder / "report.md", markdown(found))
    files.write_text(folder / "report.html", html(found, folder))
    return folder / "report.html"


def records(folder: Path) -> list[Record]:
    """The records of a folder, in the order of the report."""
    return [
        json.loads((folder / f"{name}.json").read_text("utf-8")) for name in ORDER if (folder / f"{name}.json").exists()
    ]


def summary(found: list[Record]) -> str:
    claims = [claim for record in found for claim in record["claims"]]
    held = sum(claim["passed"] for claim in claims)
    return f"{held} of {len(claims)} claims hold"


def circumstances(record: Record) -> str:
    """Versions and machine in one line."""
    machine = record["machine"]
    made_with = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    power = f"{counted(machine['cores'], 'core')}, {counted(machine['threads'], 'thread')}"
    return f"{made_with}; {machine['processor']}, {power}"


def counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def markdown(found: list[Record]) -> str:
    """The report for terminals and repositories."""
    lines = ["# The paper's single-layer results, run again", "", f"**{summary(found)}.** {circumstances(found[0])}."]
    lines += ["", "| claim | the paper | wanted | ours | |", "|---|---|---|---|---|"]
    for record in found:
        for claim in record["claims"]:
            verdict = "pass" if claim["passed"] else "**FAIL**"
            cells = [claim["name"], claim["paper"], claim["wanted"], claim["ours"], verdict]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    for record in found:
        lines += ["", f"## {record['experiment']}", "", record["statement"], ""]
        lines += [f"`{record['command']}`, seed {record['config']['seed']}, {record['seconds']:.0f} s."]
        for figure in record["figures"]:
            lines += ["", f"![{figure['caption']}](figures/{figure['name']}.png)", "", f"*{figure['caption']}*"]
        lines += ["", "```json", json.dumps(record["config"]), "```"]
    return "\n".join(lines) + "\n"


def html(found: list[Record], folder: Path) -> str:
    """The report as one page, its pictures inside."""
    rows = "\n".join(row(claim, record) for record in found for claim in record["claims"])
    sections = "\n".join(section(record, folder) for record in found)
    total = sum(record["seconds"] for record in found)
    held = all(record["passed"] for record in found)
    return PAGE.substitute(
        verdict="good" if held else "bad", summary=summary(found), rows=rows, sections=sections,
        circumstances=escape(circumstances(found[0])), minutes=spoken_time(total),
    )  # fmt: skip


def row(claim: Record, record: Record) -> str:
    """A claim in the table; the labels show where a phone makes a card of it."""
    verdict = '<span class="good">holds</span>' if claim["passed"] else '<span class="bad">fails</span>'
    cells = [
        ("claim", f'<a href="#{record["experiment"]}">{escape(claim["name"])}</a>'),
        ("the paper", escape(claim["paper"])),
        ("wanted", escape(claim["wanted"])),
        ("ours", f"<b>{escape(claim['ours'])}</b>"),
        ("", verdict),
    ]
    return "<tr>" + "".join(f'<td data-label="{label}">{text}</td>' for label, text in cells) + "</tr>"


def section(record: Record, folder: Path) -> str:
    """An experiment: what it states, its pictures, its numbers."""
    title, *paragraphs = record["statement"].split("\n\n")
    text = "".join(f"<p>{code(escape(paragraph))}</p>" for paragraph in paragraphs)
    pictures = "".join(picture(figure, folder) for figure in record["figures"])
    details = {key: record[key] for key in ("config", "claims", "numbers", "versions", "machine", "seconds")}
    return (
        f'<section id="{record["experiment"]}"><h2>{escape(record["experiment"])}</h2><p class="lead">'
        f"{code(escape(title))}</p>{text}<p><code>{escape(record['command'])}</code> · "
        f"seed {record['config']['seed']} · {spoken_time(record['seconds'])}</p>{pictures}"
        f"<details><summary>Config, every seed's numbers, machine</summary>"
        f"<pre>{escape(rounded_json(details))}</pre></details></section>"
    )


def picture(figure: Record, folder: Path) -> str:
    """A figure inside the page, in light and in dark."""
    light, dark = (
        base64.b64encode((folder / "figures" / f"{figure['name']}{suffix}.png").read_bytes()).decode()
        for suffix in ("", "-dark")
    )
    caption = escape(figure["caption"])
    return (
        f'<figure><div class="wide"><picture><source media="(prefers-color-scheme: dark)" '
        f'srcset="data:image/png;base64,{dark}"><img alt="{caption}" src="data:image/png;base64,{light}"></picture>'
        f"</div><figcaption>{caption}</figcaption></figure>"
    )


def code(text: str) -> str:
    """Words between backticks as code."""
    parts = text.split("`")
    return "".join(f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts))


def rounded_json(details: Record) -> str:
    """JSON for reading: numbers to six digits, short lists on one line."""

    def short(value: Any) -> Any:
        if isinstance(value, float):
            return float(f"{value:.6g}")
        if isinstance(value, dict):
            return {key: short(item) for key, item in value.items()}
        return [short(item) for item in value] if isinstance(value, list) else value

    lines = []
    for key, value in short(details).items():
        entries = value.items() if isinstance(value, dict) else [("", value)]
        lines += [f"{key}{'.' if name else ''}{name}: {json.dumps(entry)}" for name, entry in entries]
    return "\n".join(lines)


def spoken_time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.1f} min"


def reproducing(found: list[Record], command: str) -> str:
    """docs/reproducing.md: what the paper states, what we measured, how, and how long it takes."""
    lines = [
        "# Reproducing the paper's single-layer results",
        "",
        f"Made by `{command}` from the results of `contconv experiment all`. {summary(found)}.",
        f"Measured with {circumstances(found[0])}.",
        "",
        "| claim | paper | ours | command | time |",
        "|---|---|---|---|---|",
    ]
    for record in found:
        for claim in record["claims"]:
            ours = f"{claim['ours']} (wanted: {claim['wanted']}; {'pass' if claim['passed'] else '**FAIL**'})"
            line = [claim["name"], claim["paper"], ours, f"`{record['command']}`", spoken_time(record["seconds"])]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |")
    lines += ["", "The time is that of the whole command, which may serve several claims. What each experiment does:"]
    for record in found:
        lines += ["", f"## {record['experiment']}", "", record["statement"]]
        for figure in record["figures"]:
            lines += ["", f"![{figure['caption']}](images/{figure['name']}.png)", "", f"*{figure['caption']}*"]
    return "\n".join(lines) + "\n"
