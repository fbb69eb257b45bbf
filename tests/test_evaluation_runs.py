"""A whole run of the captioning experiment on a tiny untrained pair: resuming, refusing, and what is written."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bibs import fill_templates, from_next_token
from bibs.data import Features
from bibs.evaluation import experiment as experiment_module
from bibs.evaluation import results as results_module
from bibs.evaluation import runs
from bibs.evaluation.captions import CaptionSettings, evaluate_captions
from bibs.evaluation.comparison import metric_table
from bibs.evaluation.experiment import Finished, fingerprint
from bibs.evaluation.meteor import NoMeteorError
from bibs.evaluation.methods import METHODS, Method, NadeSamples, Search, parse_methods
from bibs.evaluation.metrics import METRICS
from bibs.evaluation.pair import Answer, Pair
from bibs.evaluation.report import Report, render
from bibs.evaluation.runs import Run
from bibs.evaluation.tables import Entry, Table
from bibs.evaluation.tasks import Cell, Example
from bibs.infiller import Infiller
from bibs.models.directory import load_models
from bibs.models.nade import NADE
from bibs.models.recurrent import RecurrentConfig
from bibs.models.storage import save_json
from bibs.text import Vocabulary
from tiny_captions import SIZE, WORDS, make_home

pytest.importorskip("pycocoevalcap", reason="needs the eval extra: pip install '.[eval]'")
pytest.importorskip("matplotlib", reason="needs the eval extra: pip install '.[eval]'")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_home(tmp_path_factory.mktemp("home"))


@pytest.fixture(autouse=True, scope="module")
def no_java() -> Iterator[None]:
    """A machine without Java, which is also the faster one."""

    def refuse(pairs: object) -> None:
        raise NoMeteorError("no Java")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results_module, "count_matches", refuse)
        yield


def evaluate(home: Path, output: Path, *, with_features: bool = True, workers: int = 1, **changes: object) -> Finished:
    settings = CaptionSettings(**{"methods": "forward,backward,bibs,bibs@2", "num_rounds": 1, **changes})  # type: ignore[arg-type]
    features = Features.load(home / "features.npy", home / "ids.json") if with_features else None
    infiller = Infiller.from_pretrained(home / "model")
    options = {"output": output, "features": features, "workers": workers}
    return evaluate_captions(infiller, home / "data.json", settings=settings, **options)  # type: ignore[arg-type]


def method(text: str, num_beams: int = 5) -> Method:
    (found,) = parse_methods(text, num_beams=num_beams)
    return found


def fill(pair: Pair, text: str, num_beams: int, examples: Sequence[Example], lengths: str) -> list[Answer]:
    return method(text, num_beams).fill(pair, examples, num_beams, lengths)


@pytest.fixture(scope="module")
def finished(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return evaluate(home, tmp_path_factory.mktemp("out") / "run")


def test_a_row_has_the_promised_form(finished: Finished) -> None:
    written = json.loads((finished.run.directory / "results.json").read_text())
    expected = ["task", "split", "removed", "lengths", "method", "num_beams", "n"]
    expected += [key for name in METRICS for key in (name, f"{name}_ci")]
    expected += ["seconds"]
    assert len(written["rows"]) == 3 * 4
    for row in written["rows"]:
        assert list(row) == expected
        for name in METRICS:
            if name.endswith("METEOR"):
                assert row[name] is None
                assert row[f"{name}_ci"] is None
            else:
                low, high = row[f"{name}_ci"]
                assert low <= high
                assert low - 1e-9 <= row[name] <= high + 1e-9 or name.startswith(("Bleu", "blank_Bleu", "CIDEr"))
    assert any("METEOR could not be computed: no Java." in note for note in written["notes"])
    assert {row["n"] for row in written["rows"]} == {8}
    assert "r = 25 %: 1 of 9 skipped, too short to blank." in written["notes"]


def test_bibs_is_compared_with_every_other_method(finished: Finished) -> None:
    rows = {(row["removed"], row["method"]): row for row in finished.results.rows}
    compared = set()
    for each in finished.results.comparisons:
        ours, theirs = rows[each["removed"], "bibs"], rows[each["removed"], each["other"]]
        assert each["difference"] == pytest.approx(ours[each["metric"]] - theirs[each["metric"]])
        assert each["difference_ci"][0] <= each["difference_ci"][1]
        compared.add((each["removed"], each["other"]))
    assert compared == {(removed, other) for removed in (25, 50, 75) for other in ("forward", "backward", "bibs@2")}


def test_completions_keep_the_context_and_the_length(finished: Finished) -> None:
    lines = (finished.run.directory / "completions.jsonl").read_text().splitlines()
    assert len(lines) == 3 * 4 * 8
    for line in map(json.loads, lines):
        assert len(line["fill"].split()) == len(line["truth"].split()) > 0
        assert line["score"] == pytest.approx(line["forward_score"] + line["backward_score"])
        assert not {"<start>", "<end>", "<unk>"} & set(line["fill"].split())


def test_the_score_of_bibs_is_never_below_that_of_its_first_pass(finished: Finished) -> None:
    for cell in finished.run.cells:
        ours, init = (finished.run.of(cell, method(name)) for name in ("bibs", "backward"))
        assert all(mine.score >= first.score - 1e-4 for mine, first in zip(ours, init, strict=True))


def test_every_output_is_written_and_the_report_stands_alone(finished: Finished) -> None:
    directory = finished.run.directory
    report = (directory / "report.html").read_text()
    assert not re.search(r"(src|href)=\"(?!data:)", report)
    assert report.count("data:image/png;base64,") == 4
    for label in ("URNN-f", "URNN-b", "BiBS", "BiBS, B = 2"):
        assert label in report
        assert label in (directory / "table.md").read_text()
        assert label in (directory / "table.tex").read_text()
    assert {path.name for path in (directory / "plots").iterdir()} == {
        "metrics.png",
        "gains.png",
        "time.png",
        "beams.png",
    }


def test_a_killed_run_goes_on_to_the_same_completions(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: Finished
) -> None:
    monkeypatch.setattr(experiment_module, "write_outputs", lambda *_, **__: None)
    monkeypatch.setattr(runs, "SLICE", 3)
    filled: list[int] = []
    whole = Search.__call__

    def dies(self: Search, pair: Pair, examples: Sequence[Example], num_beams: int, lengths: str) -> list[Answer]:
        if len(filled) == 7:
            raise KeyboardInterrupt
        filled.append(len(examples))
        return whole(self, pair, examples, num_beams, lengths)

    monkeypatch.setattr(Search, "__call__", dies)
    with pytest.raises(KeyboardInterrupt):
        evaluate(home, tmp_path / "run")
    path = tmp_path / "run" / "completions.jsonl"
    kept = path.read_text().splitlines()
    assert len(kept) == sum(filled)
    with path.open("a") as file:
        file.write('{"cell": "captions/test/25/kno')  # what a kill in the middle of a write leaves

    monkeypatch.setattr(Search, "__call__", whole)
    again = evaluate(home, tmp_path / "run")
    assert path.read_text().splitlines()[: len(kept)] == kept
    assert again.run.completions.keys() == finished.run.completions.keys()
    for key, completion in again.run.completions.items():
        assert completion.fill == finished.run.completions[key].fill
    for row, expected in zip(again.results.rows, finished.results.rows, strict=True):
        assert row["CIDEr_ci"] == pytest.approx(expected["CIDEr_ci"])


@pytest.mark.slow
def test_two_processes_fill_what_one_fills(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: Finished
) -> None:
    monkeypatch.setattr(experiment_module, "write_outputs", lambda *_, **__: None)
    again = evaluate(home, tmp_path / "run", workers=2)
    assert {key: record.fill for key, record in again.run.completions.items()} == {
        key: record.fill for key, record in finished.run.completions.items()
    }


def test_a_finished_run_fills_nothing_again(home: Path, finished: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> list[Answer]:
        raise AssertionError("filled again")

    monkeypatch.setattr(experiment_module, "write_outputs", lambda *_, **__: None)
    monkeypatch.setattr(Search, "__call__", never)
    assert evaluate(home, finished.run.directory).results.rows == finished.results.rows


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"num_beams": 7}, "`num_beams` was 5, but is 7"),
        ({"limit": 4}, "`limit` was null, but is 4"),
        ({"removed": (50,)}, r"`removed` was \[25, 50, 75\], but is \[50\]"),
        ({"with_features": False}, '`features` was "[0-9a-f]+", but is null'),
    ],
)
def test_going_on_with_other_settings_is_refused(
    home: Path, finished: Finished, changes: dict[str, object], named: str
) -> None:
    before = (finished.run.directory / "completions.jsonl").read_bytes()
    with pytest.raises(ValueError, match=f"cannot go on with other settings: {named}") as caught:
        evaluate(home, finished.run.directory, **changes)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert (finished.run.directory / "completions.jsonl").read_bytes() == before


def test_a_directory_of_other_things_is_refused(home: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("dear")
    with pytest.raises(ValueError, match=r"must be new, empty or an earlier run, but .* holds other things"):
        evaluate(home, tmp_path)
    with pytest.raises(ValueError, match=r"must be a directory, but .* is a file"):
        evaluate(home, tmp_path / "thesis.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_bad_inputs_are_named_in_one_line(home: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no split 'val', only test, train$"):
        evaluate(home, tmp_path / "a", split="val")
    with pytest.raises(ValueError, match="`lengths` must be among known, paper, unknown, but hold 'guessed'"):
        evaluate(home, tmp_path / "c", lengths=("guessed",))
    features = Features(np.zeros((2, SIZE), dtype=np.float32), [2, 3])
    infiller = Infiller.from_pretrained(home / "model")
    with pytest.raises(ValueError, match="`features` must hold every picture, but 6 of 8 have none"):
        evaluate_captions(infiller, home / "data.json", output=tmp_path / "d", features=features)
    assert not list(tmp_path.iterdir())


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", {"seed": 0})
    (run.directory / "completions.jsonl").write_text('{"cell": 1}\n')
    with pytest.raises(ValueError, match="line 1 is no completion"):
        Run(tmp_path / "run", {"seed": 0})


def test_methods_are_read_by_name_and_width() -> None:
    keys = [method.key for method in parse_methods("all", num_beams=5)]
    assert keys[:4] == ["forward", "backward", "rerank-max", "rerank-sum"]
    assert keys[-1] == "bibs"
    assert [m.key for m in parse_methods("bibs, bibs@10,bibs@5,gsn", num_beams=5)] == ["bibs", "bibs@10", "gsn"]
    assert parse_methods("bibs@10", num_beams=5)[0].label == "BiBS, B = 10"
    for bad in ("", "beam", "bibs@0", "bibs@x"):
        with pytest.raises(ValueError, match="`methods` must"):
            parse_methods(bad, num_beams=5)


def test_scores_of_fills_from_elsewhere_are_those_of_the_search(home: Path) -> None:
    pair = Pair(*load_models(home / "model"), Features.load(home / "features.npy", home / "ids.json"))
    example = Example(1, 1, "", ("a", "man"), ("rides", "a"), ("wave",))
    (answer,) = fill(pair, "bibs", 5, [example], "known")
    (scored,) = pair.score([example], [tuple(answer.fill.split())])
    assert scored.score == pytest.approx(answer.score, abs=1e-4)
    assert scored.forward_score == pytest.approx(answer.forward_score, abs=1e-4)


@pytest.mark.parametrize("lengths", ["paper", "unknown"])
@pytest.mark.parametrize("name", ["forward", "rerank-max", "gsn", "bibs"])
def test_unknown_lengths_keep_the_context_and_score_what_they_return(home: Path, lengths: str, name: str) -> None:
    pair = Pair(*load_models(home / "model"), Features.load(home / "features.npy", home / "ids.json"), 1)
    example = Example(1, 1, "", ("a", "man"), ("rides", "a"), ("wave",))
    (answer,) = fill(pair, name, 3, [example], lengths)
    assert answer.fill
    (scored,) = pair.score([example], [tuple(answer.fill.split())])
    assert scored.score == pytest.approx(answer.score, abs=1e-4)


def test_cells_have_distinct_names() -> None:
    names = {Cell("captions", "test", removed, "known", ()).name for removed in (25, 50, None)}
    assert names == {"captions/test/25/known", "captions/test/50/known", "captions/test/known"}


def make_nade(home: Path, folder: Path) -> tuple[NadeSamples, Pair]:
    vocabulary = Vocabulary.load(home / "model" / "vocabulary.txt")
    config = RecurrentConfig(len(vocabulary), hidden_size=8, embedding_size=8, condition_size=SIZE)
    torch.manual_seed(1)
    NADE(config).save(folder / "nade.safetensors", dtype=None)
    save_json(folder / "config.json", {"format": 1, "nade": asdict(config), "missing": 0.5})
    vocabulary.save(folder / "vocabulary.txt")
    pair = Pair(*load_models(home / "model"), Features.load(home / "features.npy", home / "ids.json"))
    return NadeSamples.load(folder, pair.vocabulary), pair


def test_nade_stands_beside_the_searches_and_is_ranked_by_the_pair(home: Path, tmp_path: Path) -> None:
    filler, pair = make_nade(home, tmp_path)
    examples = [
        Example(1, 1, "", ("a", "man"), ("rides", "a"), ("wave",)),
        Example(2, 2, "", ("a",), ("cat",), ("in",)),
    ]
    drawn = filler.nade.fill(pair.templates(examples), pair.conditions(examples), num_samples=4, banned=pair.banned)
    answers = filler(pair, examples, 4, "known")
    for example, fills, answer in zip(examples, drawn, answers, strict=True):
        words = [pair.words_in_blank(example, fill.tokens) for fill in fills]
        scores = [pair.score([example], [each])[0].score for each in words]
        assert tuple(answer.fill.split()) == words[scores.index(max(scores))]
        assert answer.score == pytest.approx(max(scores), abs=1e-4)
    Vocabulary(pair.vocabulary.words[:2:-1]).save(tmp_path / "vocabulary.txt")
    with pytest.raises(ValueError, match="`nade` must have the vocabulary of `model`"):
        NadeSamples.load(tmp_path, pair.vocabulary)


@pytest.mark.parametrize("lengths", ["paper", "unknown"])
def test_nade_looks_where_the_searches_look_and_is_ranked_as_they_are(
    home: Path, tmp_path: Path, lengths: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With samples that are the search's own fills, it must choose what the search chose."""
    filler, pair = make_nade(home, tmp_path)
    examples = [
        Example(1, 1, "", ("a", "man"), ("rides", "a"), ("wave",)),
        Example(2, 2, "", ("a",), ("cat",), ("in", "a", "tree")),
    ]

    def search(model: NADE, templates: list[list[int | None]], conditions: Tensor, **options: object) -> object:
        return fill_templates(
            pair.forward, pair.backward, templates, conditions=conditions, num_beams=3, banned=pair.banned
        )

    monkeypatch.setattr(NADE, "fill", search)
    for found, wanted in zip(filler(pair, examples, 3, lengths), fill(pair, "bibs", 3, examples, lengths), strict=True):
        assert found.fill == wanted.fill
        assert found.score == pytest.approx(wanted.score, abs=1e-4)


