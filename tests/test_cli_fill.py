"""`bibs fill` as a person and as a program would use it: real processes, real pipes. What is refused needs neither."""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from commands import run

CAPTIONS = "A man is riding a wave.\na man is riding a horse\nthe dog is sitting on the beach\n"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "captions.txt"
    path.write_text(CAPTIONS, encoding="utf-8")
    return path


def test_an_ngram_pair_is_counted_on_the_spot(corpus):
    code, out, err = run("fill", "--corpus", corpus, "A man _ _ a wave!", "the _ is sitting")
    assert (code, out, err) == (0, ["A man is riding a wave!", "the dog is sitting"], [])


def test_templates_come_from_standard_input_and_leave_as_json_lines(corpus):
    code, out, err = run("fill", "--corpus", corpus, "--json", "-n", 2, given=b"a man is _ a wave\nthe _ is\n")
    assert (code, err) == (0, [])
    rows = [json.loads(line) for line in out]
    assert [row["template"] for row in rows] == ["a man is _ a wave", "the _ is"]
    assert rows[0]["completions"][0]["text"] == "a man is riding a wave"
    assert rows[0]["completions"][0]["spans"] == ["riding"]
    assert len(rows[0]["completions"]) == 2


def test_templates_come_from_a_file(corpus, tmp_path):
    path = tmp_path / "templates.txt"
    path.write_text("a man is _ a wave\n", encoding="utf-8")
    assert run("fill", "--corpus", corpus, "--file", path) == (0, ["a man is riding a wave"], [])


def test_a_bad_template_is_named_and_the_others_are_filled(corpus):
    code, out, err = run("fill", "--corpus", corpus, "--json", given=b"the _ is\na __ b\na man is _ a wave\n")
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
    code, out, err = run(
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
            "bibs: `--num-beams` must be a whole number of at least 1, but is 0",
        ),
        (["--corpus", "CORPUS", "a _", "--method", "magic"], "bibs: `--method` must be one of bibs, forward,"),
        (["--corpus", "CORPUS", "--model", "x", "a _"], "bibs: `--model` and `--corpus` exclude each other"),
        (["--model", "nowhere", "a _"], "bibs: no model directory at nowhere"),
        (
            ["--corpus", "CORPUS", "a _", "--must-include", "zebra"],
            "bibs: `--must-include` must hold words that the model knows, but holds 'zebra'",
        ),
        (["--corpus", "LATIN", "a _"], "bibs: LATIN is not UTF-8 text"),
        (["--corpus", "CORPUS", "a _", "--bad-word", "_"], "bibs: `--bad-word` must hold"),
        (["--image", "CORPUS", "a _"], "bibs: `--image`: CORPUS cannot be read as a picture"),
        (["--model", "DAMAGED", "a _"], "bibs: DAMAGED/config.json: `forward`: `hidden_size` must be a whole number"),
        (["--corpus", "CORPUS", "--order", "0", "a _"], "bibs: `--order` must be"),
        (["--corpus", "CORPUS", "--engine", "ray", "a _"], "bibs: `--engine` needs `--input`"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(bibs, corpus, tmp_path, arguments, message):
    latin = tmp_path / "latin.txt"
    latin.write_bytes("un café\n".encode("latin-1"))
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "config.json").write_text('{"format": 1, "forward": {"vocab_size": 5, "hidden_size": "x"}}')
    places = {"CORPUS": str(corpus), "LATIN": str(latin), "DAMAGED": str(damaged)}
    code, out, err = bibs("fill", *(places.get(argument, argument) for argument in arguments))
    assert (code, out, len(err)) == (2, [], 1)
    for name, place in places.items():
        message = message.replace(name, place)
    assert err[0].startswith(message)


LINES = b"a man is _ a wave\n\na man _ \xff\na __ b\n  \nthe _ is"


@pytest.mark.parametrize("from_file", [True, False])
def test_one_line_in_is_one_object_out_with_an_error_where_there_is_one(corpus, tmp_path, from_file):
    (tmp_path / "lines.txt").write_bytes(LINES)
    source = ["--file", tmp_path / "lines.txt"] if from_file else []
    code, out, err = run("fill", "--corpus", corpus, "--json", *source, given=LINES)
    rows = [json.loads(line) for line in out]
    assert [row["template"] for row in rows] == [
        *("a man is _ a wave", "", "a man _ \N{REPLACEMENT CHARACTER}", "a __ b", "  ", "the _ is")
    ]
    assert ["error" in row for row in rows] == [False, True, True, True, True, False]
    name = str(tmp_path / "lines.txt") if from_file else "standard input"
    assert rows[2]["error"] == f"{name}, line 3: it is not UTF-8 text"
    assert rows[5]["completions"][0]["text"] == "the dog is"
    assert code == 1
    assert err == [f"bibs: {row['error']}" for row in rows if "error" in row]


