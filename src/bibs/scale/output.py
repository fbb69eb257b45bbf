"""The output directory of a job. A kill or a full disk at any moment leaves whole files, and no others.

    part-00000-00000.parquet     the answers of a shard, written under a hidden name and renamed when whole
    _bibs/job.json               what the job was told, and which files it reads
    _bibs/part-00000-00000.json  the done-marker of that shard: its rows, its errors, the job that it belongs to
    _bibs/lock                   held by the one command that drives the job

A marker is written after the file that it speaks of. A shard without a marker is done again, with the same answers.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bibs.models.storage import load_json, make_directory, save_json, write_atomically
from bibs.scale.tables import Shard, answers_name

if sys.platform != "win32":
    import fcntl

INSIDE = "_bibs"  # readers of folders of Parquet pass over names that begin so
JOB = "job.json"
PARTIAL = ".partial"


class OutputError(ValueError):
    """The output cannot be written to; no shard can."""


@dataclass(frozen=True)
class Done:
    """What became of a shard."""

    rows: int
    errors: int  # rows that have one


@dataclass(frozen=True)
class Output:
    """Where shards are written; small, so that it can be sent to workers."""

    directory: Path  # absolute
    job: str  # the fingerprint of job.json

    def marker(self, shard: Shard) -> Path:
        return self.directory / INSIDE / f"{shard.name}.json"

    def done(self, shard: Shard) -> Done | None:
        """What became of a shard; None where it is still to be done."""
        try:
            values = json.loads(self.marker(shard).read_bytes())
            if values["job"] == self.job:
                return Done(values["rows"], values["errors"])
        except (OSError, ValueError, KeyError, TypeError):  # it is done again
            pass
        return None

    def finish(self, shard: Shard, done: Done) -> None:
        said = {"job": self.job, "input": shard.called, "first": shard.first, **asdict(done)}
        try:
            write_atomically(self.marker(shard), (json.dumps(said) + "\n").encode())
        except ValueError as error:
            raise OutputError(str(error)) from None

    def attempts(self, shard: Shard) -> int:
        """How many workers this run has lost over a shard: each leaves a file that it did not finish."""
        return len(list(self.directory.glob(f".{shard.name}.*{PARTIAL}")))

    @contextlib.contextmanager
    def whole_file(self, shard: Shard) -> Iterator[Path]:
        """A hidden name to write to, which becomes that of the answers if all goes well."""
        path = self.directory / answers_name(shard)
        partial = path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}{PARTIAL}")
        try:
            yield partial
            with output_errors(self.directory):
                with partial.open("rb") as file:
                    os.fsync(file.fileno())
                os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def output_errors(directory: Path) -> Iterator[None]:
    """Whatever the system says while something is written becomes one line."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OutputError(f"{directory} could not be written to: {reason}") from None


@contextlib.contextmanager
def open_output(
    directory: Path, options: dict[str, Any], shards: Sequence[Shard], paths: Sequence[Path]
) -> Iterator[Output]:
    """Begin a job in a directory, or go on with one of the same options and files. Anything else there is refused."""
    directory = directory.absolute()
    rows = Counter[Path]()
    for shard in shards:
        rows[shard.path] += shard.rows
    files = [_described(path, rows[path.absolute()]) for path in paths]
    job = json.loads(json.dumps({"options": options, "files": files}))
    fingerprint = hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()[:16]
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"`--output` must be a directory, but {directory} is a file")
    inside = directory / INSIDE
    if (inside / JOB).exists():
        _compare(load_json(inside / JOB), job, directory)
    elif directory.exists() and any(not path.name.startswith((".", "_")) for path in directory.iterdir()):
        raise ValueError(f"`--output` must be new, empty or an earlier job, but {directory} holds other things")
    make_directory(inside)
    with _locked(inside):
        if not (inside / JOB).exists():
            save_json(inside / JOB, job)
        _sweep(directory)
        try:
            yield Output(directory, fingerprint)
        finally:
            _sweep(directory)


def _sweep(directory: Path) -> None:
    """Remove what workers that were ended have left."""
    for folder in (directory, directory / INSIDE):
        for leftover in folder.glob(f".*{PARTIAL}"):
            leftover.unlink(missing_ok=True)


def _described(path: Path, rows: int) -> dict[str, Any]:
    """A file by its name, and by what changes when it is written again."""
    state = path.stat()
    return {"path": str(path), "rows": rows, "bytes": state.st_size, "modified": state.st_mtime_ns}


def _compare(old: dict[str, Any], new: dict[str, Any], directory: Path) -> None:
    """A job goes on only as it began; what differs is named as it was typed."""
    before, now = old.get("options", {}), new["options"]
    for name in dict.fromkeys((*before, *now)):
        if before.get(name) != now.get(name):
            said = f"`--{name.replace('_', '-')}` was {_shown(before.get(name))}, but is {_shown(now.get(name))}"
            raise ValueError(f"the job in {directory} cannot go on with other options: {said}; take another `--output`")
    files, given = ({each["path"]: each for each in job.get("files", [])} for job in (old, new))
    for path in dict.fromkeys((*files, *given)):
        if files.get(path) != given.get(path):
            said = "is new" if path not in files else "is not named" if path not in given else "has changed"
            raise ValueError(
                f"the job in {directory} cannot go on with other files: {path} {said}; take another `--output`"
            )


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


@contextlib.contextmanager
def _locked(inside: Path) -> Iterator[None]:
    with (inside / "lock").open("wb") as lock:
        if sys.platform != "win32":
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # let go by the system when this process ends
            except BlockingIOError:
                raise ValueError(f"another job is writing to {inside.parent}") from None
        yield
