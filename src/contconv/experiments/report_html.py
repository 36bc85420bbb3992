"""A report as one HTML file with everything in it."""

import base64
import json
from html import escape
from pathlib import Path
from typing import Any

from contconv.experiments.report_style import PAGE
from contconv.experiments.report_words import Record, circumstances, spoken_time, summary


def html(found: list[Record], folder: Path, subject: str) -> str:
    """The report as one page, its pictures (from the folder's `figures`) inside."""
    rows = "\n".join(row(claim, record) for record in found for claim in record["claims"])
    sections = "\n".join(section(record, folder) for record in found)
    total = sum(record["seconds"] for record in found)
    held = all(record["passed"] for record in found)
    return PAGE.substitute(
        subject=escape(subject), verdict="good" if held else "bad", summary=summary(found), rows=rows,
        sections=sections,
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
    tables = "".join(table(one) for one in record.get("tables", []))
    pictures = "".join(picture(figure, folder) for figure in record["figures"])
    details = {key: record[key] for key in ("config", "claims", "numbers", "versions", "machine", "seconds")}
    return (
        f'<section id="{record["experiment"]}"><h2>{escape(record["experiment"])}</h2><p class="lead">'
        f"{code(escape(title))}</p>{text}<p><code>{escape(record['command'])}</code> · "
        f"seed {record['config']['seed']} · {spoken_time(record['seconds'])}</p>{tables}{pictures}"
        f"<details><summary>Config, every seed's numbers, machine</summary>"
        f"<pre>{escape(rounded_json(details))}</pre></details></section>"
    )


def table(one: Record) -> str:
    """Rows of text under a head; wide ones scroll on a phone."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in one["head"])
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in one["rows"])
    return (
        f'<figure><div class="wide"><table class="plain"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
        f"</div><figcaption>{code(escape(one['caption']))}</figcaption></figure>"
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
