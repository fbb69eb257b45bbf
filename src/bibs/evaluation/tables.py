"""The numbers as tables: rows of results laid out once, to be shown in the report, as text, and on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from bibs.evaluation.tasks import share_label

Row: TypeAlias = dict[str, Any]
"""Numbers by name, with `name_ci`, the 95 % interval, and `name_gain`, the share of another number, where known."""

Label: TypeAlias = Callable[[Row], str]


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
class Table:
    title: str
    groups: tuple[str, ...]  # headings, each above all the columns
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[Entry, ...], ...]], ...]  # a method (say), and its entries in each group
    corner: str = "method"  # what the rows are
    note: str = ""  # what else is there to see where entries are shown whole

    @property
    def caption(self) -> str:
        return ": ".join(filter(None, (self.title, self.note)))

    @property
    def width(self) -> int:
        return len(self.groups) * len(self.columns)

    def split(self) -> list[Table]:
        """One table for each group."""
        return [
            replace(self, groups=(group,), rows=tuple((label, (entries[place],)) for label, entries in self.rows))
            for place, group in enumerate(self.groups)
        ]


def share_of(row: Row) -> str:
    return share_label(row["removed"])


def lay_out(
    title: str,
    rows: Sequence[Row],
    columns: Sequence[Column],
    *,
    line: Label,
    group: Label = share_of,
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

    def entries(row: Row, rivals: Sequence[Row]) -> tuple[Entry, ...]:
        return tuple(column.entry(row, best=bool(row) and best(row, rivals, column.name)) for column in kept)

    body = tuple(
        (label, tuple(entries(places.get((name, label), {}), rivals) for name, rivals in groups.items()))
        for label in dict.fromkeys(map(line, rows))
    )
    return Table(title, tuple(groups), tuple(column.label for column in kept), body, corner, note)
