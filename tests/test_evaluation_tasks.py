"""How sentences are blanked, judged by the paper's own example and by counting."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bibs.data import CaptionedImage, Madlib
from bibs.evaluation.tasks import caption_examples, cut_blank, draw_captions, madlibs_examples


def image(number: int, *captions: str, split: str = "test") -> CaptionedImage:
    return CaptionedImage(number, f"{number:012d}.jpg", split, tuple(tuple(caption.split()) for caption in captions))


IMAGES = [image(k, *(f"a picture of thing number {k} in version {version}" for version in range(5))) for k in range(40)]


def test_the_papers_example_is_cut_as_in_the_paper() -> None:
    words = ["a", "close", "up", "of", "flowers", "and", "plants", "inside", "of", "a", "bowl"]
    assert cut_blank(words, 50) == (
        ("a", "close"),
        ("up", "of", "flowers", "and", "plants", "inside"),
        ("of", "a", "bowl"),
    )


@given(st.integers(0, 60), st.integers(1, 99))
def test_a_cut_loses_the_rounded_share_from_the_middle_or_is_refused(length: int, removed: int) -> None:
    words = [f"w{k}" for k in range(length)]
    wanted = math.floor(length * removed / 100 + 0.5 + 1e-12)
    parts = cut_blank(words, removed)
    if parts is None:
        assert wanted == 0 or length - wanted < 2
        return
    before, blank, after = parts
    assert [*before, *blank, *after] == words
    assert len(blank) == wanted >= 1
    assert len(after) - len(before) in (0, 1)
    assert before


@pytest.mark.parametrize("removed", [0, 100, -5, 25.0, True])
def test_a_share_that_is_no_percentage_is_refused(removed: object) -> None:
    with pytest.raises(ValueError, match="`removed` must be a whole percentage"):
        cut_blank(["a", "b", "c"], removed)  # type: ignore[arg-type]


@given(st.integers(0, 5), st.integers(1, 40), st.randoms(use_true_random=False))
def test_the_caption_of_a_picture_depends_on_neither_limit_nor_order(
    seed: int, limit: int, shuffler: random.Random
) -> None:
    whole = {picture.image_id: words for picture, words in draw_captions(IMAGES, seed=seed)}
    shuffled = list(IMAGES)
    shuffler.shuffle(shuffled)
    part = draw_captions(shuffled, seed=seed, limit=limit)
    assert len(part) == limit
    assert all(whole[picture.image_id] == words for picture, words in part)
    assert [p.image_id for p, _ in part] == list(whole)[:limit]


def test_every_caption_is_drawn_by_some_seed_and_seeds_differ() -> None:
    drawn = {seed: next(words for _, words in draw_captions(IMAGES[:1], seed=seed)) for seed in range(60)}
    assert set(drawn.values()) == set(IMAGES[0].captions)


def test_short_captions_are_skipped_and_counted() -> None:
    captions = draw_captions([image(1, "a cat"), image(2, "a black cat sits on a very old mat")])
    cut = caption_examples(captions, removed=75)
    assert cut.skipped == 1
    assert [example.key for example in cut.examples] == [2]
    assert cut.examples[0].filled(("x",)) == ("a", "x", "mat")


def test_bad_inputs_are_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"^no caption is long enough to lose 50 % of its words: 1 tried$"):
        caption_examples(draw_captions([image(1, "cat")]), removed=50)
    assert draw_captions(IMAGES, limit=41) == draw_captions(IMAGES)
    with pytest.raises(ValueError, match=r"^`limit` must be at least 1, but is 0$"):
        draw_captions(IMAGES, limit=0)
    with pytest.raises(ValueError, match="must have distinct ids"):
        draw_captions([IMAGES[0], IMAGES[0]])


def madlib(number: int, left: str, blank: str, right: str, split: str = "test") -> Madlib:
    return Madlib(number, 7, 12, split, left, right, (blank, "other"))


def test_a_madlib_is_a_sentence_whose_blank_is_its_first_answer() -> None:
    madlibs = [
        madlib(1, "The man is", "sitting on", "the chair."),
        madlib(2, "", "sitting on", "the chair."),
        madlib(3, "The man is", "on", "the chair.", split="train"),
    ]
    cut = madlibs_examples(madlibs, split="test")
    assert cut.skipped == 1
    (example,) = cut.examples
    assert (example.before, example.blank, example.after) == (
        ("the", "man", "is"),
        ("sitting", "on"),
        ("the", "chair"),
    )
    with pytest.raises(ValueError, match="'val' has none"):
        madlibs_examples(madlibs, split="val")