def test_the_width_of_equal_time_is_where_the_times_meet() -> None:
    def row(method: str, width: int, seconds: float) -> dict[str, object]:
        return {"method": method, "num_beams": width, "seconds": seconds}

    ours = [row("bibs", 5, 4.0), row("bibs", 5, 8.0)]  # two cells
    theirs = [row(key, width, width / 2) for key, width in [("rerank-sum", 5), ("rerank-sum@40", 40)] for _ in "ab"]
    (note,) = results_module.equal_time_notes([*ours, *theirs, row("bibs@1", 1, 1.0), row("forward", 5, 1.0)])
    assert note == "BiRNN-f+b takes the processor time of BiBS (12 s) with about 12.0 beams."
    assert not results_module.equal_time_notes([*ours, row("rerank-sum", 5, 1.0), row("rerank-sum@9", 9, 2.0)])
    assert not results_module.equal_time_notes(theirs)


def test_every_number_of_a_table_stands_in_its_place_in_every_layout(tmp_path: Path) -> None:
    first = (Entry("0.25", gain="+5.0%"), Entry("-0.50", "[1, 2]"))
    entries = (first, (Entry("10.0", "[9, 11]", best=True), Entry("n/a")))
    table = Table("t", ("r = 25 %", "r = 50 %"), ("x", "y_1"), (("a & b", entries),), note="a note")
    report = Report("A title", "A lead.", results_module.Results({}, (), ("One note.",)), (table,))
    assert render("table.md", report, tmp_path).splitlines() == [
        *("# A title", "", "- One note.", "", "### t: a note", ""),
        "| method | x, r = 25 % | y_1, r = 25 % | x, r = 50 % | y_1, r = 50 % |",
        "|---|---|---|---|---|",
        "| a & b | 0.25 (+5.0%) | -0.50 [1, 2] | **10.0** [9, 11] | n/a |",
        *("", "### In short", "", "t:", ""),
        "| x / y_1 | r = 25 % | r = 50 % |",
        "|---|---|---|",
        "| a & b | .25 / -.50 | **10.0** / n/a |",
    ]
    assert render("table.tex", report, tmp_path).splitlines() == [
        *(r"\begin{table*}", r"\centering", r"\begin{tabular}{lcccc}", r"\toprule"),
        r" & \multicolumn{2}{c}{r = 25 \%} & \multicolumn{2}{c}{r = 50 \%} \\",
        *(r"\cmidrule(lr){2-3}", r"\cmidrule(lr){4-5}"),
        r" & x & y\_1 & x & y\_1 \\",
        r"\midrule",
        r"a \& b & 0.25 (+5.0\%) & -0.50 {\tiny [1, 2]} & \textbf{10.0} {\tiny [9, 11]} & n/a \\",
        *(r"\bottomrule", r"\end{tabular}", r"\caption{t: a note.}", r"\end{table*}"),
    ]


