"""Files of rows to files of answers: every row once, whatever is killed, full, missing or malformed."""

from __future__ import annotations

import gzip
import json
import resource
from pathlib import Path
from typing import Any

import pytest

from bibs import Infiller
from bibs.cli import main
from bibs.scale.answers import Filling, ModelChoice
from bibs.scale.job import Engine, Summary, fill_files
from bibs.scale.output import INSIDE
from bibs.scale.tables import cut, read_shard
from bibs.scale.work import TRIES
from row_files import ROWS, Echo, Here, read_lines, write_lines

CAPTIONS = ["A man is riding a wave.", "a man is riding a horse", "the dog is sitting on the beach"]
pa = pytest.importorskip("pyarrow", reason="needs the extra: pip install '.[parquet]'")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "captions.txt"
    path.write_text("\n".join(CAPTIONS), encoding="utf-8")
    return path


def filling(corpus: Path, **options: Any) -> Filling:
    given = {"must_include": [], "bad_words": [], **options}
    return Filling(ModelChoice(corpus=corpus), given, folder=str(corpus.parent))


def fill(loader: Any, source: Path, output: Path, **options: Any) -> Summary:
    given: dict[str, Any] = {"options": {"num_beams": 5}, "engine": Here(), "shard_rows": 20, **options}
    return fill_files(loader, [source], output, **given)


