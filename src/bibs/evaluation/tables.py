"""The numbers as tables, each written once and shown as Markdown, LaTeX or HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

from bibs.evaluation.methods import KNOWN, OURS
from bibs.evaluation.results import Results, Row

METRIC_LABELS = {
    **{f"Bleu_{order}": f"Bleu-{order}" for order in (1, 2, 3, 4)},
    "exact_match": "exact match",
    "token_accuracy": "token accuracy",
    "seconds": "CPU seconds",
}
DECIMALS = {"S": 2, "seconds": 1}


@dataclass(frozen=True)
class Entry:
    """A number, its 95 % interval, whether it is the best of its column, and what share of another number it is."""

    text: str
    interval: str = ""
    best: bool = False
    gain: str = ""

    @property
    def line(self) -> str:
        return f"{self.text} ({self.gain})" if self.gain else self.text


@dataclass(frozen=True)
class Table:
    title: str
    groups: tuple[tuple[str, tuple[str, ...]], ...]  # a heading and the columns under it
    rows: tuple[tuple[str, tuple[Entry, ...]], ...]  # a method and its entries
    corner: str = "method"  # what the rows are

    @property
    def columns(self) -> list[str]:
        return [column for _, columns in self.groups for column in columns]


def metric_label(name: str) -> str:
    plain = name.removeprefix("blank_")
    return ("blank " if plain != name else "") + METRIC_LABELS.get(plain, plain)


def metric_table(results: Results, title: str, metrics: Sequence[str], lengths: str) -> Table:
    """One row a method, the metrics side by side for every share of words removed."""
    rows = [row for row in results.rows if row["lengths"] == lengths]
    shares = list(dict.fromkeys(row["removed"] for row in rows))
    kept = [name for name in metrics if any(row.get(name) is not None for row in rows)]
    best = {
        (share, name): max(
            (row[name] for row in rows if row["removed"] == share and _competes(row) and row[name] is not None),
            default=None,
        )
        for share in shares
        for name in kept
    }
    found = {(row["removed"], row["method"]): row for row in rows}
    body = []
    for method, label in results.labels.items():
        entries = []
        for share in shares:
            row = found[share, method]
            for name in kept:
                top = name != "seconds" and _competes(row) and row[name] is not None and row[name] == best[share, name]
                entries.append(Entry(_number(row[name], name), _interval(row.get(f"{name}_ci"), name), top))
        body.append((label, tuple(entries)))
    columns = tuple(metric_label(name) for name in kept)
    return Table(title, tuple((share_label(share), columns) for share in shares), tuple(body))


def comparison_table(results: Results, metrics: Sequence[str], lengths: str) -> Table | None:
    """How far BiBS is above each other method, on the same sentences; a sure gain is marked."""
    found = {
        (each["removed"], each["metric"], each["other"]): each
        for each in results.comparisons
        if each["lengths"] == lengths and each["metric"] in metrics
    }
    if not found:
        return None
    shares = list(dict.fromkeys(share for share, _, _ in found))
    kept = [name for name in metrics if any(name == metric for _, metric, _ in found)]
    body = []
    for method, label in results.labels.items():
        if method != OURS:
            entries = [_difference(found[share, name, method], name) for share in shares for name in kept]
            body.append((label, tuple(entries)))
    columns = tuple(metric_label(name) for name in kept)
    return Table(
        "BiBS minus the others, with the gain and the 95 % interval of the difference",
        tuple((share_label(share), columns) for share in shares),
        tuple(body),
    )


def length_table(results: Results, lengths: str) -> Table | None:
    """How far the chosen lengths are off; and the CIDEr and the time, in those of the same method told the length."""
    rows = [row for row in results.rows if row["lengths"] == lengths and "length_errors" in row]
    if not rows:
        return None
    shares = list(dict.fromkeys(row["removed"] for row in rows))
    told = {(row["removed"], row["method"]): row for row in results.rows if row["lengths"] == KNOWN}
    found = {(row["removed"], row["method"]): row for row in rows}
    body = []
    for method, label in results.labels.items():
        entries: list[Entry] = []
        for share in shares:
            row = found[share, method]
            errors = row["length_errors"]
            entries += [Entry(f"{within:.1%}") for within in errors["within"]]
            entries.append(Entry(f"{errors['mean']:+.2f}"))
            if told:
                known = told[share, method]
                entries.append(Entry(f"{row['CIDEr'] / known['CIDEr']:.1%}" if known.get("CIDEr") else "n/a"))
                entries.append(Entry(f"{row['seconds'] / known['seconds']:.1f}" if known["seconds"] else "n/a"))
        body.append((label, tuple(entries)))
    columns = ("right", "within 1", "within 2", "mean error", *(("CIDEr / known", "time / known") if told else ()))
    title = f"Chosen lengths, {lengths} length"
    return Table(title, tuple((share_label(share), columns) for share in shares), tuple(body))


def _competes(row: Row) -> bool:
    """Retrieval stands beside the comparison, not in it."""
    return not row["method"].startswith("ncca")


def _difference(each: Row, name: str) -> Entry:
    text = f"{each['difference']:+.{DECIMALS.get(name, 3)}f}"
    gain = "" if each["gain"] is None else f"{each['gain']:+.1%}"
    return Entry(text, _interval(each["difference_ci"], name, signed=True), each["difference_ci"][0] > 0, gain)


def _number(value: float | None, name: str) -> str:
    return "n/a" if value is None else f"{value:.{DECIMALS.get(name, 3)}f}"


def _interval(ends: Sequence[float] | None, name: str, *, signed: bool = False) -> str:
    if ends is None:
        return ""
    sign = "+" if signed else ""
    return "[" + ", ".join(f"{end:{sign}.{DECIMALS.get(name, 3)}f}" for end in ends) + "]"


def share_label(removed: int | None) -> str:
    return "" if removed is None else f"r = {removed} %"


def to_markdown(table: Table) -> str:
    heads = [f"{column}, {group}" if group else column for group, columns in table.groups for column in columns]
    lines = [f"### {table.title}", "", f"| {table.corner} | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for label, entries in table.rows:
        cells = [f"**{e.line}**" if e.best else e.line for e in entries]
        shown = [f"{cell} {e.interval}".strip() for cell, e in zip(cells, entries, strict=True)]
        lines.append(f"| {label} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def to_compact_markdown(table: Table) -> str:
    """A column for each group, its numbers between strokes and without their intervals: for a page of prose."""
    heads = [group for group, _ in table.groups]
    lines = [f"| {' / '.join(table.groups[0][1])} | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for label, entries in table.rows:
        cells, place = [], 0
        for _, columns in table.groups:
            part = entries[place : place + len(columns)]
            shown = (re.sub(r"^([+-]?)0\.", r"\1.", entry.text) for entry in part)
            cells.append(" / ".join(f"**{text}**" if e.best else text for text, e in zip(shown, part, strict=True)))
            place += len(columns)
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def to_latex(table: Table) -> str:
    """A `booktabs` table."""
    columns = table.columns
    lines = [
        r"\begin{table*}",
        r"\centering",
        r"\begin{tabular}{l" + "c" * len(columns) + "}",
        r"\toprule",
    ]
    if any(group for group, _ in table.groups):
        heads = [rf"\multicolumn{{{len(names)}}}{{c}}{{{_tex(group)}}}" for group, names in table.groups]
        lines.append(" & ".join(["", *heads]) + r" \\")
        place = 2
        for _, names in table.groups:
            lines.append(rf"\cmidrule(lr){{{place}-{place + len(names) - 1}}}")
            place += len(names)
    lines += [" & ".join(["", *map(_tex, columns)]) + r" \\", r"\midrule"]
    for label, entries in table.rows:
        cells = [rf"\textbf{{{_tex(e.line)}}}" if e.best else _tex(e.line) for e in entries]
        shown = [
            rf"{cell} {{\tiny {_tex(e.interval)}}}" if e.interval else cell
            for cell, e in zip(cells, entries, strict=True)
        ]
        lines.append(" & ".join([_tex(label), *shown]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{_tex(table.title)}.}}", r"\end{table*}"]
    return "\n".join(lines) + "\n"


def to_html(table: Table) -> str:
    parts = [f"<figure><figcaption>{html.escape(table.title)}</figcaption><table><thead>"]
    if any(group for group, _ in table.groups):
        heads = [f'<th colspan="{len(names)}">{html.escape(group)}</th>' for group, names in table.groups]
        parts.append(f"<tr><th></th>{''.join(heads)}</tr>")
    parts.append(
        f"<tr><th>{table.corner}</th>" + "".join(f"<th>{html.escape(c)}</th>" for c in table.columns) + "</tr>"
    )
    parts.append("</thead><tbody>")
    for label, entries in table.rows:
        cells = [
            f'<td class="best">{_cell(entry)}</td>' if entry.best else f"<td>{_cell(entry)}</td>" for entry in entries
        ]
        parts.append(f"<tr><th>{html.escape(label)}</th>{''.join(cells)}</tr>")
    return "".join(parts) + "</tbody></table></figure>"


def _cell(entry: Entry) -> str:
    below = (part for part in (entry.gain, entry.interval) if part)
    return html.escape(entry.text) + "".join(f"<small>{html.escape(part)}</small>" for part in below)


def _tex(text: str) -> str:
    return re.sub(r"([%&_#$])", r"\\\1", text)
