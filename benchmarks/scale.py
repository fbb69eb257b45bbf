"""What filling files costs, by engine and workers: rows a second, start-up, processor time, memory, bytes.

    python benchmarks/scale.py speed [--rows 2000]       the bundled model; two workers against one
    python benchmarks/scale.py stub [--rows 10000 100000 1000000] [--engines local ray]
                                                         a stub that sleeps: the engine's own cost, and its memory

Each figure is that of a run of its own, watched from outside: processor time and memory of all its processes. What a
start costs is that of a run with a row a worker, and is taken away before rows are divided. Two workers need two idle
cores to be twice as fast; the last column says what part of the machine the run could have had. The stub sleeps far
shorter than a batch is searched (`--sleep`), so engines are asked for many times what a model asks of them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")
MIB = 1 << 20
SUBJECTS = ("man", "woman", "dog", "cat", "horse", "bird", "child", "train")
PLACES = ("field", "street", "table", "beach", "kitchen", "park")
FORMS = ("a {} _ _ _ the {}", "the {} is _ _ near a {}", "a {} on the _ _ _ _ a {}", "a {} ___ a {}")


@dataclass(frozen=True)
class Sleeper:
    """Answers every row alike, after a sleep a batch."""

    seconds: float

    def load(self) -> Any:
        return self.fill

    def fill(self, rows: Sequence[Any]) -> list[dict[str, Any]]:
        time.sleep(self.seconds)
        scores = dict.fromkeys(("score", "ranking_score", "forward_score", "backward_score"), -20.123456789)
        found = {"text": "a man is riding a wave", "tokens": [0] * 8, "spans": ["riding"], **scores, "rounds": 2}
        return [{"id": row.id, "template": row.template, "completions": [found]} for row in rows]


@dataclass
class Watched:
    """A command and all that it starts, while it runs."""

    seconds: float = 0.0
    processor: dict[int, float] = field(default_factory=dict)  # seconds by process
    memory: dict[int, int] = field(default_factory=dict)  # most bytes that are not shared, by process
    names: dict[int, str] = field(default_factory=dict)
    driver: int = 0
    most_memory: int = 0  # bytes of all at one moment
    machine: float = 0.0  # what part of the cores others left to it

    @property
    def processor_seconds(self) -> float:
        return sum(self.processor.values())

    @property
    def worker_seconds(self) -> float:
        return sum(self.processor[pid] for pid, name in self.names.items() if is_worker(name))

    @property
    def other_share(self) -> float:
        """What all but the workers took, in cores."""
        return (self.processor_seconds - self.worker_seconds) / self.seconds

    @property
    def driver_mib(self) -> float:
        return self.memory[self.driver] / MIB

    @property
    def worker_mib(self) -> float:
        return max((self.memory[pid] for pid, name in self.names.items() if is_worker(name)), default=0) / MIB

    @property
    def total_mib(self) -> float:
        return self.most_memory / MIB


def is_worker(name: str) -> bool:
    return "spawn_main" in name or "ray::MapWorker" in name


def watch(command: Sequence[str]) -> Watched:
    found, began, idle = Watched(), time.monotonic(), machine_ticks()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    found.driver = process.pid
    while process.poll() is None:
        note_family(found)
        time.sleep(0.25)
    found.seconds = time.monotonic() - began
    if process.returncode:
        raise SystemExit((process.stderr.read() if process.stderr else b"").decode() + f"FAILED: {' '.join(command)}")
    all_ticks, idle_ticks = (after - before for after, before in zip(machine_ticks(), idle, strict=True))
    own = found.processor_seconds * TICKS
    found.machine = min(1.0, (own + idle_ticks) / max(1, all_ticks))
    return found


def note_family(found: Watched) -> None:
    """Processor time and memory of the driver and its descendants, also of those that it lost."""
    stats = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                stats[int(path.name)] = (path / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
    family = {found.driver, *found.names}
    for _ in range(5):
        family |= {pid for pid, values in stats.items() if int(values[1]) in family}
    held = 0
    for pid in family & set(stats):
        try:
            name = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            resident, shared = (int(pages) for pages in Path(f"/proc/{pid}/statm").read_text().split()[1:3])
        except OSError:
            continue
        found.names[pid] = name or found.names.get(pid, "")
        found.processor[pid] = (int(stats[pid][11]) + int(stats[pid][12])) / TICKS
        own = (resident - shared) * os.sysconf("SC_PAGE_SIZE")
        found.memory[pid] = max(found.memory.get(pid, 0), own)
        held += own
    found.most_memory = max(found.most_memory, held)


def machine_ticks() -> tuple[int, int]:
    """All ticks of all cores, and the idle ones."""
    values = [int(value) for value in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(values), values[3] + values[4]


def write_rows(path: Path, count: int) -> Path:
    draw = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            template = draw.choice(FORMS).format(draw.choice(SUBJECTS), draw.choice(PLACES))
            file.write(json.dumps({"id": number, "template": template}) + "\n")
    return path


def fill_command(rows: Path, output: Path, engine: str, workers: int, shard_rows: int) -> list[str]:
    files = ["--input", str(rows), "--output", str(output), "--shard-rows", str(shard_rows)]
    return [sys.executable, "-m", "bibs", "fill", *files, "--engine", engine, "--workers", str(workers)]


def speed(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = write_rows(folder / "rows.jsonl", options.rows)
        print(
            "engine workers  rows/s  start s  worker ms/row  others cores  worker MiB  driver MiB  all MiB  bytes/row"
        )
        for engine in options.engines:
            alone = 0.0
            for workers in options.workers:
                few = write_rows(folder / "few.jsonl", workers)
                start = watch(fill_command(few, folder / f"few-{engine}-{workers}", engine, workers, 1))
                output = folder / f"out-{engine}-{workers}"
                whole = watch(fill_command(rows, output, engine, workers, options.shard_rows))
                rate = (options.rows - workers) / (whole.seconds - start.seconds)
                cost = (whole.worker_seconds - start.worker_seconds) / (options.rows - workers)
                size = sum(path.stat().st_size for path in output.glob("part-*")) / options.rows
                print(
                    f"{engine:6} {workers:7} {rate:7.1f} {start.seconds:8.1f} {1000 * cost:14.2f} "
                    f"{whole.other_share:13.3f} {whole.worker_mib:11.0f} {whole.driver_mib:11.0f} "
                    f"{whole.total_mib:8.0f} {size:10.0f}   had {whole.machine:.0%} of the machine"
                    + (f", {rate / alone:.2f} times one worker" if alone else ""),
                    flush=True,
                )
                alone = alone or rate


def stub(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few = write_rows(folder / "few.jsonl", 2)
        print("engine      rows  seconds  processor us/row  driver MiB  worker MiB  all MiB")
        for engine in options.engines:
            start = watch(stub_command(few, folder / f"few-{engine}", engine, options))
            for count in options.rows:
                rows = write_rows(folder / "rows.jsonl", count)
                whole = watch(stub_command(rows, folder / f"out-{engine}-{count}", engine, options))
                cost = (whole.processor_seconds - start.processor_seconds) / count
                print(
                    f"{engine:6} {count:9,} {whole.seconds:8.1f} {1e6 * cost:17.1f} {whole.driver_mib:11.0f} "
                    f"{whole.worker_mib:11.0f} {whole.total_mib:8.0f}",
                    flush=True,
                )


def stub_command(rows: Path, output: Path, engine: str, options: argparse.Namespace) -> list[str]:
    told = [str(rows), str(output), engine, str(options.sleep), str(options.shard_rows)]
    return [sys.executable, __file__, "run-stub", *told]


def run_stub(rows: str, output: str, engine: str, sleep: str, shard_rows: str) -> None:
    from bibs.scale.job import Engine, fill_files

    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    sys.path.insert(0, str(Path(__file__).parent))
    from scale import Sleeper as Importable  # by a name that other processes know, too

    chosen = Engine(engine, 2)
    fill_files(
        Importable(float(sleep)), [Path(rows)], Path(output), options={}, engine=chosen, shard_rows=int(shard_rows)
    )


def main() -> None:
    if sys.argv[1:2] == ["run-stub"]:
        run_stub(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parts = parser.add_subparsers(required=True)
    real = parts.add_parser("speed")
    real.add_argument("--rows", type=int, default=2000)
    real.add_argument("--shard-rows", type=int, default=125)
    real.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    real.add_argument("--engines", nargs="+", default=["local", "ray"])
    real.set_defaults(do=speed)
    sleeping = parts.add_parser("stub")
    sleeping.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    sleeping.add_argument("--shard-rows", type=int, default=4096)
    sleeping.add_argument("--sleep", type=float, default=0.01)
    sleeping.add_argument("--engines", nargs="+", default=["local", "ray"])
    sleeping.set_defaults(do=stub)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()
