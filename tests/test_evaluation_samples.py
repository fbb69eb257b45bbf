"""Examples to look at: nobody's fill is lost, equal fills stand together, the picture travels with the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bibs.evaluation.report import Report, render_page
from bibs.evaluation.results import Results
from bibs.evaluation.samples import Gallery, Line, Sample, find_picture, merge_equal, samples_markdown

LINES = st.lists(st.tuples(st.sampled_from(["a", "b c", "d"]), st.booleans()), min_size=1, max_size=8).map(
    lambda fills: [Line((f"m{n}",), fill, float(n), ours=f"m{n}" if own else "") for n, (fill, own) in enumerate(fills)]
)


def page_of(sample: Sample) -> str:
    return render_page(Report("t", "l", Results({}, ()), (), (), galleries=(Gallery("g", "c", (sample,)),)))


@given(lines=LINES, truth=st.sampled_from(["a", "d", "e"]))
def test_merged_lines_hold_every_label_once_and_every_fill_once(lines: list[Line], truth: str) -> None:
    merged = merge_equal([Line(("People",), truth, truth=True), *lines])
    assert merged[0].labels == ("People",)
    assert len({line.fill for line in merged[1:]}) == len(merged) - 1
    assert sorted(label for line in merged for label in line.labels) == sorted(
        ["People", *(label for line in lines for label in line.labels)]
    )
    for line in merged[1:]:
        held = [each for each in lines if each.labels[0] in line.labels]
        assert {each.fill for each in held} == {line.fill}
        assert bool(line.ours) == any(each.ours for each in held)


def test_text_in_a_sample_is_shown_and_never_run(tmp_path: Path) -> None:
    lines = (Line(("People",), "<b>", truth=True), Line(("BiBS",), "<b>", -1.25, ours="BiBS"))
    page = page_of(Sample("a & b", "c", lines))
    assert "&lt;b&gt;" in page
    assert "a &amp; b" in page
    assert "<u><b>" not in page
    assert 'class="ours right"' in page  # the same words as people's
    assert "| BiBS | a & b **<b>** c | -1.2 |" in samples_markdown([Sample("a & b", "c", lines)])


def test_a_picture_is_found_in_its_folder_and_inlined_small(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs Pillow")
    (tmp_path / "train2017").mkdir()
    image.new("RGB", (900, 600), "red").save(tmp_path / "train2017" / "7.png")
    found = find_picture(tmp_path, "somewhere/7.png")
    assert found == tmp_path / "train2017" / "7.png"
    page = page_of(Sample("a", "b", (Line(("People",), "x", truth=True),), found))
    assert 'src="data:image/jpeg;base64,' in page
    assert len(page) < 20_000
    assert find_picture(tmp_path, "8.png") is None
    (tmp_path / "9.png").write_bytes(b"no picture")
    assert "<img" not in page_of(Sample("a", "b", (), tmp_path / "9.png"))
