"""Files of rows to fill, an engine without processes, and stand-ins for a model that can be sent to other processes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bibs.data import Row
from bibs.scale.job import Engine
from bibs.scale.local import Event
from bibs.scale.output import Output
from bibs.scale.tables import Shard
from bibs.scale.work import FillRows, Loader, do_shard

ROWS: list[dict[str, Any]] = [
    {"id": number, "template": f"a man is _ a {('wave', 'horse', 'dog')[number % 3]}"} for number in range(50)
]


@dataclass(frozen=True)
class Here(Engine):
    """In this process: what an engine does without its processes."""

    def run(self, loader: Loader, output: Output, shards: Sequence[Shard]) -> Iterator[Event]:
        fill = loader.load()
        for shard in shards:
            yield shard, do_shard(shard, output, fill)


@dataclass(frozen=True)
class Echo:
    """Answers with the template itself. At the row `deadly` it ends its process, `deaths` times in all."""

    folder: Path
    deadly: int = -1
    deaths: int = 0

    def load(self) -> FillRows:
        return self.fill

    def fill(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        for row in rows:
            if row.id == self.deadly and len(list(self.folder.glob("death-*"))) < self.deaths:
                (self.folder / f"death-{os.getpid()}").touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return [{"id": row.id, "template": row.template, "completions": []} for row in rows]


def write_lines(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read_lines(folder: Path) -> list[dict[str, Any]]:
    """All answers, in the order of the names of their files."""
    files = sorted(folder.glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
