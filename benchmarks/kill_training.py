"""Kill -9 `bibs train` at random moments, resume it each time, and compare with a run that was left alone.

    python benchmarks/kill_training.py --kills 10 --seed 0 [--processes 2]

Captions and image vectors are made up. Every kill falls at a random time after the first checkpoint of the attempt,
which is written every few steps; the last attempt runs to the end. Exit code 1 if a single weight differs. With several
processes, `torchrun` starts them, and all are killed at once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

SUBJECTS = ["man", "woman", "dog", "cat", "horse", "bird", "child", "train", "bus", "kite"]
VERBS = ["sits", "stands", "runs", "waits", "sleeps", "plays"]
PLACES = ["field", "street", "table", "beach", "kitchen", "roof", "park", "hill"]
EPOCHS = 60


def write_data(folder: Path, draw: random.Random) -> list[str]:
    """Made-up captions with splits and vectors; returns the arguments that train on them."""
    images = []
    for image_id in range(200):
        captions = [
            f"a {draw.choice(SUBJECTS)} {draw.choice(VERBS)} near the {draw.choice(PLACES)}"[: draw.randint(20, 60)]
            for _ in range(3)
        ]
        split = "val" if image_id % 10 == 0 else "train"
        sentences = [{"raw": caption, "tokens": caption.split()} for caption in captions]
        images.append({"cocoid": image_id, "filename": f"{image_id}.jpg", "split": split, "sentences": sentences})
    (folder / "captions.json").write_text(json.dumps({"images": images}))
    (folder / "ids.json").write_text(json.dumps(list(range(200))))
    np.save(folder / "vectors.npy", np.random.default_rng(0).normal(size=(200, 32)).astype(np.float16))
    arguments = f"--data {folder / 'captions.json'} --features {folder / 'vectors.npy'} "
    arguments += f"--feature-ids {folder / 'ids.json'} --min-count 2 --hidden 32 --embedding 16 --cutoffs 8,16 "
    return f"{arguments} --batch-size 16 --patience 0 --checkpoint-every 0 --no-calibrate".split()


def start(arguments: list[str], output: Path, *, resume: bool, processes: int) -> subprocess.Popen[bytes]:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, *(torchrun if processes > 1 else []), "-m", "bibs", "train", *arguments]
    return subprocess.Popen(
        [*command, "--output", str(output), *["--resume"] * resume],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def newest(folder: Path) -> float:
    return max((file.stat().st_mtime_ns for file in folder.glob("checkpoint-*")), default=0)


def kill_at_random(process: subprocess.Popen[bytes], folder: Path, draw: random.Random) -> str:
    """Wait for a sign of life, then a little, then kill; says what happened."""
    before = newest(folder)
    while process.poll() is None and newest(folder) == before:
        time.sleep(0.005)
    time.sleep(draw.uniform(0, 0.6))
    if process.poll() is not None:
        return "ended by itself"
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return "killed"


def differences(left: Path, right: Path) -> list[str]:
    names = ("forward.safetensors", "backward.safetensors", "vocabulary.txt", "training/best-forward.safetensors")
    return [name for name in names if (left / name).read_bytes() != (right / name).read_bytes()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arguments = [*write_data(folder, draw), "--epochs", str(options.epochs)]
        whole = start(arguments, folder / "whole", resume=False, processes=options.processes)
        _, errors = whole.communicate()
        if whole.returncode:
            raise SystemExit(errors.decode())
        checkpoints = folder / "killed" / "training"
        kills = 0
        for _ in range(options.kills):
            process = start(arguments, folder / "killed", resume=checkpoints.exists(), processes=options.processes)
            outcome = kill_at_random(process, checkpoints, draw)
            kills += outcome == "killed"
            left = sorted(file.name for file in checkpoints.iterdir())
            print(f"{outcome}; left behind: {', '.join(left)}", flush=True)
        last = start(arguments, folder / "killed", resume=True, processes=options.processes)
        _, errors = last.communicate()
        if last.returncode:
            raise SystemExit(errors.decode())
        different = differences(folder / "whole", folder / "killed")
        partial = [file.name for file in checkpoints.glob(".*")]
    print(f"{kills} kills; files that differ: {different or 'none'}; partial files left: {partial or 'none'}")
    return 1 if different or partial or not kills else 0


if __name__ == "__main__":
    raise SystemExit(main())
