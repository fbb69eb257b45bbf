"""`POST /v1/fill` answers what `Infiller` answers, alone and in company; what is wrong is said in one line."""

from __future__ import annotations

import base64
import io
import json
import math
import threading
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from PIL import Image

from bibs import Completion, Infiller
from bibs.methods import METHODS
from bibs.serving import Limits, ServiceSettings
from served import CLIENT, PATIENCE, counted, get, held, metric, post, seeing, served, wait_until


@pytest.fixture(scope="module")
def infiller() -> Infiller:
    return counted()


@pytest.fixture(scope="module")
def address(infiller) -> Iterator[str]:
    with served(infiller) as (address, _):
        yield address


def expected(completion: Completion, *, words: bool = False) -> dict[str, Any]:
    """A completion as JSON must show it, but for its trace."""
    shown: dict[str, Any] = {
        name: getattr(completion, name)
        for name in ("text", "score", "ranking_score", "forward_score", "backward_score", "rounds")
    }
    shown |= {"spans": list(completion.spans), "words": None, "start_score": None, "end_score": None}
    if words:
        shown |= {"start_score": completion.start_score, "end_score": completion.end_score}
        shown["words"] = [
            {**vars(word), "alternatives": [each._asdict() for each in word.alternatives]} for word in completion.words
        ]
    return shown


def close_to(value: Any) -> Any:
    """Approximately the same numbers, in the same places."""
    if isinstance(value, dict):
        return {key: close_to(each) for key, each in value.items()}
    if isinstance(value, list):
        return [close_to(each) for each in value]
    return pytest.approx(value, abs=1e-5) if isinstance(value, float) else value