# Models and methods of one's own, and what the report says of them


def first_word_again(pair: Pair, examples: Sequence[Example], num_beams: int, lengths: str) -> list[Answer]:
    return pair.score(examples, [example.before[:1] * len(example.blank) for example in examples])


def counted(lines: list[str]) -> Infiller:
    return Infiller.from_corpus([*lines, " ".join(WORDS)])


def test_any_pair_is_evaluated_by_methods_of_ones_own(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "again", ("The first word again", first_word_again))
    settings = CaptionSettings(removed=(50,), methods="again,forward,bibs", num_rounds=1)
    infiller = counted(["a man rides a wave", "the old dog sits on the mat"])
    found = evaluate_captions(infiller, home / "data.json", output=tmp_path / "run", settings=settings)
    (cell,) = found.run.cells
    for example, each in zip(cell.examples, found.run.of(cell, found.run.methods[0]), strict=True):
        assert each.fill.split() == [example.before[0]] * len(example.blank)
        whole = [infiller.vocabulary.start, *infiller.vocabulary.encode(example.filled(each.fill.split()))]
        (expected,) = infiller.forward.start([[*whole, infiller.vocabulary.end]])[2]
        assert each.forward_score == pytest.approx(float(expected), abs=1e-4)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "The first word again" in page
    again = evaluate_captions(infiller, home / "data.json", output=tmp_path / "run", settings=settings)
    assert again.results.rows == found.results.rows
    other = counted(["a man rides a wave", "the old dog sits on the street"])
    with pytest.raises(ValueError, match="cannot go on with other settings: `model` was"):
        evaluate_captions(other, home / "data.json", output=tmp_path / "run", settings=settings)