def test_half_a_character_ends_no_stream(corpus):
    lines = b'{"template": "the \\ud83d _", "id": "\\udfff"}\n{"template": "the _ is"}\n'
    code, out, err = run("fill", "--corpus", corpus, "--from-json", "--json", given=lines)
    assert (code, err) == (0, [])
    assert [json.loads(line)["template"] for line in out] == ["the \ud83d _", "the _ is"]
    assert json.loads(out[0])["id"] == "\udfff"
    code, out, err = run("fill", "--corpus", corpus, "--from-json", given=lines)
    assert (code, err, len(out)) == (0, [], 2)
    assert out[0].startswith("the \\ud83d ")


def test_in_text_a_bad_line_is_named_and_a_blank_one_is_passed_over(corpus):
    code, out, err = run("fill", "--corpus", corpus, given=LINES)
    assert (code, out) == (1, ["a man is riding a wave", "the dog is"])
    assert [line.split(":")[1].strip() for line in err] == ["standard input, line 3", "standard input, line 4"]


@pytest.mark.slow
def test_each_line_of_a_pipe_is_answered_before_the_next_one_comes(corpus):
    command = [sys.executable, "-c", "from bibs.cli import main; main()", "fill", "--corpus", str(corpus)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        for text, answer in (("a man is _ a wave", "a man is riding a wave"), ("the _ is", "the dog is")):
            process.stdin.write(text.encode() + b"\n")
            process.stdin.flush()
            # The pipe stays open: were the answer to wait for its end, this would wait for ever.
            assert select.select([process.stdout], [], [], 100)[0]
            assert process.stdout.readline().decode() == answer + "\n"
        process.stdin.close()
        assert process.wait(60) == 0


def test_several_completions_have_scores_and_stand_apart(corpus):
    code, out, _ = run("fill", "--corpus", corpus, "-n", 2, "a man is _ a wave", "the _ is")
    assert code == 0
    assert [line == "" for line in out] == [False, False, True, False, False]
    rows = [line.split("\t") for line in out if line]
    assert rows[0][1] == "a man is riding a wave"
    assert float(rows[0][0]) > float(rows[1][0])
    code, out, _ = run("fill", "--corpus", corpus, "--scores", "a man is _ a wave")
    assert [line.split("\t")[1] for line in out] == ["a man is riding a wave"]


def test_nothing_found_is_named_with_what_to_change(corpus):
    words = sorted({word.strip(".").lower() for word in CAPTIONS.split()})
    barred = [part for word in words for part in ("--bad-word", word)]
    code, out, err = run("fill", "--corpus", corpus, "--json", "a _ man", *barred)
    assert code == 1
    assert json.loads(out[0])["completions"] == []
    assert json.loads(out[0])["error"].startswith("template 1: nothing was found: ")
    assert len(err) == 1


def test_an_empty_template_that_was_typed_is_named(bibs, corpus):
    code, out, err = bibs("fill", "--corpus", corpus, "")
    assert (code, out) == (1, [])
    assert err == ["bibs: template 1: the template must hold a word or a blank, but is empty"]


def test_the_bound_on_words_is_an_option(bibs, corpus):
    assert bibs("fill", "--corpus", corpus, "a _ man", "--max-words", 2)[2] == [
        "bibs: template 1: a template must have at most 2 words (`max_words`), but has 3"
    ]


ROWS = [
    {"template": "a man is _ a wave", "id": 7},
    {"template": "the _ is", "id": "x", "must_include": ["dog"], "colour": "ignored"},
    {"template": "a man is _ a _", "must_include": ["horse"], "image": None},
    {"template": "a man is _ a wave", "must_include": ["zebra"], "id": 1.5},
    {"template": "a man is _ a wave", "must_include": "horse"},
    {"template": "a man is _ a wave", "must_include": [3]},
    {"template": "a man is _ a wave", "image": "nowhere.jpg"},
    {"template": "a man is _ a wave", "image": ""},
    {"template": "a man is _ a wave", "image": 3},
    {"template": "a man is _ a wave", "id": [1]},
    {"template": 3},
    {"template": " "},
    {"text": "a _"},
    ["a _"],
]
SAID = [
    *("", "", ""),
    "`must_include` must hold words that the model knows, but holds 'zebra'",
    'it: `must_include` must be a list, but is "horse"',
    "it: `must_include` must hold strings, but holds 3",
    "`image` must be None for models that were trained on words alone, but is not",
    "it: `image` must be a path or null, but is empty",
    "it: `image` must be a string, but is 3",
    "it: `id` must be a string or an integer or a number, but is [1]",
    "it: `template` must be a string, but is 3",
    "it: `template` must hold a word or a blank, but is empty",
    "it has no field `template`",
    'it must be an object, but is ["a _"]',
    "it is not JSON: ",
    "it is not UTF-8 text",
]


@pytest.mark.parametrize("from_file", [True, False])
def test_rows_of_json_lines_have_their_own_words_and_names(corpus, tmp_path, from_file):
    lines = [json.dumps(row).encode() for row in ROWS] + [b"{", b"\xff", b""]
    (tmp_path / "rows.jsonl").write_bytes(b"\n".join(lines))
    source = ["--file", tmp_path / "rows.jsonl"] if from_file else ["--from-json"]
    code, out, err = run("fill", "--corpus", corpus, "--json", *source, given=b"\n".join(lines))
    name = tmp_path / "rows.jsonl" if from_file else "standard input"
    answers = [json.loads(line) for line in out]
    assert code == 1
    for number, (answer, line) in enumerate(zip(answers, SAID, strict=True), start=1):
        said = answer.get("error", "")
        assert said.startswith(f"{name}, line {number}: {line}") if line else not said
    assert err == [f"bibs: {answer['error']}" for answer in answers if "error" in answer]
    assert [answer.get("id") for answer in answers[:4]] == [7, "x", None, 1.5]
    assert ["id" in answer for answer in answers[:4]] == [True, True, False, True]
    assert answers[1]["completions"][0]["text"] == "the dog is"
    assert "horse" in answers[2]["completions"][0]["text"]
    # Text answers pass over nothing but an empty line.
    code, out, err = run("fill", "--corpus", corpus, *source, given=b"\n".join([*lines, b"", b"  "]))
    assert (code, len(out), len(err)) == (1, 3, len(SAID) - 3)


def test_words_of_the_command_and_of_a_row_add_up(corpus):
    row = json.dumps({"template": "a _ _ _ a _", "must_include": ["horse"]}).encode()
    code, out, _ = run("fill", "--corpus", corpus, "--from-json", "--must-include", "dog", given=row)
    assert code == 0
    assert {"horse", "dog"} <= set(out[0].split())


def test_each_row_has_its_own_picture(tmp_path):
    pillow = pytest.importorskip("PIL.Image", reason="needs the vision extra: pip install '.[vision]'")
    pytest.importorskip("onnxruntime", reason="needs the vision extra: pip install '.[vision]'")
    import numpy as np

    from bibs import Infiller

    draw = np.random.default_rng(0)
    pictures = [tmp_path / "one.png", tmp_path / "two.png"]
    for path in pictures:
        pillow.fromarray(draw.integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(path)
    template = "a _ _ on a _"
    rows = [{"template": template, "image": str(path)} for path in (*pictures, tmp_path / "none.png")]
    lines = "\n".join(json.dumps(row) for row in [*rows, {"template": template}, rows[0]])
    code, out, err = run("fill", "--json", "--from-json", given=lines.encode())
    answers = [json.loads(line) for line in out]
    assert code == 1
    assert err == [f"bibs: {answers[2]['error']}"]
    assert f"line 3: `image`: {tmp_path / 'none.png'} cannot be read as a picture" in answers[2]["error"]
    infiller = Infiller.from_pretrained()
    alone = [infiller(template, images=image) for image in (*pictures, None)]
    assert [answers[k]["completions"][0]["text"] for k in (0, 1, 3, 4)] == [alone[k][0].text for k in (0, 1, 2, 0)]
    assert len({answers[k]["completions"][0]["score"] for k in (0, 1, 3)}) == 3


def on_a_terminal(*arguments: object) -> tuple[bytes, str]:
    """Standard output, a pipe, and what was shown on the terminal that standard error is."""
    import pty

    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "bibs", *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        out = process.stdout.read()
        shown = b""
        with contextlib.suppress(OSError):  # which is how a terminal ends
            while chunk := os.read(ours, 4096):
                shown += chunk
    os.close(ours)
    return out, shown.decode()


@pytest.mark.slow
def test_a_long_file_shows_its_progress_on_a_terminal_alone(corpus, tmp_path):
    (tmp_path / "templates.txt").write_text("a man is _ a wave\n" * 40 + "a __ b")
    arguments = ["fill", "--corpus", corpus, "--file", tmp_path / "templates.txt"]
    out, shown = on_a_terminal(*arguments)
    assert out.decode().splitlines() == ["a man is riding a wave"] * 40
    assert "41/41" in shown
    # Wherever the terminal breaks the line, which depends on how long the path is.
    assert "line41:template,character3" in "".join(shown.split())
    code, answers, err = run(*arguments)
    assert (code, len(answers), len(err)) == (1, 40, 1)
    assert on_a_terminal("fill", "--corpus", corpus, "a man is _ a wave")[1] == ""


@pytest.mark.slow
def test_each_line_that_is_typed_at_a_terminal_is_asked_for(corpus):
    import pty

    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "bibs", "fill", "--corpus", str(corpus)]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        for typed in (b"a man is _ a wave\n", b"a __ b\n", b"\x04"):  # the last is Ctrl-D
            shown = b""
            while not shown.endswith(b"> "):
                assert select.select([ours], [], [], 60)[0], f"no prompt after {shown!r}"
                shown += os.read(ours, 4096)
            os.write(ours, typed)
        assert b"line 2: template, character 3" in shown  # what is wrong is said before the next line is asked for
        assert process.stdout.read().decode().splitlines() == ["a man is riding a wave"]
        assert process.wait() == 1
    os.close(ours)


def test_ctrl_c_says_how_much_was_answered(corpus, monkeypatch, capsys):
    from bibs.cli import main

    class Stream(io.BytesIO):
        """Two lines, then Ctrl-C."""

        def read1(self, size=-1):
            if chunk := super().read1(size):
                return chunk
            raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(Stream(b"a man is _ a wave\nthe _ is\n")))
    monkeypatch.setattr("sys.argv", ["bibs", "fill", "--corpus", str(corpus)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 130
    assert capsys.readouterr().err == "stopped; 2 templates were answered\n"


@pytest.mark.parametrize("picture", ["nowhere.jpg", "CORPUS"])
def test_a_picture_that_cannot_be_used_is_named_once(bibs, corpus, picture):
    code, out, err = bibs("fill", "--image", corpus if picture == "CORPUS" else picture, "a _", "a _ _")
    assert (code, out, len(err)) == (2, [], 1)


# The program itself


def test_the_program_says_its_version_and_helps():
    import bibs as package

    assert run("--version") == (0, [f"bibs {package.__version__}"], [])
    for arguments in (["-h"], ["fill", "-h"], ["eval", "-h"], ["eval", "captions", "-h"], ["calibrate", "-h"]):
        code, out, err = run(*arguments)
        assert (code, err) == (0, [])
        assert any("Usage:" in line for line in out)


@pytest.mark.slow
def test_python_runs_the_package():
    command = [sys.executable, "-m", "bibs", "--version"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=120)
    assert done.stdout.startswith(b"bibs ")
    help_text = subprocess.run([sys.executable, "-m", "bibs", "-h"], capture_output=True, check=True, timeout=120)
    assert b"Usage: bibs " in help_text.stdout


@pytest.mark.parametrize("command", ["eval captions", "eval convergence", "eval diversity", "eval nll", "calibrate"])
def test_every_command_takes_the_bundled_model_unless_told(bibs, command, tmp_path):
    output = [] if command == "eval nll" else ["--output", tmp_path / "out"]
    code, _, err = bibs(*command.split(), "--data", tmp_path / "nowhere.json", *output)
    assert (code, err) == (2, [f"bibs: no such file: {tmp_path / 'nowhere.json'}"])


def test_the_bundled_model_is_not_written_to(bibs, tmp_path):
    code, _, err = bibs("calibrate", "--data", tmp_path / "nowhere.json")
    assert (code, len(err)) == (2, 1)
    assert "`--output` must say where" in err[0]


def test_fewer_completions_than_asked_for_are_announced_in_one_line(corpus):
    code, out, err = run("fill", "--corpus", corpus, "the _ is", "-n", 50)
    assert code == 0
    assert len(set(out)) == len(out) < 50
    assert len(err) == 1
    assert "`num_return_sequences` is 50, but only" in err[0]


def test_every_command_has_help_with_an_example():
    code, out, _ = run("fill", "--help")
    assert code == 0
    assert any("Example: bibs fill" in line for line in out)
