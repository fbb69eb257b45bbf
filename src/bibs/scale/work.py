"""One shard, from its rows to its file. Every engine does this and nothing else, so all write the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bibs.data import Row
from bibs.scale.output import Done, Output, OutputError, output_errors
from bibs.scale.tables import Shard, open_writer, read_shard

FillRows = Callable[[Sequence[Row]], list[dict[str, Any]]]
"""An answer per row, in order; bibs.scale.answers has the real one."""


TRIES = 3
"""A shard that has ended so many workers is left out: it may be too much for the memory."""


class Loader(Protocol):
    """What is sent to a worker, and becomes there what answers rows."""

    def load(self) -> FillRows: ...


@dataclass(frozen=True)
class Failure:
    """A shard that could not be done; `fatal` where no other can be, either."""

    reason: str
    fatal: bool = False


def do_shard(
    shard: Shard, output: Output, fill: FillRows, report: Callable[[int], None] = lambda rows: None
) -> Done | Failure:
    """Fill a shard and mark it as done, unless it is; `report` hears after each batch how many rows are filled."""
    if (done := output.done(shard)) is not None:
        report(done.rows)
        return done
    if output.attempts(shard) >= TRIES:
        return ended_workers(shard)
    try:
        with output.whole_file(shard) as path:
            done = _write(shard, path, fill, report)
        output.finish(shard, done)
    except ValueError as error:
        return Failure(str(error), fatal=isinstance(error, OutputError))
    except OSError as error:
        return Failure(f"{shard.called} cannot be read: {error.strerror or error}")
    return done


def ended_workers(shard: Shard) -> Failure:
    why = f"rows {shard.first + 1} to {shard.first + shard.rows} ended {TRIES} workers (out of memory?)"
    return Failure(f"{shard.called}: {why}")


def _write(shard: Shard, path: Path, fill: FillRows, report: Callable[[int], None]) -> Done:
    rows = errors = 0
    with output_errors(path.parent):
        writer = open_writer(path, shard)
    try:
        for batch in read_shard(shard):
            answers = fill(batch)
            with output_errors(path.parent):
                writer.write(answers)
            rows += len(answers)
            errors += sum("error" in each for each in answers)
            report(rows)
    finally:
        with output_errors(path.parent):
            writer.close()
    if rows != shard.rows:
        raise ValueError(f"{shard.called} has changed: {shard.rows} rows were expected, but there are {rows}")
    return Done(rows, errors)
