"""`POST /v1/completions`, asked by the client package that most people have."""

from __future__ import annotations

import math
from collections.abc import Iterator

import httpx
import openai
import pytest

from bibs import Infiller
from bibs.serving import ServiceSettings
from served import counted, post, served


@pytest.fixture(scope="module")
def infiller() -> Infiller:
    return counted()


@pytest.fixture(scope="module")
def address(infiller) -> Iterator[str]:
    with served(infiller, ServiceSettings(name="small", api_key="secret")) as (address, _):
        yield address


@pytest.fixture(scope="module")
def client(address) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{address}/v1", api_key="secret", max_retries=0) as client:
        yield client


def test_the_middle_is_filled_as_the_library_fills_it(client, infiller):
    answer = client.completions.create(model="small", prompt="A man", suffix="a wave.", max_tokens=3)
    (choice,) = answer.choices
    (completion,) = infiller("A man ___ a wave.", max_length=3)
    assert "A man" + choice.text + "a wave." == completion.text
    assert (choice.finish_reason, choice.index, choice.logprobs) == ("stop", 0, None)
    assert (answer.object, answer.model) == ("text_completion", "small")
    made = len(completion.spans[0].split())
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (
        4,
        made,
        4 + made,
    )


@pytest.mark.parametrize(
    ("prompt", "suffix", "begins", "ends"),
    [
        ("a man ", " a wave", "", ""),
        ("a man", "a wave", " ", " "),
        ("a man (", ") a wave", "", ""),
        ("a man", ", a wave", " ", ""),
        ("a snake_case", "'s wave", " ", " "),
        (r"\_", "{2,3} wave", " ", " "),
        ("a man", None, " ", ""),
        ("", "a wave", "", " "),
        ("", "", "", ""),
        ("un café ☃ 👍", "👍 wave", " ", " "),
    ],
)
def test_prompt_text_and_suffix_read_as_one(client, prompt, suffix, begins, ends):
    text = client.completions.create(model="small", prompt=prompt, suffix=suffix, max_tokens=2).choices[0].text
    words = text.removeprefix(begins).removesuffix(ends)
    assert text == begins + words + ends
    assert words == words.strip()
    assert 1 <= len(words.split()) <= 2


def test_several_answers_for_several_prompts_come_in_order(client, infiller):
    answer = client.completions.create(model="small", prompt=["a man", "the dog"], suffix="beach", max_tokens=4, n=2)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    expected = [
        completion.text
        for prompt in ("a man", "the dog")
        for completion in infiller(f"{prompt} ___ beach", max_length=4, num_return_sequences=2)
    ]
    prompts = ["a man", "a man", "the dog", "the dog"]
    found = [prompt + choice.text + "beach" for prompt, choice in zip(prompts, answer.choices, strict=True)]
    assert found == expected


def test_log_probabilities_are_those_of_a_word_given_all_others(client, infiller):
    prompt, suffix = "a man", "a wave"
    (choice,) = client.completions.create(
        model="small", prompt=prompt, suffix=suffix, max_tokens=3, logprobs=2, echo=True
    ).choices
    (completion,) = infiller("a man ___ a wave", max_length=3, alternatives=2)
    filled = [word for word in completion.words if word.blank == 0]
    assert choice.logprobs is not None
    assert choice.logprobs.tokens == [word.text for word in filled]
    assert choice.logprobs.token_logprobs == pytest.approx([math.log(word.probability) for word in filled])
    for row, word in zip(choice.logprobs.top_logprobs or [], filled, strict=True):
        expected = {word.text: word.probability, **dict(word.alternatives)}
        assert row == pytest.approx({text: math.log(value) for text, value in expected.items()})
    offsets = choice.logprobs.text_offset or []
    assert choice.text.startswith(prompt)
    for offset, token in zip(offsets, choice.logprobs.tokens or [], strict=True):
        assert choice.text[offset : offset + len(token)] == token


def test_a_stop_cuts_the_text_and_what_is_said_of_it(client):
    asked = {"model": "small", "prompt": "a man", "suffix": "a wave", "max_tokens": 4, "logprobs": 0}
    whole = client.completions.create(**asked).choices[0]
    last = whole.text.split()[-1]
    assert len(whole.text.split()) > 1
    cut = client.completions.create(**asked, stop=["nowhere", last]).choices[0]
    assert cut.text == whole.text[: whole.text.index(last)]
    assert cut.logprobs.tokens == whole.text.split()[:-1]


def test_a_stream_has_the_same_texts(client):
    asked = {"model": "small", "prompt": "a man", "suffix": "a wave", "max_tokens": 3, "n": 2}
    whole = [choice.text for choice in client.completions.create(**asked).choices]
    assert [part.choices[0].text for part in client.completions.create(**asked, stream=True)] == whole


def test_what_other_servers_know_is_let_through_and_long_answers_are_cut_short(client):
    answer = client.completions.create(
        model="small",
        prompt="a man",
        max_tokens=5000,
        temperature=0.7,
        top_p=0.9,
        user="me",
        best_of=1,
        presence_penalty=0,
    )
    assert answer.choices[0].text.strip()


def test_the_model_is_found_by_its_name(client):
    assert [model.id for model in client.models.list()] == ["small"]
    assert client.models.retrieve("small").owned_by == "bibs"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("large")
    with pytest.raises(openai.NotFoundError, match="`model` must be 'small', but is 'large'"):
        client.completions.create(model="large", prompt="a")


def test_what_is_wrong_is_said_by_the_names_of_this_interface(client, address):
    with pytest.raises(openai.UnprocessableEntityError, match="`n` must be at least 1, but is 0"):
        client.completions.create(model="small", prompt="a", n=0)
    with pytest.raises(openai.UnprocessableEntityError, match="`logprobs` must be at most 50 here, but is 51"):
        client.completions.create(model="small", prompt="a", logprobs=51)
    with pytest.raises(openai.UnprocessableEntityError, match="`prompt` must hold at most 64 texts, but holds 65"):
        client.completions.create(model="small", prompt=["a"] * 65)
    with pytest.raises(openai.UnprocessableEntityError, match="`prompt` must be a text or a list of texts"):
        client.completions.create(model="small", prompt=[1, 2, 3])
    with pytest.raises(openai.UnprocessableEntityError, match="at most 100 words, but has 151"):
        client.completions.create(model="small", prompt="a " * 150)
    with pytest.raises(openai.AuthenticationError, match="Bearer KEY"):
        client.with_options(api_key="other").completions.create(model="small", prompt="a")
    wrong = post(address, {}, "/v1/completions", headers={"authorization": "Bearer secret"})
    assert wrong.json()["error"]["message"] == "`prompt` must be given"
    assert isinstance(wrong, httpx.Response)
