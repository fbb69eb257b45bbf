"""The working tree against another revision, in one run: the same answers? processor time? peak memory?

python benchmarks/against.py REV [--rows bibs-50,forward] [--captions 256] [--repeats 3] [--data DIR] [--json FILE]

"Ours" is the working tree, "theirs" is REV in a temporary worktree. Each searches with its bundled pair, from the same
side, and both get the same templates: captions of COCO's val split with their pictures. A repeat starts a fresh process
of each, since a process may be 10 % faster than its twin for as long as it lives. After a warm-up they take turns, ours
theirs theirs ours, and the other way round in the next repeat. One thread, processor seconds, the least of all calls.

Answers of a caption that both give are the same; the others are paired, best first. A pair is a near-tie if what the
method ranks by differs by at most 1e-3. dS is S of ours minus S of theirs, of the pairs that are not the same. Memory
is what a process grows in its first call: VmHWM, reset by /proc/self/clear_refs, less VmRSS at the beginning. (Linux)
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "src" / "bibs" / "pretrained" / "coco"
WEIGHTS = "bibs/pretrained/coco/forward.safetensors"
SIDES = ("ours", "theirs")
NEAR_TIE = 1e-3
LEAST_WORDS = 8  # so that 75 %, or two runs of words, can go and a word stays on every side
TIMEOUT = 1800  # seconds for one call

Record = dict[str, Any]  # what goes through JSON


def one_blank(ids: list[int], removed: int = 50) -> list[Any]:
    """The middle of a caption removed, as in the paper."""
    width = (removed * len(ids) + 50) // 100
    before = (len(ids) - width) // 2
    return [*ids[:before], *[None] * width, *ids[before + width :]]


def one_gap(ids: list[int]) -> list[Any]:
    slots = one_blank(ids)
    first, width = slots.index(None), slots.count(None)
    return [*slots[:first], {"gap": [1, None]}, *slots[first + width :]]


def two_gaps(ids: list[int]) -> list[Any]:
    """Two runs of a quarter of the words removed."""
    width = min(5, len(ids) // 4)
    outer = (len(ids) - 2 * width) // 3
    gap = {"gap": [1, 5]}
    return [*ids[:outer], gap, *ids[outer + width : len(ids) - outer - width], gap, *ids[len(ids) - outer :]]


@dataclass(frozen=True)
class Row:
    cut: Callable[[list[int]], list[Any]] = one_blank
    share: float = 1.0  # of --captions
    required: bool = False  # one or two true words of the blank must appear
    drawn: bool = False  # answers are drawn at random: only means can be compared
    options: Record = field(default_factory=dict)


ROWS = {
    "bibs-25": Row(lambda ids: one_blank(ids, 25)),
    "bibs-50": Row(),
    "bibs-75": Row(lambda ids: one_blank(ids, 75)),
    "forward": Row(options={"method": "forward"}),
    "rerank-sum": Row(options={"method": "rerank-sum"}),
    "gsn": Row(options={"method": "gsn", "seed": 0}, drawn=True),
    "unknown-length": Row(one_gap, share=1 / 4),
    "two-gaps": Row(two_gaps, share=3 / 16),
    "must-include": Row(share=3 / 8, required=True),
    "diverse": Row(share=3 / 16, options={"diversity_penalty": 2.0, "num_return_sequences": 5}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("revision", metavar="REV")
    parser.add_argument("--rows", default=",".join(ROWS), help="default: %(default)s")
    parser.add_argument("--captions", type=int, default=256, help="some rows take a fixed share of them")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data", type=Path, default=os.environ.get("BIBS_DATA", ROOT.parent / "shared" / "data"))
    parser.add_argument("--json", type=Path, default=None, help="write the same numbers to this file")
    arguments = parser.parse_args()
    names = arguments.rows.split(",")
    if unknown := [name for name in names if name not in ROWS]:
        raise SystemExit(f"`--rows` must be among {', '.join(ROWS)}, but hold {unknown[0]!r}")
    if min(arguments.captions, arguments.repeats) < 1:
        raise SystemExit("`--captions` and `--repeats` must be at least 1")
    found = git("rev-parse", "--verify", "--quiet", "--short", "--end-of-options", f"{arguments.revision}^{{commit}}")
    if found.returncode:
        raise SystemExit(f"`REV` must be a commit of this repository, but is {arguments.revision!r}")
    commits = {"ours": git("describe", "--always", "--dirty").stdout.strip(), "theirs": found.stdout.strip()}
    rows: dict[str, Record] = {}
    with tempfile.TemporaryDirectory(prefix="bibs-against-") as folder:
        vectors = Path(folder) / "pictures.npy"
        captions, special = read_problems(arguments.data, arguments.captions, vectors)
        with checked_out(commits["theirs"], Path(folder) / "theirs") as theirs:
            sources = {"ours": ROOT / "src", "theirs": theirs / "src"}
            weights = [source / WEIGHTS for source in sources.values()]
            if weights[0].read_bytes() != weights[1].read_bytes():
                raise SystemExit(f"{WEIGHTS} must be the same on both sides, but is not: answers cannot be compared")
            print(f"ours: {commits['ours']}, theirs: {commits['theirs']}\n{HEADER}", flush=True)
            for name in names:
                small, problem = (make_problem(ROWS[name], several, special) for several in (captions[:6], captions))
                try:
                    runs = [take_turns(sources, vectors, small, problem, turn) for turn in range(arguments.repeats)]
                    rows[name] = compare(ROWS[name], runs)
                    print(format_row(name, rows[name]), flush=True)
                except RuntimeError as error:
                    rows[name] = {"failed": str(error)}
                    print(f"{name:<15}failed: {error}", flush=True)
    total = summarise([row for row in rows.values() if "failed" not in row])
    print("total:", ", ".join(f"{name} {value:.4g}" for name, value in total.items()))
    if arguments.json:
        result = {"commits": commits, "rows": rows, "total": total}
        arguments.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)


@contextmanager
def checked_out(commit: str, folder: Path) -> Iterator[Path]:
    try:
        added = git("worktree", "add", "--quiet", "--detach", str(folder), commit)
        if added.returncode:
            raise SystemExit(f"git cannot check out {commit}: {added.stderr.strip()}")
        yield folder
    finally:
        git("worktree", "remove", "--force", "--force", str(folder))


def read_problems(data: Path, count: int, vectors: Path) -> tuple[list[list[int]], list[int]]:
    """The ids of `count` captions, whose pictures are written to `vectors`; and START, END and UNK."""
    sys.path.insert(0, str(ROOT / "src"))
    import numpy as np
    from problems import feature_files

    from bibs.data import Features, read_captions
    from bibs.text import Vocabulary

    os.environ["BIBS_DATA"] = str(data)
    encoder = json.loads((MODEL / "config.json").read_text(encoding="utf-8"))["forward"].get("encoder", "")
    dataset, matrix, ids = paths = [data / "coco" / "dataset_coco.json", *feature_files(encoder)]
    if missing := [path for path in paths if not path.is_file()]:
        raise SystemExit(f"`--data` (or BIBS_DATA) must be a folder that holds COCO, but there is no {missing[0]}")
    features = Features.load(matrix, ids)
    with_vectors = set(features)
    long = {
        image.image_id: [words for words in image.captions if len(words) >= LEAST_WORDS]
        for image in read_captions(dataset, split="val")
        if image.image_id in with_vectors
    }
    pool = [image_id for image_id, captions in long.items() if captions]
    if count > len(pool):
        raise SystemExit(f"`--captions` must be at most the {len(pool)} pictures that there are, but is {count}")
    rng = random.Random(0)
    rng.shuffle(pool)  # so that fewer captions are a part of more
    np.save(vectors, features.rows(pool[:count]))
    vocabulary = Vocabulary.load(MODEL / "vocabulary.txt")
    captions = [vocabulary.encode(rng.choice(long[image_id])) for image_id in pool[:count]]
    return captions, [vocabulary.start, vocabulary.end, vocabulary.unk]


def make_problem(row: Row, captions: Sequence[list[int]], special: list[int]) -> Record:
    """What a worker is asked: the arguments of `fill_templates`, a gap as {"gap": [minimum, maximum]}."""
    start, end, unk = special
    captions = captions[: max(1, round(row.share * len(captions)))]
    problem = {"templates": [[start, *row.cut(ids), end] for ids in captions], "start": "backward", "banned": special}
    if row.required:
        rng = random.Random(0)
        blanks = [[word for word, slot in zip(ids, row.cut(ids), strict=True) if slot is None] for ids in captions]
        known = [sorted(set(words) - {unk}) for words in blanks]
        problem["must_include"] = [rng.sample(words, min(rng.choice((1, 2)), len(words))) for words in known]
    return problem | row.options


def take_turns(sources: Mapping[str, Path], vectors: Path, small: Record, problem: Record, turn: int) -> Record:
    """What each side of a fresh pair of processes answers to its calls."""
    with worker(sources["ours"], vectors) as ours, worker(sources["theirs"], vectors) as theirs:
        processes = {"ours": ours, "theirs": theirs}
        calls: dict[str, list[Record]] = {side: [] for side in SIDES}
        for side in SIDES:
            ask(side, processes[side], small)
        one, other = SIDES[:: -1 if turn % 2 else 1]
        for side in (one, other, other, one):
            calls[side].append(ask(side, processes[side], problem))
    return calls


@contextmanager
def worker(source: Path, vectors: Path) -> Iterator[subprocess.Popen[str]]:
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    process = subprocess.Popen(
        [sys.executable, __file__, "--worker", str(vectors)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **threads, "PYTHONPATH": str(source)},
        start_new_session=True,  # Ctrl-C is for the parent, which ends its workers
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ask(side: str, process: subprocess.Popen[str], command: Record) -> Record:
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError):  # its last answer says why it ended
        process.stdin.write(json.dumps(command) + "\n")
        process.stdin.flush()
    if not select.select([process.stdout], [], [], TIMEOUT)[0]:
        raise RuntimeError(f"{side}: no answer in {TIMEOUT} seconds")
    line = process.stdout.readline()
    answer: Record = json.loads(line) if line else {"error": f"the process ended with code {process.wait()}"}
    if "error" in answer:
        raise RuntimeError(f"{side}: {answer['error']}")
    return answer


def compare(row: Row, runs: Sequence[Record]) -> Record:
    first = [runs[0][side][0]["answers"] for side in SIDES]
    seconds = [[min(call["seconds"] for call in run[side]) for run in runs] for side in SIDES]
    ratios = [ours / theirs for ours, theirs in zip(*seconds, strict=True)]
    mebibytes, whole = ({side: min(run[side][0][key] for run in runs) for side in SIDES} for key in ("grown", "peak"))
    return {
        "captions": len(first[0]),
        **(compare_means(*first) if row.drawn else compare_answers(*first)),
        "time": min(seconds[0]) / min(seconds[1]),
        "time of each repeat": ratios,
        "seconds": dict(zip(SIDES, map(min, seconds), strict=True)),
        "memory": mebibytes["ours"] / mebibytes["theirs"],
        "MiB": mebibytes,
        "MiB of the whole process": whole,
    }


def compare_answers(ours: list[list[Record]], theirs: list[list[Record]]) -> Record:
    same: list[float] = []
    others: list[tuple[Record | None, Record | None]] = []
    for fills in zip(ours, theirs, strict=True):
        mine, yours = ({tuple(fill["tokens"]): fill for fill in several} for several in fills)
        same += [mine[tokens]["score"] - yours[tokens]["score"] for tokens in mine if tokens in yours]
        left = [fill for tokens, fill in mine.items() if tokens not in yours]
        others += zip_longest(left, (fill for tokens, fill in yours.items() if tokens not in mine))
    pairs = [(a, b) for a, b in others if a and b]  # one side may have fewer answers
    ties = sum(abs(a["ranking_score"] - b["ranking_score"]) <= NEAR_TIE for a, b in pairs)
    differences = [a["score"] - b["score"] for a, b in pairs]
    return {
        "answers": len(same) + len(others),
        "same": len(same),
        "near-ties": ties,
        "differ": len(others) - ties,
        "mean dS": statistics.fmean(differences) if differences else 0.0,
        "largest dS": max(differences, key=abs, default=0.0),
        "largest dS of the same": max(same, key=abs, default=0.0),
    }


def compare_means(ours: list[list[Record]], theirs: list[list[Record]]) -> Record:
    scores = [[fills[0]["score"] if fills else float("nan") for fills in several] for several in (ours, theirs)]
    differences = [a - b for a, b in zip(*scores, strict=True)]
    deviation = statistics.stdev(differences) if len(differences) > 1 else float("nan")
    return {
        "mean S": dict(zip(SIDES, map(statistics.fmean, scores), strict=True)),
        "mean dS": statistics.fmean(differences),
        "half of its 95 % interval": 1.96 * deviation / len(differences) ** 0.5,
    }


HEADER = (
    f"{'row':<15}{'same':>8} of {'ties':>7}{'differ':>8}{'mean dS':>9}{'largest':>9}"
    f"{'time (of each repeat)':>25}{'seconds':>15}{'memory':>8}{'MiB':>13}"
)


def format_row(name: str, row: Record) -> str:
    if "mean S" in row:
        means = "mean S {ours:.2f} / {theirs:.2f}".format(**row["mean S"])
        answers = f"{means}, {row['mean dS']:+.3f} +- {row['half of its 95 % interval']:.3f}".rjust(45)
    else:
        answers = "{same:>8} of {answers:<3}{near-ties:>4}{differ:>8}{mean dS:>+9.3f}{largest dS:>+9.3f}".format(**row)
    ratios = row["time of each repeat"]
    time_ratio = f"{row['time']:.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
    seconds = "{ours:.2f} / {theirs:.2f}".format(**row["seconds"])
    mebibytes = "{ours:.0f} / {theirs:.0f}".format(**row["MiB"])
    return f"{name:<15}{answers}{time_ratio:>25}{seconds:>15}{row['memory']:>8.2f}{mebibytes:>13}"


def summarise(rows: Sequence[Record]) -> dict[str, float]:
    counted = [row for row in rows if "same" in row]
    counts = {key: sum(row[key] for row in counted) for key in ("answers", "same", "near-ties", "differ")}
    seconds = [sum(row["seconds"][side] for row in rows) for side in SIDES]
    return {
        "rows": len(rows),
        **counts,
        "largest dS of the same": max((abs(row["largest dS of the same"]) for row in counted), default=0.0),
        "time": seconds[0] / seconds[1] if rows else float("nan"),
        "largest time": max((row["time"] for row in rows), default=float("nan")),
        "largest memory": max((row["memory"] for row in rows), default=float("nan")),
    }


def work(vectors: str) -> None:
    """A worker: one JSON command a line on stdin, one JSON answer a line on stdout, until one fails."""
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever else is printed is no answer
    try:
        fill = load(vectors)
        for line in sys.stdin:
            print(json.dumps(fill(json.loads(line))), file=answers, flush=True)
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=answers, flush=True)


def load(vectors: str) -> Callable[[Record], Record]:
    import numpy as np
    import torch

    import bibs
    from bibs import Infiller, fill_templates

    try:
        from bibs import Gap
    except ImportError:  # before it was public
        from bibs.search.template import Gap
    source = os.environ["PYTHONPATH"]
    if not bibs.__file__.startswith(source):
        raise ImportError(f"bibs must come from {source}, but is {bibs.__file__}")
    torch.set_num_threads(1)
    infiller = Infiller.from_pretrained()
    pictures = torch.from_numpy(np.load(vectors))  # (captions, size)

    def fill(command: Record) -> Record:
        templates = [
            [Gap(*slot["gap"]) if isinstance(slot, dict) else slot for slot in template]
            for template in command.pop("templates")
        ]
        command |= {"conditions": pictures[: len(templates)], "length_prior": infiller.length_prior}
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # VmHWM is the most from now on
        before, began = kibibytes("VmRSS"), time.process_time()
        found = fill_templates(infiller.forward, infiller.backward, templates, **command)
        seconds, peak = time.process_time() - began, kibibytes("VmHWM")
        keys = ("tokens", "score", "ranking_score")
        return {
            "answers": [[{key: getattr(each, key) for key in keys} for each in fills] for fills in found],
            "seconds": seconds,
            "grown": (peak - before) / 1024,
            "peak": peak / 1024,
        }

    return fill


def kibibytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        work(sys.argv[2])
    else:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the worktree is removed then, too
        try:
            main()
        except KeyboardInterrupt:
            raise SystemExit(130) from None
