"""`bibs fill` as a person and as a program would use it: real processes, real pipes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CAPTIONS = "A man is riding a wave.\na man is riding a horse\nthe dog is sitting on the beach\n"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "captions.txt"
    path.write_text(CAPTIONS, encoding="utf-8")
    return path


def bibs(*arguments: object, given: bytes = b"") -> tuple[int, list[str], list[str]]:
    """Exit code, lines of standard output, lines of standard error."""
    command = [sys.executable, "-c", "from bibs.cli import main; main()", *map(str, arguments)]
    done = subprocess.run(command, input=given, capture_output=True, check=False, timeout=120)
    return done.returncode, done.stdout.decode().splitlines(), done.stderr.decode().splitlines()


def test_an_ngram_pair_is_counted_on_the_spot(corpus):
    code, out, err = bibs("fill", "--corpus", corpus, "A man _ _ a wave!", "the _ is sitting")
    assert (code, out, err) == (0, ["A man is riding a wave!", "the dog is sitting"], [])


def test_templates_come_from_standard_input_and_leave_as_json_lines(corpus):
    code, out, err = bibs("fill", "--corpus", corpus, "--json", "-n", 2, given=b"a man is _ a wave\n\nthe _ is\n")
    assert (code, err) == (0, [])
    rows = [json.loads(line) for line in out]
    assert [row["template"] for row in rows] == ["a man is _ a wave", "the _ is"]
    assert rows[0]["completions"][0]["text"] == "a man is riding a wave"
    assert rows[0]["completions"][0]["spans"] == ["riding"]
    assert len(rows[0]["completions"]) == 2


def test_templates_come_from_a_file(corpus, tmp_path):
    path = tmp_path / "templates.txt"
    path.write_text("a man is _ a wave\n", encoding="utf-8")
    assert bibs("fill", "--corpus", corpus, "--file", path) == (0, ["a man is riding a wave"], [])


def test_a_bad_template_is_named_and_the_others_are_filled(corpus):
    code, out, err = bibs("fill", "--corpus", corpus, "--json", given=b"the _ is\na __ b\na man is _ a wave\n")
    assert code == 1
    assert [json.loads(line).get("error", "")[:40] for line in out] == [
        "",
        "standard input, line 2: template, charac",
        "",
    ]
    assert len(err) == 1
    assert err[0].startswith("bibs: standard input, line 2: template, character 3")


def test_words_are_required_and_barred(corpus):
    lines = ["a man is _ a _", "a man _ a wave", "a wave"]
    code, out, err = bibs(
        "fill", "--corpus", corpus, *lines, "--must-include", "horse", "--bad-word", "is", "--bad-word", "riding"
    )
    assert code == 1
    assert [("horse" in line, "riding" in line) for line in out] == [(True, False), (True, False)]
    assert len(err) == 1
    assert err[0].startswith("bibs: template 3: a template must have room for the words of `must_include` (1), but has")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--corpus", "nowhere.txt", "a _"], "bibs: no such file: nowhere.txt"),
        (
            ["--corpus", "CORPUS", "a _", "--num-beams", "0"],
            "bibs: `num_beams` must be a whole number of at least 1, but is 0",
        ),
        (["--corpus", "CORPUS", "a _", "--method", "magic"], "bibs: `method` must be one of bibs, forward,"),
        (["--corpus", "CORPUS", "--model", "x", "a _"], "bibs: `--model` and `--corpus` exclude each other"),
        (["--model", "nowhere", "a _"], "bibs: no model directory at nowhere"),
        (
            ["--corpus", "CORPUS", "a _", "--must-include", "zebra"],
            "bibs: `must_include` must hold words that the model knows, but holds 'zebra'",
        ),
        (["--corpus", "LATIN", "a _"], "bibs: LATIN is not UTF-8 text"),
        (["--corpus", "CORPUS", "--order", "0", "a _"], "bibs: `order` must be"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(corpus, tmp_path, arguments, message):
    latin = tmp_path / "latin.txt"
    latin.write_bytes("un café\n".encode("latin-1"))
    places = {"CORPUS": str(corpus), "LATIN": str(latin)}
    code, out, err = bibs("fill", *(places.get(argument, argument) for argument in arguments))
    assert (code, out, len(err)) == (2, [], 1)
    assert err[0].startswith(message.replace("LATIN", str(latin)))


def test_standard_input_that_is_not_utf8_gets_one_line(corpus):
    code, _, err = bibs("fill", "--corpus", corpus, given=b"a man _ \xff\n")
    assert (code, err) == (2, ["bibs: standard input is not UTF-8 text (line 1)"])


def test_fewer_completions_than_asked_for_are_announced_in_one_line(corpus):
    code, out, err = bibs("fill", "--corpus", corpus, "the _ is", "-n", 50)
    assert code == 0
    assert len(set(out)) == len(out) < 50
    assert len(err) == 1
    assert "`num_return_sequences` is 50, but only" in err[0]


def test_every_command_has_help_with_an_example():
    code, out, _ = bibs("fill", "--help")
    assert code == 0
    assert any("Example: bibs fill" in line for line in out)
