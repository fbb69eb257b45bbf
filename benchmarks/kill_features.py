"""Kill `bibs features` with signal 9 at ten random moments: nothing that was kept is lost, nothing is corrupt.

python benchmarks/kill_features.py [--pictures FOLDER] [--kills 10] [--seed 0]

Without a folder, the test pictures in BIBS_DATA are taken, or small random pictures are made.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bibs.data import Features, find_pictures

NUM_PICTURES = 400
BATCH_SIZE = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pictures", type=Path, default=None)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        names = list_pictures(arguments.pictures, Path(folder))
        began = time.monotonic()
        command(names, Path(folder) / "whole").wait()
        print(f"uninterrupted: {NUM_PICTURES} pictures in {time.monotonic() - began:.1f} s", flush=True)
        whole = Features.load(Path(folder) / "whole")
        kept = 0
        for number in range(arguments.kills):
            kept = kill_once(names, Path(folder) / "killed", whole, kept, number, rng)
        command(names, Path(folder) / "killed").wait()
        killed = Features.load(Path(folder) / "killed")
        if list(killed) != list(whole) or not np.allclose(killed.rows(list(whole)), whole.rows(list(whole)), atol=1e-2):
            raise SystemExit("FAILED: the store of the killed runs is not that of the uninterrupted run")
    print(f"passed: {arguments.kills} kills, and the store is that of the uninterrupted run ({len(killed)} pictures)")


def kill_once(names: Path, store: Path, whole: Features, kept: int, number: int, rng: random.Random) -> int:
    """Kill one run at a random moment and check what it leaves; returns how many vectors are kept."""
    run = command(names, store)
    # The first kill hits the start; the others come amid the work, after a few batches and a part of the next.
    wanted = kept + BATCH_SIZE * rng.randrange(8) if number else -1
    while run.poll() is None and rows(store) <= wanted:
        time.sleep(0.002)
    time.sleep(rng.random() * (0.1 if number else 2.0))
    if run.poll() is not None:
        raise SystemExit(f"FAILED: the run ended before the kill, with exit code {run.returncode}")
    run.send_signal(signal.SIGKILL)
    run.wait()
    if not (store / "store.json").exists():
        print(f"kill {number + 1}: before the store was made", flush=True)
        return 0
    features = Features.load(store)
    ids = list(features)
    if len(ids) < kept or ids != list(whole)[: len(ids)]:
        raise SystemExit(f"FAILED: {kept} vectors were kept before, now {len(ids)}")
    if not np.allclose(features.rows(ids), whole.rows(ids), atol=1e-2):
        raise SystemExit("FAILED: a vector is corrupt")
    print(f"kill {number + 1}: {len(ids)} vectors kept, all as they should be", flush=True)
    return len(ids)


def rows(store: Path) -> int:
    ids = store / "ids.jsonl"
    return ids.read_bytes().count(b"\n") if ids.exists() else 0


def command(names: Path, store: Path) -> subprocess.Popen[bytes]:
    program = [sys.executable, "-c", "from bibs.cli import main; main()", "features"]
    options = ["--list", str(names), "--output", str(store), "--batch-size", str(BATCH_SIZE)]
    return subprocess.Popen([*program, *options], stdout=subprocess.DEVNULL)


def list_pictures(source: Path | None, folder: Path) -> Path:
    if source is None and os.environ.get("BIBS_DATA"):
        source = Path(os.environ["BIBS_DATA"]) / "coco/images"
    if source is None or not source.is_dir():
        source = folder / "pictures"
        make_pictures(source)
    paths = list(find_pictures([source]).paths.values())[:NUM_PICTURES]
    names = folder / "names.txt"
    names.write_text("".join(f"{path.resolve()}\n" for path in paths), encoding="utf-8")
    return names


def make_pictures(folder: Path) -> None:
    from PIL import Image

    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(NUM_PICTURES):
        pixels = rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")


if __name__ == "__main__":
    main()
