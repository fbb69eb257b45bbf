"""The doors of the experiments: one line and exit code 2 for what is wrong, JSON for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bibs.cli import main
from bibs.evaluation import experiment as experiment_module
from bibs.evaluation import results as results_module
from bibs.evaluation.meteor import NoMeteorError
from tiny_captions import make_home

pytest.importorskip("pycocoevalcap", reason="needs the eval extra: pip install '.[eval]'")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_home(tmp_path_factory.mktemp("home"))


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["bibs", "eval", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


def common(home: Path, output: Path) -> list[object]:
    return ["--data", home / "data.json", "--model", home / "model", "--output", output, "--workers", 1]


@pytest.fixture
def without_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither Java nor a report, which take seconds."""

    def refuse(pairs: object) -> None:
        raise NoMeteorError("no Java")

    monkeypatch.setattr(results_module, "count_matches", refuse)
    monkeypatch.setattr(experiment_module, "write_outputs", lambda *_, **__: None)


@pytest.mark.usefixtures("without_files")
def test_captions_prints_its_results_as_json(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    features = ["--features", home / "features.npy", "--feature-ids", home / "ids.json"]
    options = ["--methods", "forward,bibs", "--removed", "50", "--limit", 5, "--json"]
    assert call(monkeypatch, "captions", *common(home, tmp_path / "out"), *features, *options) == 0
    output = capsys.readouterr()
    assert [row["method"] for row in json.loads(output.out)["rows"]] == ["forward", "bibs"]
    assert output.err == ""  # no bar in a pipe


@pytest.mark.usefixtures("without_files")
def test_the_directory_is_named_as_it_is(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["--methods", "bibs", "--removed", "50", "--limit", 5]
    assert call(monkeypatch, "captions", *common(home, Path("out[bold]")), *options) == 0
    assert "Written to out[bold]: results.json" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--removed", "half"], "`--removed` must be whole numbers with commas between, but are 'half'"),
        (["--removed", "50,50"], "`--removed` must be distinct percentages, at least one, but are [50, 50]"),
        (["--removed", "100"], "`--removed` must be a whole percentage from 1 to 99, but is 100"),
        (["--methods", "bibs,best"], "but hold 'best'"),
        (["--split", "val"], "has no split 'val', only test, train"),
        (["--limit", "0"], "`--limit` must be at least 1, but is 0"),
        (["--num-beams", "0"], "`--num-beams` must be a whole number of at least 1, but is 0"),
        (["--features", "nowhere.npy", "--feature-ids", "ids.json"], "no such file: nowhere.npy"),
        (["--nade", "nowhere"], "nowhere"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    line: str,
) -> None:
    assert call(monkeypatch, "captions", *common(home, tmp_path / "out"), *options) == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["captions", "convergence", "diversity", "madlibs", "madlibs-captions", "nll"])
def test_every_command_helps_with_an_example(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, command, "--help") == 0
    assert f"Example: bibs eval {command}" in capsys.readouterr().out


def test_convergence_prints_its_passes_as_json(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(experiment_module, "write_outputs", lambda *_, **__: None)
    options = ["--removed", "50", "--num-rounds", 1, "--json"]
    assert call(monkeypatch, "convergence", *common(home, tmp_path / "out"), *options) == 0
    assert [row["pass"] for row in json.loads(capsys.readouterr().out)["rows"]] == [0, 1, 2]