def test_a_model_is_known_again_by_what_it_has_learnt() -> None:
    one, same, other = (counted([line]) for line in ("a man sits", "a man sits", "a cat sits"))
    assert fingerprint(one.forward) == fingerprint(same.forward) != fingerprint(other.forward)
    assert fingerprint(one.forward) != fingerprint(one.backward)
    assert fingerprint(one.forward, "a") != fingerprint(one.forward, "b")
    torch.manual_seed(0)
    linear = torch.nn.Linear(2, 3)
    before = fingerprint(linear)
    assert before == fingerprint(copy.deepcopy(linear))
    torch.nn.init.zeros_(linear.bias)
    assert fingerprint(linear) != before
    functions = (from_next_token(lambda tokens: torch.zeros(3), 3), from_next_token(lambda tokens: torch.ones(3), 3))
    assert fingerprint(functions[0]) == fingerprint(functions[1])  # a function has no weights to look at


def test_the_report_says_what_is_true_of_the_methods_that_were_run(home: Path, tmp_path: Path) -> None:
    changes = {"methods": "gsn,bibs", "lengths": ("known", "unknown"), "limit": 4}
    evaluate(home, tmp_path / "run", with_features=False, **changes)
    page = (tmp_path / "run" / "report.html").read_text()
    body = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    assert "on which GSN (ordered) and BiBS do not all agree" in body
    assert "seeing what is left" in body
    assert not re.search(r"[{}]|num_beams|length_prior|None", re.sub(r"base64,[^\"]*", "", body))
    for head in re.findall(r"<thead>.*?</thead>", body, flags=re.DOTALL):
        assert head.rpartition("<tr>")[2].count("<th") <= 11  # all of them are seen on a page of 1,280 pixels
    text = (tmp_path / "run" / "table.md").read_text()
    assert "The blank alone, unknown length" in text
    tables = re.findall(r"^### .*", text, flags=re.MULTILINE)
    assert len(tables) == len(set(tables))


