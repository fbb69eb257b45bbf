"""The numbers as tables: rows of results laid out once, shown as Markdown, LaTeX, on a terminal or in the report."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias

from bibs.evaluation.tasks import share_label

Row: TypeAlias = dict[str, Any]
"""Numbers by name, with `name_ci`, the 95 % interval, and `name_gain`, the share of another number, where known."""


@dataclass(frozen=True)
class Column:
    """The number `name` of a row, under the heading `label`, written by the format `form`."""

    name: str
    label: str
    form: str = ".3f"

    def entry(self, row: Row, *, best: bool = False) -> Entry:
        value, interval, gain = (row.get(self.name + suffix) for suffix in ("", "_ci", "_gain"))
        return Entry(
            "n/a" if value is None else f"{value:{self.form}}",
            "" if interval is None else f"[{', '.join(f'{end:{self.form}}' for end in interval)}]",
            best,
            "" if gain is None else f"{gain:+.1%}",
        )


@dataclass(frozen=True)
class Entry:
    """A number, its 95 % interval, whether it stands out in its column, and what share of another number it is."""

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
    note: str = ""  # what else is there to see where entries are shown whole

    @property
    def caption(self) -> str:
        return ": ".join(filter(None, (self.title, self.note)))

    @property
    def columns(self) -> list[str]:
        return [column for _, columns in self.groups for column in columns]

    def split(self) -> list[Table]:
        """One table for each group of columns."""
        ends = [0]
        for _, columns in self.groups:
            ends.append(ends[-1] + len(columns))
        return [
            replace(self, groups=(group,), rows=tuple((name, row[begin:end]) for name, row in self.rows))
            for group, (begin, end) in zip(self.groups, pairwise(ends), strict=True)
        ]


def share_of(row: Row) -> str:
    return share_label(row["removed"])


def lay_out(
    title: str,
    rows: Sequence[Row],
    columns: Sequence[Column],
    *,
    line: Callable[[Row], str],
    group: Callable[[Row], str] = share_of,
    best: Callable[[Row, Sequence[Row], str], bool] = lambda row, rivals, name: False,
    corner: str = "method",
    note: str = "95 % intervals",
) -> Table:
    """One line for each `line` of the rows, the columns side by side for each `group` of them.

    `best` is told a row, all rows of its group and the name of a column. A column that no row has is left out.
    """
    kept = [column for column in columns if any(row.get(column.name) is not None for row in rows)]
    places = {(group(row), line(row)): row for row in rows}
    groups = {name: [row for row in rows if group(row) == name] for name in dict.fromkeys(map(group, rows))}
    body = []
    for label in dict.fromkeys(map(line, rows)):
        found = [(places.get((name, label), {}), rivals) for name, rivals in groups.items()]
        entries = [
            column.entry(row, best=bool(row) and best(row, rivals, column.name))
            for row, rivals in found
            for column in kept
        ]
        body.append((label, tuple(entries)))
    labels = tuple(column.label for column in kept)
    return Table(title, tuple((name, labels) for name in groups), tuple(body), corner, note)


def to_markdown(table: Table) -> str:
    heads = [f"{column}, {group}" if group else column for group, columns in table.groups for column in columns]
    lines = [f"### {table.caption}", "", *_head(table.corner, heads)]
    for label, entries in table.rows:
        cells = (f"{f'**{e.line}**' if e.best else e.line} {e.interval}".strip() for e in entries)
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def to_compact_markdown(table: Table) -> str:
    """A column for each group, its numbers between strokes and without their intervals: for a page of prose."""
    lines = _head(" / ".join(table.groups[0][1]), [group for group, _ in table.groups])
    parts = table.split()
    for place, (label, _) in enumerate(table.rows):
        cells = []
        for part in parts:
            shown = [(re.sub(r"^([+-]?)0\.", r"\1.", entry.text), entry.best) for entry in part.rows[place][1]]
            cells.append(" / ".join(f"**{text}**" if best else text for text, best in shown))
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _head(corner: str, heads: Sequence[str]) -> list[str]:
    return [f"| {corner} | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]


def to_latex(table: Table) -> str:
    """A `booktabs` table."""
    columns = table.columns
    lines = [r"\begin{table*}", r"\centering", rf"\begin{{tabular}}{{l{'c' * len(columns)}}}", r"\toprule"]
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
        small = [rf" {{\tiny {_tex(e.interval)}}}" if e.interval else "" for e in entries]
        lines.append(" & ".join([_tex(label), *map("".join, zip(cells, small, strict=True))]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{_tex(table.caption)}.}}", r"\end{table*}"]
    return "\n".join(lines) + "\n"


def _tex(text: str) -> str:
    return re.sub(r"([%&_#$])", r"\\\1", text)