def completions_of(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    (result,) = response.json()["results"]
    return [{name: value for name, value in each.items() if name != "trace"} for each in result["completions"]]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_answers_as_the_library_does(address, infiller, method):
    template = "A man _ a wave!"
    found = completions_of(post(address, {"template": template, "method": method, "alternatives": 3}))
    assert found == close_to([expected(each, words=True) for each in infiller(template, method=method, alternatives=3)])


OPTIONS: list[dict[str, Any]] = [
    {"num_beams": 2, "num_rounds": 1, "start": "backward"},
    {"num_return_sequences": 3, "diversity_penalty": 2.0},
    {"must_include": ["beach"], "bad_words": ["riding"]},
    {"lengths": "paper", "max_length": 5},
    {"num_lengths": None, "max_length": 4},
    {"rescore": False, "lookup": False, "batch_size": 1, "max_memory": 16},
    {"method": "gsn", "seed": 7},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_option_reaches_the_search(address, infiller, options):
    template = "a ___ the beach"
    found = completions_of(post(address, {"template": template, **options}))
    assert found == close_to([expected(each) for each in infiller(template, **options)])


def test_a_list_has_its_answers_and_its_errors_in_order(address, infiller):
    templates = ["a _ wave", "a __ wave", "", "the ___"]
    response = post(address, {"template": templates})
    assert response.status_code == 200
    results = response.json()["results"]
    assert [result["template"] for result in results] == templates
    assert ["error" in result for result in results] == [False, True, True, False]
    assert results[0]["completions"][0]["text"] == infiller("a _ wave")[0].text
    assert results[3]["completions"][0]["text"] == infiller("the ___")[0].text
    assert "`__` is no blank" in results[1]["error"]


def test_words_that_must_appear_may_be_given_per_template(address, infiller):
    asked = {"template": ["a ___", "the ___"], "must_include": [["wave"], ["beach", "dog"]]}
    found = [result["completions"][0]["text"] for result in post(address, asked).json()["results"]]
    assert "wave" in found[0]
    assert {"beach", "dog"} <= set(found[1].split())


def test_a_trace_shows_every_pass_in_words(address, infiller):
    template = "a _ _ a wave"
    (completion,) = infiller(template, trace=True)
    (found,) = post(address, {"template": template, "trace": True}).json()["results"][0]["completions"]
    decode = infiller.vocabulary.decode
    assert len(found["trace"]) == len(completion.trace) > 2
    for shown, each in zip(found["trace"], completion.trace, strict=True):
        assert shown["direction"] == each.direction
        assert shown["words"] == decode(each.tokens[1:-1])
        assert shown["score"] == pytest.approx(each.score)
        for frontier, own in zip(shown["frontiers"], each.frontiers, strict=True):
            assert [row["words"] for row in frontier] == [decode(tokens) for tokens, _ in own]
            assert [row["score"] for row in frontier] == pytest.approx([score for _, score in own])
    assert [row["step"] for row in found["trace"]] == [number // 2 for number in range(len(found["trace"]))]
    one_way = post(address, {"template": template, "trace": True, "start": "backward"}).json()["results"][0]
    assert [row["step"] for row in one_way["completions"][0]["trace"]] == list(
        range(len(one_way["completions"][0]["trace"]))
    )


def test_a_search_without_passes_has_an_empty_trace(address):
    answer = post(address, {"template": "a _", "trace": True, "method": "forward"}).json()
    assert answer["results"][0]["completions"][0]["trace"] == []


def test_less_than_asked_for_is_said(address):
    (result,) = post(address, {"template": "the dog", "num_return_sequences": 3}).json()["results"]
    assert result["warning"] == "`num_return_sequences` is 3, but only 1 distinct fills were found"
    (result,) = post(address, {"template": "the dog"}).json()["results"]
    assert result["warning"] is None


def test_requests_that_wait_together_are_decoded_together_and_answered_as_if_alone():
    infiller, model = held()
    templates = [
        f"{first} {middle} ___ {last}" for first in ("a", "the") for middle in ("man", "dog") for last in ("", "beach")
    ]
    asked = [
        {"template": template, "alternatives": 2, "num_beams": beams} for template in templates for beams in (2, 5)
    ]
    alone = [infiller(each["template"], alternatives=2, num_beams=each["num_beams"]) for each in asked]
    with served(infiller) as (address, _), ThreadPoolExecutor(len(asked) + 1) as pool:
        before = batches(address)
        model.hold()
        first = pool.submit(post, address, {"template": "a _"})
        assert model.entered.wait(60)
        futures = [pool.submit(post, address, each) for each in asked]
        wait_until(lambda: metric(address, "bibs_waiting") == len(asked) + 1)
        model.gate.set()
        assert first.result().status_code == 200
        found = [completions_of(future.result()) for future in futures]
        decoded = batches(address) - before
    assert found == close_to([[expected(each, words=True) for each in completions] for completions in alone])
    assert decoded <= 1 + 2 + 2  # one that came first, two kinds of options, and a straggler of each


def test_one_request_that_fails_leaves_the_others_of_its_batch_their_answers(caplog):
    infiller, model = held()
    with served(infiller) as (address, _), ThreadPoolExecutor(4) as pool:
        model.hold()
        first = pool.submit(post, address, {"template": "a _"})
        assert model.entered.wait(60)
        asked = ["a man _", "a horse _", "the _"]
        futures = [pool.submit(post, address, {"template": template}) for template in asked]
        wait_until(lambda: metric(address, "bibs_waiting") == 4)
        model.gate.set()
        answers = [future.result() for future in futures]
        assert [answer.status_code for answer in (first.result(), *answers)] == [200, 200, 500, 200]
        assert answers[1].json() == {"error": "the service failed to answer; its log says more"}
        assert post(address, {"template": "the _"}).json() == answers[2].json()
    faults = [record.fields for record in caplog.records if record.getMessage() == "fault"]
    assert [(fault["error"], fault["path"]) for fault in faults] == [("RuntimeError", "/v1/fill")]
    assert "secret" not in str(faults)


def batches(address: str) -> int:
    return int(metric(address, "bibs_batch_examples_count"))


# --- pictures


def png(colour: str, size: tuple[int, int] = (8, 8)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def eyes() -> Iterator[Any]:
    infiller, encoder = seeing()
    with served(infiller) as (address, _):
        yield address, infiller, encoder


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_a_picture_comes_as_base64_as_a_data_url_or_as_an_upload(eyes):
    address, infiller, encoder = eyes
    data = png("red")
    alone = infiller("a _ on _", images=data)
    assert alone[0].score != infiller("a _ on _")[0].score
    encoder.encoded = 0
    answers = [
        post(address, {"template": "a _ on _", "image": text(data)}),
        post(address, {"template": "a _ on _", "image": f"data:image/png;base64,{text(data)}"}),
        CLIENT.post(
            f"{address}/v1/fill",
            data={"request": json.dumps({"template": "a _ on _"})},
            files={"image": ("red.png", data, "image/png")},
        ),
    ]
    assert [completions_of(each) for each in answers] == close_to([[expected(each) for each in alone]] * 3)
    assert encoder.encoded == 1


def test_each_template_of_a_list_may_have_its_own_picture(eyes):
    address, infiller, _ = eyes
    asked = {"template": ["a _", "a _", "a _", "a _"], "image": [text(png("red")), None, "?", text(png("blue"))]}
    results = post(address, asked).json()["results"]
    alone = [infiller("a _", images=image)[0].score for image in (png("red"), None, png("blue"))]
    assert len({round(score, 3) for score in alone}) == 3
    assert [results[place]["completions"][0]["score"] for place in (0, 1, 3)] == pytest.approx(alone, abs=1e-5)
    assert results[2]["error"] == "`image` must be base64 or a data URL, but cannot be decoded"


def broken_png(width: int) -> bytes:
    """A header that promises a square of so many pixels, and little behind it: who decodes it finds it broken."""
    data = bytearray(png("red"))
    data[16:24] = width.to_bytes(4, "big") * 2
    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4, "big")
    return bytes(data[:60])


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ("?", "`image` must be base64 or a data URL, but cannot be decoded"),
        ("", "`image` must be a picture (JPEG, PNG, WEBP, GIF, BMP), but cannot be read as one"),
        (text(b"no picture"), "`image` must be a picture (JPEG, PNG, WEBP, GIF, BMP), but cannot be read as one"),
        (text(png("red")[:50]), "`image` must be a picture (JPEG, PNG, WEBP, GIF, BMP), but cannot be read as one"),
        (text(png("red", (5000, 4000))), "`image` must have at most 16777216 pixels, but has 20000000"),
        ([], "`image` must be one, or one per template (1), but there are 0"),
        (["", ""], "`image` must be one, or one per template (1), but there are 2"),
    ],
)
def test_what_is_wrong_with_a_picture_is_said(eyes, image, said):
    response = post(eyes[0], {"template": "a _", "image": image})
    assert (response.status_code, response.json()) == (422, {"error": said})


def test_a_picture_is_measured_before_it_is_decoded(eyes):
    small, large = (post(eyes[0], {"template": "a _", "image": text(broken_png(size))}) for size in (1_000, 10_000))
    assert small.json()["error"].endswith("but cannot be read as one")
    assert large.json()["error"] == "`image` must have at most 16777216 pixels, but has 100000000"


def test_the_deadline_counts_the_reading_of_pictures(monkeypatch):
    infiller, encoder = seeing()
    begun, gate = threading.Event(), threading.Event()
    encode = encoder.encode

    def encode_once_told(images):
        begun.set()
        assert gate.wait(PATIENCE)
        return encode(images)

    with served(infiller, ServiceSettings(limits=Limits(deadline_seconds=0.5))) as (address, _):
        monkeypatch.setattr(encoder, "encode", encode_once_told)
        try:
            late = post(address, {"template": "a _", "image": text(png("red"))})
            assert begun.is_set()
            assert (late.status_code, late.json()) == (504, {"error": "there was no answer within 0.5 seconds"})
        finally:
            gate.set()
        assert post(address, {"template": "a _"}).status_code == 200


def test_a_model_of_words_alone_says_that_it_sees_nothing(address):
    response = post(address, {"template": "a _", "image": text(png("red"))})
    assert response.json() == {"error": "`image` must be null: the model was trained on words alone"}
    model = get(address, "/v1/models").json()["data"][0]
    assert (model["pictures"], model["why_no_pictures"]) == (False, response.json()["error"])


def test_minus_infinity_is_null():
    """A sentence without a blank comes back even where a model thinks it impossible."""
    from bibs import MatrixModel, Vocabulary

    never = MatrixModel([[0.0, 0.0, 1.0, 0.0]] * 4)
    infiller = Infiller(forward=never, backward=never, vocabulary=Vocabulary(["a"]))
    assert infiller("a")[0].score == -math.inf
    with served(infiller) as (address, _):
        (found,) = completions_of(post(address, {"template": "a", "alternatives": 1}))
    assert (found["score"], found["words"][0]["forward"], found["words"][0]["known"]) == (None, None, True)
