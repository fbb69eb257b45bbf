"""Bytes that reach new lines of code, found by atheris: whatever they are, they are read, or refused in one line.

    pip install ".[fuzz]"
    python fuzz/fuzz.py template --seconds 60    # or another of TARGETS, or `any`: the first byte chooses

A failure prints its traceback, leaves its input in `.fuzz`, and the exit code is not 0. What was found goes into
`tests/test_strangers_files.py` as a test.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["bibs"]):
    from bibs import Infiller, Template
    from bibs.data import read_captions, read_fasta, read_madlibs, read_rows
    from bibs.models.directory import load_length_prior, load_models
    from bibs.models.storage import load_metadata, load_tensors

PLACE = Path(".fuzz")
"""Made anew by each run; an input that failed stays there until the next."""

MODEL = PLACE / "model"
CORPUS = ["a cat on a mat", "a dog", "the cat sat on the dog"]


def only_one_line(action: Callable[[], object]) -> None:
    try:
        action()
    except ValueError as error:
        if not str(error) or "\n" in str(error):
            raise AssertionError("a refusal must be one line") from error


def template(data: bytes) -> None:
    def parse() -> None:
        parsed = Template.parse(data.decode(errors="surrogateescape"))
        assert Template.parse(str(parsed)) == parsed

    only_one_line(parse)


def rows(data: bytes) -> None:
    for as_json in (False, True):
        for found in read_rows(io.BytesIO(data), "rows", as_json=as_json):  # type: ignore[arg-type]
            assert all("\n" not in row.error for row in found if row.error)


def reader(name: str, read: Callable[[Path], object]) -> Callable[[bytes], None]:
    def check(data: bytes) -> None:
        (PLACE / name).write_bytes(data)
        only_one_line(lambda: list(read(PLACE / name)))  # type: ignore[call-overload]

    return check


def part_of_model(name: str) -> Callable[[bytes], None]:
    """A directory whose other files are in order."""

    def check(data: bytes) -> None:
        whole = (MODEL / name).read_bytes()
        (MODEL / name).write_bytes(data)
        only_one_line(lambda: load_models(MODEL))
        only_one_line(lambda: load_length_prior(MODEL))
        (MODEL / name).write_bytes(whole)  # the next input may be for another file

    return check


def header(data: bytes) -> None:
    path = PLACE / "header.safetensors"
    path.write_bytes(len(data).to_bytes(8, "little") + data + bytes(16))
    only_one_line(lambda: load_metadata(path))
    only_one_line(lambda: load_tensors(path))


TENSOR = b'{"__metadata__":{"run":"a"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}'
TARGETS: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "template": (template, [b"a _ on ___ mat_", rb"___{2,6} _'s \_ \\ _, two"]),
    "rows": (rows, [b'{"template": "a _", "id": 7, "image": "a.jpg", "must_include": ["b"], "features": [1.0]}\n']),
    "captions.txt": (reader("notes.txt", read_captions), [b"a cat\na dog\n"]),
    "captions.jsonl": (reader("captions.jsonl", read_captions), [b'{"caption": "a", "image_id": 3, "split": "val"}\n']),
    "captions.json": (
        reader("captions.json", read_captions),
        [
            b'{"images": [{"filename": "1.jpg", "split": "train", "sentences": [{"raw": "a", "tokens": ["a"]}]}]}',
            b'{"images": [{"id": 1, "file_name": "1.jpg"}], "annotations": [{"image_id": 1, "caption": "a"}]}',
        ],
    ),
    "madlibs.jsonl": (reader("madlibs.jsonl", lambda path: read_madlibs(path, type=12)), [b'{"type": 12}\n']),
    "genome.fa": (reader("genome.fa", read_fasta), [b">one\nACGTN\n"]),
    "header": (header, [TENSOR, b'{"__metadata__":3}', b"[" * 2000]),
    "config.json": (part_of_model("config.json"), []),
    "lengths.json": (part_of_model("lengths.json"), []),
    "vocabulary.txt": (part_of_model("vocabulary.txt"), []),
    "forward.safetensors": (part_of_model("forward.safetensors"), []),
}


def chosen(data: bytes) -> None:
    if data:
        check, _ = list(TARGETS.values())[data[0] % len(TARGETS)]
        check(data[1:])


def seeds_of(target: str) -> list[bytes]:
    if target == "any":
        return [bytes([number]) + seed for number, name in enumerate(TARGETS) for seed in seeds_of(name)]
    _, seeds = TARGETS[target]
    return seeds or [(MODEL / target).read_bytes()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("target", choices=[*TARGETS, "any"])
    parser.add_argument("--seconds", type=int, default=60)
    options = parser.parse_args()
    shutil.rmtree(PLACE, ignore_errors=True)
    Infiller.from_corpus(CORPUS).save(MODEL)
    check = chosen if options.target == "any" else TARGETS[options.target][0]
    begin = PLACE / "seeds"
    begin.mkdir()
    for number, seed in enumerate(seeds_of(options.target)):
        (begin / str(number)).write_bytes(seed)
    limits = [f"-max_total_time={options.seconds}", "-timeout=10", "-rss_limit_mb=4096", "-verbosity=0", "-seed=1"]
    atheris.Setup([sys.argv[0], str(begin), *limits, f"-artifact_prefix={PLACE}/"], check)
    atheris.Fuzz()  # ends the process


if __name__ == "__main__":
    main()
