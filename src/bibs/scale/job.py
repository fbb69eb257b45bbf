"""A job: from files of rows to files of answers, by one of the engines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bibs.scale.local import Event, run_locally
from bibs.scale.output import Done, Output, OutputError, open_output
from bibs.scale.tables import Shard, cut, find_tables
from bibs.scale.work import Failure, Loader

ENGINES = ("local", "ray")
SHARD_ROWS = 4096


@dataclass(frozen=True)
class Engine:
    """Who does the work: `workers` processes here, or as many actors in the Ray cluster at `address`."""

    name: str = "local"
    workers: int = 1
    address: str | None = None

    def __post_init__(self) -> None:
        if self.name not in ENGINES:
            raise ValueError(f"`--engine` must be {' or '.join(ENGINES)}, but is {self.name!r}")
        if self.workers < 1:
            raise ValueError(f"`--workers` must be at least 1, but is {self.workers}")
        if self.address is not None and self.name != "ray":
            raise ValueError(f"`--address` must come with `--engine ray`, but comes with {self.name!r}")

    def ready(self) -> AbstractContextManager[None]:
        """What this engine lacks is said on entry, before anything is written."""
        if self.name == "local":
            return nullcontext()
        from bibs.scale.on_ray import connected

        return connected(self.address, self.workers)

    def run(self, loader: Loader, output: Output, shards: Sequence[Shard]) -> Iterator[Event]:
        if self.name == "local":
            return run_locally(loader, output, shards, self.workers)
        from bibs.scale.on_ray import run_on_ray

        return run_on_ray(loader, output, shards, self.workers)


@dataclass
class Summary:
    """What is known of a job by now. Rows are counted as they are filled, shards when they are whole."""

    total: int
    already: int = 0  # rows that an earlier run had done
    filled: int = 0
    errors: int = 0  # rows that have one
    failures: list[str] = field(default_factory=list)  # of shards that could not be done
    seconds: float = 0.0

    @property
    def done(self) -> int:
        return self.already + self.filled

    @property
    def rate(self) -> float:
        return self.filled / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        return (self.total - self.done) / self.rate if self.rate else None


def fill_files(
    loader: Loader,
    sources: Sequence[Path],
    directory: Path,
    *,
    options: dict[str, Any],
    engine: Engine,
    shard_rows: int = SHARD_ROWS,
    progress: Callable[[Summary], None] = lambda summary: None,
) -> Summary:
    """Fill all rows of `sources` into `directory`, or what an earlier run has left. `options` decide the answers.

    A shard that cannot be read is a failure of its own; where the output cannot be written to, the job ends.
    """
    if shard_rows < 1:
        raise ValueError(f"`--shard-rows` must be at least 1, but is {shard_rows}")
    paths = find_tables(sources)
    _check_apart(sources, directory)
    shards = cut(paths, shard_rows)
    settings = {**options, "shard_rows": shard_rows}
    with engine.ready(), open_output(directory, settings, shards, paths) as output:
        earlier = {shard.name: done for shard in shards if (done := output.done(shard))}
        left = [shard for shard in shards if shard.name not in earlier]
        summary = Summary(
            total=sum(shard.rows for shard in shards),
            already=sum(done.rows for done in earlier.values()),
            errors=sum(done.errors for done in earlier.values()),
        )
        progress(summary)
        if left:
            _do(engine.run(loader, output, left), summary, progress)
    return summary


def _do(events: Iterator[Event], summary: Summary, progress: Callable[[Summary], None]) -> None:
    began, seen = time.monotonic(), dict[str, int]()  # rows that were heard of, by shard
    with closing(events):  # type: ignore[type-var]
        for shard, said in events:
            summary.seconds = time.monotonic() - began
            before = seen.pop(shard.name, 0)
            if isinstance(said, int):
                seen[shard.name] = said
                summary.filled += said - before
            elif isinstance(said, Done):
                summary.filled += said.rows - before
                summary.errors += said.errors
            elif said.fatal:
                raise OutputError(f"{said.reason}; what is whole is kept, and the same command goes on from there")
            else:
                assert isinstance(said, Failure)
                summary.filled -= before
                summary.failures.append(said.reason)
            progress(summary)


def _check_apart(sources: Sequence[Path], directory: Path) -> None:
    """Answers must not be read as rows by the next run."""
    for source in sources:
        if source.is_dir() and directory.resolve().is_relative_to(source.resolve()):
            raise ValueError(f"`--output` must not be inside of `--input`, but {directory} is inside of {source}")
