"""Kill -9 what works on `bibs fill --input`, at random moments: after a restart every row is there once, and equal.

    python benchmarks/kill_fill.py [--kills 10] [--seed 0] [--rows 3000] [--only "pool child"]

Killed are a child of the local pool, the command itself (of either engine in turn) and a worker of Ray. Each kill has
an output of its own. A command that lost a child or a worker must end by itself with all rows; one that was killed is
started again. Then all files must be those of a run that was left alone, and no other file may be there.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CAPTIONS = "A man is riding a wave.\na man is riding a horse\nthe dog is sitting on the beach\na dog runs on a beach\n"
SHARD_ROWS = 100
TARGETS = ("pool child", "driver", "Ray worker")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--only", choices=TARGETS, default=None)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows(folder, arguments.rows, rng)
        if command(folder, folder / "whole", "local").wait():
            raise SystemExit("FAILED: the run that was left alone failed")
        whole = answers(folder / "whole")
        for target in [arguments.only] if arguments.only else TARGETS:
            for number in range(arguments.kills):
                kill_once(folder, target, number, whole, rng)
            print(f"passed: {arguments.kills} kills of a {target}, {arguments.rows:,} rows once and equal", flush=True)


def kill_once(folder: Path, target: str, number: int, whole: dict[str, bytes], rng: random.Random) -> None:
    output = folder / "killed"
    engine = "ray" if target == "Ray worker" or (target == "driver" and number % 2) else "local"
    run = command(folder, output, engine)
    # The first kill hits the start, the others come anywhere in the work.
    wanted = rng.randrange(len(whole) - 2) if number else 0
    while run.poll() is None and (len(markers(output)) < wanted or not victims(run.pid, target)):
        time.sleep(0.002)
    time.sleep(rng.random() * 0.3)
    found = victims(run.pid, target)
    if run.poll() is not None or not found:
        said = (folder / "said.txt").read_text(errors="replace")[-2000:]
        raise SystemExit(f"FAILED: the run ended before the kill, with exit code {run.returncode}: {said}")
    os.kill(rng.choice(found), signal.SIGKILL)
    kept = len(markers(output))
    code = run.wait()
    if target == "driver":
        wait_for_orphans(output)
        code = command(folder, output, engine).wait()
    if code or answers(output) != whole:
        raise SystemExit(f"FAILED: after the kill of a {target} ({engine}), exit code {code}, other answers")
    if left := [path.name for path in output.iterdir() if path.name.startswith(".")]:
        raise SystemExit(f"FAILED: the kill of a {target} left {left}")
    shutil.rmtree(output)
    print(f"{target}, {engine}: killed with {kept} of {len(whole)} shards done; all rows once and equal", flush=True)


def victims(driver: int, target: str) -> list[int]:
    if target == "driver":
        return [driver]
    wanted = "spawn_main" if target == "pool child" else "ray::MapWorker"
    parents = {int(path.name): parent(path) for path in Path("/proc").iterdir() if path.name.isdigit()}
    return [pid for pid in parents if wanted in called(pid) and descends(pid, driver, parents)]


def parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        return 0


def called(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid and pid != ancestor:
        pid = parents.get(pid, 0)
    return bool(pid)


def wait_for_orphans(output: Path) -> None:
    """Until nothing changes any more: what a killed command has started ends by itself."""
    state = None
    while state != (state := {path.name for path in output.rglob("*")}):
        time.sleep(1.0)


def markers(output: Path) -> list[Path]:
    return list((output / "_bibs").glob("part-*.json"))


def answers(output: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in output.glob("part-*")}


def command(folder: Path, output: Path, engine: str) -> subprocess.Popen[bytes]:
    program = [
        sys.executable,
        "-c",
        "from bibs.cli import main; main()",
        "fill",
        "--corpus",
        str(folder / "corpus.txt"),
    ]
    given = ["--input", str(folder / "rows.jsonl"), "--output", str(output), "--shard-rows", str(SHARD_ROWS)]
    return subprocess.Popen(
        [*program, *given, "--engine", engine, "--workers", "2"],
        stdout=subprocess.DEVNULL,
        stderr=(folder / "said.txt").open("wb"),
    )


def write_rows(folder: Path, count: int, rng: random.Random) -> None:
    (folder / "corpus.txt").write_text(CAPTIONS, encoding="utf-8")
    with (folder / "rows.jsonl").open("w", encoding="utf-8") as file:
        for number in range(count):
            template = f"a {rng.choice(['man', 'dog'])} _ _ a {rng.choice(['wave', 'horse', 'beach', '_'])}"
            file.write(json.dumps({"id": number, "template": template}) + "\n")


if __name__ == "__main__":
    main()