def run(capsys: Any, monkeypatch: Any, *arguments: object) -> tuple[int, list[str], list[str]]:
    """`bibs fill` in this process: exit code, lines of standard output, lines of standard error."""
    monkeypatch.setattr("sys.argv", ["bibs", "fill", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        main()
    said = capsys.readouterr()
    return int(caught.value.code or 0), said.out.splitlines(), said.err.splitlines()


# Rows in, rows out


@pytest.fixture(scope="module")
def alone() -> list[str]:
    """What the infiller answers to each row."""
    infiller = Infiller.from_corpus(CAPTIONS)
    return [infiller(row["template"], num_beams=3)[0].text for row in ROWS]


@pytest.mark.parametrize("shard_rows", [1, 7, 50, 1000])
def test_every_row_is_answered_once_in_order_as_the_infiller_answers_it(corpus, alone, tmp_path, shard_rows):
    source = write_lines(tmp_path / "rows.jsonl", ROWS)
    summary = fill(filling(corpus, num_beams=3), source, tmp_path / "out", shard_rows=shard_rows)
    answers = read_lines(tmp_path / "out")
    assert [answer["id"] for answer in answers] == [row["id"] for row in ROWS]
    assert [[each["text"] for each in answer["completions"]] for answer in answers] == [[text] for text in alone]
    assert (summary.filled, summary.total, summary.errors, summary.failures) == (50, 50, 0, [])
    assert len(list((tmp_path / "out").glob("*.jsonl"))) == -(-50 // shard_rows)


@pytest.mark.parametrize(("shard_rows", "group_rows"), [(7, 3), (20, 50), (50, 20), (13, 13)])
def test_parquet_holds_the_same_answers_as_json_lines(corpus, tmp_path, shard_rows, group_rows):
    rows = [*ROWS, {"id": 50, "template": "a __"}, {"id": 51, "template": None}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet", row_group_size=group_rows)
    write_lines(tmp_path / "rows.jsonl", rows)
    for name in ("rows.parquet", "rows.jsonl"):
        fill(filling(corpus), tmp_path / name, tmp_path / f"out-{name}", shard_rows=shard_rows)
    table = pq.read_table(tmp_path / "out-rows.parquet")  # the folder, as others read it
    answers = sorted(table.to_pylist(), key=lambda answer: answer["id"])
    lines = read_lines(tmp_path / "out-rows.jsonl")
    assert [(each["id"], each["template"] or "", each["completions"]) for each in answers] == [
        (each["id"], each["template"], each["completions"]) for each in lines
    ]
    assert [each["error"] for each in answers[-2:]] == [
        each["error"].replace("rows.jsonl, line", "rows.parquet, row") for each in lines[-2:]
    ]
    assert not any(each["error"] for each in answers[:-2])


@pytest.mark.parametrize("shard_rows", [1, 3, 8, 100])
@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n"])
def test_the_shards_of_a_file_hold_its_lines_once(tmp_path, shard_rows, end):
    lines = [json.dumps({"template": f"_ {number} é"}).encode() for number in range(8)] + [b"\xff", b"", b"{"]
    (tmp_path / "rows.jsonl").write_bytes(b"\n".join(lines) + end)
    rows = [row for shard in cut([tmp_path / "rows.jsonl"], shard_rows) for batch in read_shard(shard) for row in batch]
    assert [row.template for row in rows[:8]] == [f"_ {number} é" for number in range(8)]
    assert [row.name.rpartition(", line ")[2] for row in rows] == [str(n + 1) for n in range(11 + (end == b"\n\n"))]


def test_a_packed_file_is_one_shard_with_all_its_lines(tmp_path):
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(b'{"template": "_"}\n' * 9))
    (shard,) = cut([tmp_path / "rows.jsonl.gz"], 2)
    assert sum(map(len, read_shard(shard))) == shard.rows == 9


def test_a_bad_row_is_a_row_with_an_error_and_its_id(corpus, tmp_path):
    rows = [
        {"id": 1, "template": "a man is _ a wave"},
        {"id": 2, "template": "a __"},
        {"id": 3},
        {"id": 4, "template": "a _", "image": "nowhere.jpg"},
        {"id": 5, "template": "a _", "must_include": ["zebra"]},
        {"id": 6, "template": "a _", "features": ["x"]},
        {"id": 7, "template": "a _", "features": [1.0], "image": "x.jpg"},
        {"id": 8, "template": "a _ \ud800"},
        "no object",
        {"id": [1], "template": "a _"},
        {"id": 11, "template": "a man is _ a wave"},
    ]
    summary = fill(filling(corpus), write_lines(tmp_path / "rows.jsonl", rows), tmp_path / "out")
    answers = read_lines(tmp_path / "out")
    assert [answer.get("id") for answer in answers] == [1, 2, 3, 4, 5, 6, 7, 8, None, None, 11]
    assert [place for place, answer in enumerate(answers) if "error" not in answer] == [0, 7, 10]
    assert summary.errors == 8
    for number, answer in enumerate(answers, start=1):
        assert answer.get("error", "line").startswith(
            f"{tmp_path / 'rows.jsonl'}, line {number}: " * ("error" in answer)
        )
        assert bool(answer["completions"]) == ("error" not in answer)


def test_a_model_that_fails_on_a_row_costs_that_row_alone(corpus, tmp_path, monkeypatch):
    call = Infiller.__call__

    def fail(self: Infiller, templates: list[str], **options: Any) -> Any:
        if any("dog" in template for template in templates):
            raise RuntimeError("out of\nsome resource")
        return call(self, templates, **options)

    monkeypatch.setattr(Infiller, "__call__", fail)
    fill(filling(corpus), write_lines(tmp_path / "rows.jsonl", ROWS[:9]), tmp_path / "out")
    answers = read_lines(tmp_path / "out")
    assert ["error" in answer for answer in answers] == ["dog" in row["template"] for row in ROWS[:9]]
    assert answers[2]["error"].endswith("line 3: the model failed: RuntimeError: out of some resource")


def test_the_vector_of_a_picture_stands_for_the_picture(tmp_path):
    from tiny_captions import SIZE, make_home

    model = make_home(tmp_path) / "model"
    vectors = [[float(number)] * SIZE for number in (-3, 0, 3)]
    rows = [{"id": n, "template": "a _ _ on _", "features": vector} for n, vector in enumerate(vectors)]
    rows.append({"id": 3, "template": "a _ _ on _", "features": [1.0]})
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    loader = Filling(ModelChoice(model, precision="float32"), {"must_include": []})
    fill(loader, tmp_path / "rows.parquet", tmp_path / "out")
    answers = pq.read_table(tmp_path / "out").to_pylist()
    import torch

    infiller = Infiller.from_pretrained(model, precision="float32")
    for answer, vector in zip(answers, vectors, strict=False):
        (best,) = infiller("a _ _ on _", images=torch.tensor(vector))
        assert answer["completions"][0]["text"] == best.text
        assert answer["completions"][0]["score"] == pytest.approx(best.score, abs=1e-5)
    assert answers[3]["error"].endswith(f"`features` must hold {SIZE} numbers, but holds 1")


# Nothing lost


def test_a_restart_does_what_is_left_and_nothing_else(corpus, tmp_path):
    source = write_lines(tmp_path / "rows.jsonl", ROWS)
    output = tmp_path / "out"
    fill(filling(corpus), source, output)
    whole = {path.name: path.read_bytes() for path in output.glob("*.jsonl")}
    stamps = {path.name: path.stat().st_mtime_ns for path in output.glob("*.jsonl")}
    (output / INSIDE / "part-00000-00001.json").unlink()  # killed after the file, before its marker
    (output / INSIDE / "part-00000-00002.json").write_text("{")  # what no kill leaves, but a disk may
    (output / ".part-00000-00001.jsonl.other.1.partial").write_text("half a l")
    summary = fill(filling(corpus), source, output)
    assert (summary.already, summary.filled, summary.total) == (20, 30, 50)
    assert {path.name: path.read_bytes() for path in output.glob("*.jsonl")} == whole
    assert (output / "part-00000-00000.jsonl").stat().st_mtime_ns == stamps["part-00000-00000.jsonl"]
    assert not list(output.rglob("*.partial"))
    assert fill(filling(corpus), source, output).filled == 0


def test_a_restart_with_other_options_or_files_is_refused_by_name(corpus, tmp_path):
    source, output = write_lines(tmp_path / "rows.jsonl", ROWS), tmp_path / "out"
    fill(Echo(tmp_path), source, output)
    with pytest.raises(ValueError, match="other options: `--num-beams` was 5, but is 6; take another `--output`"):
        fill(Echo(tmp_path), source, output, options={"num_beams": 6})
    with pytest.raises(ValueError, match="other options: `--shard-rows` was 20, but is 21"):
        fill(Echo(tmp_path), source, output, shard_rows=21)
    with pytest.raises(ValueError, match=r"other files: .*rows.jsonl is not named"):
        fill(Echo(tmp_path), write_lines(tmp_path / "other.jsonl", ROWS), output)
    write_lines(source, ROWS[:-1])
    with pytest.raises(ValueError, match=r"other files: .*rows.jsonl has changed"):
        fill(Echo(tmp_path), source, output)


def test_the_options_of_a_job_are_all_that_decides_its_answers(corpus):
    one = filling(corpus, num_beams=3)
    assert filling(corpus, num_beams=4).named() != one.named() == filling(corpus, num_beams=3).named()
    before = one.named()
    corpus.write_text("other words\n")
    assert one.named() != before


@pytest.mark.slow
def test_a_killed_worker_costs_nothing_but_its_time(tmp_path):
    source = write_lines(tmp_path / "rows.jsonl", ROWS)
    loader = Echo(tmp_path, deadly=30, deaths=1)
    summary = fill(loader, source, tmp_path / "out", engine=Engine("local", 2), shard_rows=25)
    assert len(list(tmp_path.glob("death-*"))) == 1
    assert [answer["id"] for answer in read_lines(tmp_path / "out")] == list(range(50))
    assert (summary.filled, summary.failures) == (50, [])


@pytest.mark.slow
def test_a_shard_that_ends_every_worker_is_left_out_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr("bibs.scale.local.TRIES", 1)
    source = write_lines(tmp_path / "rows.jsonl", ROWS[:20])
    loader = Echo(tmp_path, deadly=15, deaths=1)
    summary = fill(loader, source, tmp_path / "out", engine=Engine("local", 1), shard_rows=10)
    assert summary.failures == [f"{source}: rows 11 to 20 ended {TRIES} workers (out of memory?)"]
    assert not list((tmp_path / "out").rglob("*.partial"))
    assert [answer["id"] for answer in read_lines(tmp_path / "out")] == list(range(10))
    assert fill(loader, source, tmp_path / "out", shard_rows=10).filled == 10


def test_a_full_disk_is_said_and_what_is_whole_stays(tmp_path):
    rows = [*ROWS[:20], {"id": 20, "template": "_ " + "x" * 100_000}]
    source = write_lines(tmp_path / "rows.jsonl", rows)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))  # the system's own refusal to write more
    try:
        with pytest.raises(ValueError, match=r"out could not be written to: File too large; what is whole is kept"):
            fill(Echo(tmp_path), source, tmp_path / "out", shard_rows=10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [answer["id"] for answer in read_lines(tmp_path / "out")] == list(range(20))
    assert not list((tmp_path / "out").rglob("*.partial"))
    fill(Echo(tmp_path), source, tmp_path / "out", shard_rows=10)
    assert len(read_lines(tmp_path / "out")) == 21


def test_two_jobs_do_not_write_to_one_folder(tmp_path):
    source = write_lines(tmp_path / "rows.jsonl", ROWS)

    class Nosy(Here):
        def run(self, *given: Any) -> Any:
            with pytest.raises(ValueError, match="another job is writing to"):
                fill(Echo(tmp_path), source, tmp_path / "out")
            return super().run(*given)

    assert fill(Echo(tmp_path), source, tmp_path / "out", engine=Nosy()).filled == 50


# What is wrong is one line, and nothing is written


def malformed(tmp_path: Path) -> dict[str, Path]:
    """A bad input by what is said of it."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "none.parquet").write_bytes(b"")
    pq.write_table(pa.table({"text": ["a _"]}), tmp_path / "other.parquet")
    pq.write_table(pa.table({"template": [1]}), tmp_path / "numbers.parquet")
    (tmp_path / "empty.jsonl").write_bytes(b"")
    (tmp_path / "rows.csv").write_text("template\na _\n")
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(b'{"template": "_"}\n' * 99)[:40])
    return {
        "no such file": tmp_path / "nowhere.parquet",
        "must hold .parquet, .jsonl or .ndjson files": tmp_path / "empty",
        "cannot be read as Parquet": tmp_path / "cut.parquet",
        "cannot be read as Parquet: ": tmp_path / "none.parquet",
        "must have a column `template`, but has text": tmp_path / "other.parquet",
        "must hold strings, but holds int64": tmp_path / "numbers.parquet",
        "must hold rows": tmp_path / "empty.jsonl",
        "must be .parquet, .jsonl or .ndjson files": tmp_path / "rows.csv",
        "is a damaged gzip file": tmp_path / "cut.jsonl.gz",
    }


def test_a_bad_input_is_one_line_and_nothing_is_written(corpus, tmp_path, monkeypatch, capsys):
    for said, source in malformed(tmp_path).items():
        code, out, err = run(capsys, monkeypatch, "--corpus", corpus, "--input", source, "--output", tmp_path / "out")
        assert (code, out, len(err)) == (2, [], 1), said
        assert said in err[0]
        assert str(source) in err[0]
        assert not (tmp_path / "out").exists()


def test_a_shard_that_cannot_be_read_is_named_and_the_others_are_done(tmp_path):
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "rows.parquet", row_group_size=10, compression="none")
    data = bytearray((tmp_path / "rows.parquet").read_bytes())
    place = pq.ParquetFile(tmp_path / "rows.parquet").metadata.row_group(2).column(1).data_page_offset
    data[place : place + 20] = b"\xff" * 20
    (tmp_path / "rows.parquet").write_bytes(data)
    summary = fill(Echo(tmp_path), tmp_path / "rows.parquet", tmp_path / "out", shard_rows=10)
    assert len(summary.failures) == 1
    assert summary.failures[0].startswith(f"{tmp_path / 'rows.parquet'} cannot be read as Parquet: ")
    ids = sorted(pq.read_table(tmp_path / "out")["id"].to_pylist())
    assert ids == [*range(20), *range(30, 50)]


def test_options_that_do_not_go_together_are_named(corpus, tmp_path, monkeypatch, capsys):
    rows, output = write_lines(tmp_path / "rows.jsonl", ROWS), tmp_path / "out"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    both = ("--input", rows, "--output", output)
    for arguments, said in (
        (("--input", rows), "`--input` and `--output` must come together, but `--output` is missing"),
        (("--output", output), "`--input` and `--output` must come together, but `--input` is missing"),
        ((*both, "a _"), "templates come from `--input` or otherwise, but both are given"),
        ((*both, "--engine", "spark"), "`--engine` must be local or ray, but is 'spark'"),
        ((*both, "--workers", 0), "`--workers` must be at least 1, but is 0"),
        ((*both, "--shard-rows", 0), "`--shard-rows` must be at least 1, but is 0"),
        ((*both, "--address", "auto"), "`--address` must come with `--engine ray`, but comes with 'local'"),
        ((*both, "--num-beams", 0), "`--num-beams` must be"),
        ((*both, "--input", rows), f"`--input` must name a file once, but names {rows} twice"),
        (("--input", tmp_path, "--output", output), "`--output` must not be inside of `--input`"),
        (("--input", rows, "--output", rows), "`--output` must be a directory"),
        (("--input", rows, "--output", tmp_path / "mine"), "`--output` must be new, empty or an earlier job"),
    ):
        code, out, err = run(capsys, monkeypatch, "--corpus", corpus, *arguments)
        assert (code, out, len(err)) == (2, [], 1), arguments
        assert said in err[0]
        assert not output.exists()


# The command


def test_the_command_fills_files_says_how_fast_and_names_what_it_could_not(corpus, tmp_path, monkeypatch, capsys):
    rows = write_lines(tmp_path / "rows.jsonl", [*ROWS[:9], {"template": "a __"}])
    monkeypatch.setattr("bibs.scale.job.run_locally", lambda *given: Here().run(*given[:3]))
    arguments = ("--corpus", corpus, "--input", rows, "--output", tmp_path / "out")
    code, out, err = run(capsys, monkeypatch, *arguments)
    assert (code, err, len(out)) == (1, [], 1)
    assert out[0].startswith("10 rows filled in ")
    assert "rows/s), 1 rows have an `error`; written to" in out[0]
    code, out, err = run(capsys, monkeypatch, *arguments)
    assert (code, err) == (1, [])
    assert out[0].startswith("0 rows filled")
    assert ", 10 were there already, 1 rows have an `error`" in out[0]