@pytest.mark.slow
def test_no_column_of_a_report_is_cut_off_on_a_page_of_1280_pixels(chromium: Any, tmp_path: Path) -> None:
    """The widest table that is not split: what BiBS gains by three metrics at three shares of words removed."""
    entries = ((Entry("+0.523", "[+0.041, +1.107]", gain="+100.9%"),) * 3,) * 3
    groups, columns = ("r = 25 %", "r = 50 %", "r = 75 %"), ("CIDEr", "Bleu-4", "METEOR")
    table = Table("BiBS minus the others", groups, columns, (("BiBS (from the right)", entries),))
    report = Report("A title", "A lead.", results_module.Results({}, (), labels={}), (table,))
    (tmp_path / "report.html").write_text(render("report.html", report, tmp_path))
    page = chromium.new_page(viewport={"width": 1280, "height": 800})
    page.goto(f"file://{tmp_path / 'report.html'}")
    boxes = page.evaluate("[...document.querySelectorAll('.parts')].map((box) => [box.scrollWidth, box.clientWidth])")
    assert boxes
    assert all(needed <= seen for needed, seen in boxes)
    page.set_viewport_size({"width": 390, "height": 800})  # a phone: wide tables are wiped aside, the page is not
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.evaluate("document.querySelector('.parts').scrollLeft = 200")
    left, scrolled = page.evaluate(
        "[document.querySelector('.numbers tbody th').getBoundingClientRect().x,"
        " document.querySelector('.parts').scrollLeft]"
    )
    page.close()
    assert scrolled > 0
    assert left > 0  # the method's name stays in sight


