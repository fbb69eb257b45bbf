"""What is wrong with a request is said in one line, before it queues."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from served import CLIENT, counted, post, served


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served(counted()) as (address, _):
        yield address


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "`template` must be given"),
    ({"template": 3}, "`template` must be a text or a list of texts, but is 3"),
    ({"template": []}, "`template` must be a text or a list of texts, but is []"),
    ({"template": "a __"}, "`__` is no blank"),
    ({"template": " "}, "the template must hold a word or a blank, but is empty"),
    ({"template": "a _", "num_beam": 3}, "`num_beam` is no option"),
    ({"template": "a _", "num_beams": "5"}, "`num_beams` must be a whole number, but is '5'"),
    ({"template": "a _", "num_beams": True}, "`num_beams` must be a whole number, but is True"),
    ({"template": "a _", "num_beams": 0}, "`num_beams` must be at least 1, but is 0"),
    ({"template": "a _", "num_beams": 101}, "`num_beams` must be at most 100 here, but is 101"),
    ({"template": "a _", "num_rounds": 51}, "`num_rounds` must be at most 50 here, but is 51"),
    ({"template": "a _", "method": "best"}, "`method` must be one of bibs, forward"),
    ({"template": "a _", "start": "left"}, "`start` must be 'both', 'backward' or 'forward', but is 'left'"),
    ({"template": "a _", "must_include": ["xyzzy"]}, "`must_include` must hold words that the model knows"),
    ({"template": "a _", "bad_words": ["a b"]}, "`bad_words` must hold single words, but holds 'a b'"),
    (
        {"template": "a ___", "must_include": ["a man", "dog", "the beach"]},
        "`must_include` must hold at most four words",
    ),
    ({"template": "a _ _", "must_include": ["a man is"]}, "must have room for the words of `must_include` (3)"),
    ({"template": "a _'x"}, "a blank that ends in 'x must be filled by a word that the model knows"),
    ({"template": "a _", "must_include": ["man", "dog"]}, "must have room for the words of `must_include` (2)"),
    ({"template": "a _", "must_include": [["man"], ["dog"]]}, "`must_include` must hold one list per template (1)"),
    ({"template": "a _", "must_include": ["man"], "method": "gsn"}, "`must_include` must be empty where `method`"),
    ({"template": "a _", "diversity_penalty": 1.0, "method": "gsn"}, "`diversity_penalty` must be 0 where `method`"),
    ({"template": "a _", "bad_words": "man"}, "`bad_words` must be a list, but is 'man'"),
    ({"template": "a _", "alternatives": 51}, "`alternatives` must be at most 50 here, but is 51"),
    ({"template": "_ " * 101}, "a template must have at most 100 words, but has 101"),
    ({"template": "a ___{0,1} " * 51}, "a template must have at most 100 words, but has 102"),
    ({"template": "a ___ " * 9}, "a template must have at most 8 blanks of unknown length, but has 9"),
    ({"template": "a ___{1,51}"}, "a blank must have at most 50 words here, but may have 51"),
    ({"template": "a ___{60,}"}, "a blank must have at most 50 words here, but may have 60"),
    ({"template": "x" * 10_001}, "`template` must have at most 10000 characters"),
    ({"template": "a ___", "max_length": 51}, "`max_length` must be at most 50 here, but is 51"),
    ({"template": "a ___{25,}", "max_length": 20}, "`max_length` must be at least the 25 words of a blank, but is 20"),
    ({"template": "a ___ b ___", "lengths": "paper"}, "`lengths` must be 'unknown' for several blanks"),
    ({"template": ["a _"] * 65}, "`template` must hold at most 64 texts, but holds 65"),
    ({"template": "a _ _ _ _", "method": "exact"}, "`method` 'exact' must not enumerate more than 10000 fills"),
    (
        {"template": "a _", "num_beams": 100, "num_rounds": 50, "num_return_sequences": 3},
        "must cost at most 10000 rows",
    ),
    ({"template": "___ a ___ a ___", "num_lengths": None}, "must cost at most 10000 rows"),
    ({"template": ["a _"] * 64, "num_beams": 40}, "must cost at most 10000 rows (templates x beams"),
    ({"template": "a ___", "num_beams": 50, "num_rounds": 20, "must_include": ["man", "dog"]}, "10000 rows"),
    ({"template": "a _ _", "num_beams": 10, "num_rounds": 11, "method": "unidirectional-gibbs"}, "10000 rows"),
]


@pytest.mark.parametrize(("asked", "said"), WRONG, ids=[said[:40] for _, said in WRONG])
def test_what_is_wrong_is_said_in_one_line(address, asked, said):
    response = post(address, asked)
    assert response.status_code == 422
    assert set(response.json()) == {"error"}
    assert said in response.json()["error"]
    assert "\n" not in response.json()["error"]


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"", "application/json", 422),
        (b"{", "application/json", 422),
        (b"[" * 100_000, "application/json", 422),
        (b'{"template": "\xff"}', "application/json", 422),
        (b'{"template": "\\ud800 _"}', "application/json", 422),
        (b'{"template": "a _", "diversity_penalty": NaN}', "application/json", 422),
        (b'{"template": "a _", "seed": ' + b"9" * 5000 + b"}", "application/json", 422),
        (b'{"template": "a _"}', "text/plain", 415),
        (b'{"template": "a _"}', "", 415),
        (b"nothing", "multipart/form-data", 400),
        (b"nothing", "multipart/form-data; boundary=x", 400),
        (b"--x\r\n\r\n", "multipart/form-data; boundary=x", 400),
    ],
)
def test_a_body_that_cannot_be_read_is_refused(address, body, kind, status):
    response = CLIENT.post(f"{address}/v1/fill", content=body, headers={"content-type": kind})
    assert response.status_code == status, response.text
    assert list(response.json()) == ["error"]


@pytest.mark.parametrize(
    ("fields", "files", "said"),
    [
        ({"other": "1"}, {"image": b"x"}, "a form must have the fields `request` and `image`, but has `other`"),
        ({}, {"image": b"x"}, "a form must have one field `request`, but has 0"),
        ({"request": "{}"}, {"image": b"x"}, "`template` must be given"),
        ({"request": '{"template": "a _"}', "image": "x"}, {"image": b"x"}, "`image` must be a file, but is a text"),
        ({"request": '{"template": "a _", "image": "eA=="}'}, {"image": b"x"}, "`image` must be an upload or stand in"),
    ],
)
def test_a_form_must_be_whole(address, fields, files, said):
    response = CLIENT.post(f"{address}/v1/fill", data=fields, files=files)
    assert response.status_code == 422
    assert said in response.json()["error"]
