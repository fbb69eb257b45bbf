"""Examples to look at: nobody's fill is lost, equal fills stand together, the picture travels with the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bibs.evaluation.report import Report, render
from bibs.evaluation.results import Results
from bibs.evaluation.samples import Gallery, Line, Sample, merge_equal, picture_source
from bibs.evaluation.tasks import Example

LINES = st.lists(st.sampled_from(["a", "b c", "d"]), min_size=1, max_size=8).map(
    lambda fills: [Line((f"m{n}",), fill, float(n)) for n, fill in enumerate(fills)]
)


def shown(name: str, example: Example, *lines: Line, folder: Path) -> str:
    galleries = (Gallery("g", "c", "BiBS", [Sample(example, lines)]),)
    return render(name, Report("t", "l", Results({}, ()), (), galleries=galleries), folder, folder)


@given(lines=LINES)
def test_merged_lines_hold_every_label_once_and_every_fill_once(lines: list[Line]) -> None:
    merged = merge_equal(lines)
    assert len({line.fill for line in merged}) == len(merged)
    assert [line.fill for line in merged] == list(dict.fromkeys(line.fill for line in lines))
    assert sorted(label for line in merged for label in line.labels) == sorted(
        label for (label,) in (x.labels for x in lines)
    )
    for line in merged:
        held = [each for each in lines if each.labels[0] in line.labels]
        assert {each.fill for each in held} == {line.fill}
        assert line.score == held[0].score


def test_text_in_a_sample_is_shown_and_never_run(tmp_path: Path) -> None:
    example = Example(1, 1, "", ("a", "&", "b"), ("<b>",), ("c",))
    page = shown("report.html", example, Line(("BiBS",), "<b>", -1.25), folder=tmp_path)
    assert "&lt;b&gt;" in page
    assert "a &amp; b" in page
    assert "<u><b>" not in page
    assert '<tr class="ours right"><th><b>BiBS</b></th>' in page  # the same words as people's
    assert '<tr class="truth"><th>People</th>' in page
    text = shown("table.md", example, Line(("BiBS",), "<b>", -1.25), folder=tmp_path)
    assert "| People | a & b **<b>** c |  |\n| BiBS | a & b **<b>** c | -1.2 |\n" in text


def test_a_picture_is_found_in_its_folder_and_inlined_small(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs Pillow")
    (tmp_path / "train2017").mkdir()
    image.new("RGB", (900, 600), "red").save(tmp_path / "train2017" / "7.png")
    page = shown("report.html", Example(1, 1, "somewhere/7.png", ("a",), ("x",), ("b",)), folder=tmp_path)
    assert 'src="data:image/jpeg;base64,' in page
    assert len(page) < 20_000
    assert picture_source("8.png", tmp_path) == picture_source("7.png", None) == picture_source("", tmp_path) == ""
    (tmp_path / "9.png").write_bytes(b"no picture")
    assert "<img" not in shown("report.html", Example(1, 1, "9.png", ("a",), ("x",), ("b",)), folder=tmp_path)