def test_only_what_is_better_than_another_stands_out() -> None:
    rows = [{"removed": 50, "method": method, "CIDEr": 0.0} for method in ("forward", "bibs")]
    table = metric_table("", rows, ["CIDEr"], itemgetter("method"))
    assert [entries[0][0].best for _, entries in table.rows] == [False, False]


@pytest.mark.skipif(not hasattr(torch, "_int_mm"), reason="needs the int8 products of torch")
def test_an_infiller_is_evaluated_in_its_own_precision(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment_module, "write_outputs", lambda *_, **__: None)
    found = {}
    for precision in ("float32", "int8"):
        infiller = Infiller.from_pretrained(home / "model", precision=precision)
        settings = CaptionSettings(removed=(50,), methods="bibs", num_rounds=1)
        run = evaluate_captions(infiller, home / "data.json", output=tmp_path / precision, settings=settings).run
        assert run.settings["precision"] == precision
        found[precision] = run
        other = Infiller.from_pretrained(home / "model", precision="int8" if precision == "float32" else "float32")
        with pytest.raises(ValueError, match="cannot go on with other settings: `precision` was"):
            evaluate_captions(other, home / "data.json", output=tmp_path / precision, settings=settings)
    for key, each in found["int8"].completions.items():  # what is returned is scored in float32
        if each.fill == found["float32"].completions[key].fill:
            assert each.score == pytest.approx(found["float32"].completions[key].score, abs=1e-4)
