"""The service keeps to its own description: schemathesis makes requests from it, and judges the answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode, checks

from bibs.methods import METHODS, Options
from bibs.serving import ServiceSettings, create_app
from bibs.serving.description import DESCRIPTIONS
from bibs.serving.schemas import CompletionRequest, FillRequest
from served import counted, post, served


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served(counted()) as (address, _):
        yield address


SCHEMA = schemathesis.openapi.from_dict(create_app(counted()).openapi())
OPERATIONS = [found.ok() for found in SCHEMA.get_all_operations()]
RIGHT, WRONG = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
CASES = [
    pytest.param(operation, mode, id=f"{operation.label}, {mode.value}")
    for operation in OPERATIONS
    for mode in ([RIGHT, WRONG] if operation.body else [RIGHT])
]
# What fits the description may still be refused: not every text is a template, and not every cost is allowed.
EXCLUDED = [checks.positive_data_acceptance]


@pytest.mark.parametrize(("operation", "mode"), CASES)
def test_answers_are_those_that_the_description_promises(address, operation, mode):
    @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(operation.as_strategy(generation_mode=mode))
    def ask(case: schemathesis.Case) -> None:
        case.call_and_validate(base_url=address, excluded_checks=EXCLUDED)

    ask()


@pytest.mark.parametrize("stream", [False, True])
def test_completions_are_as_described_streamed_or_not(address, stream):
    """A stream is seldom drawn above."""
    (operation,) = (found for found in OPERATIONS if found.path == "/v1/completions")
    body = {"prompt": "a man", "suffix": "a wave", "stream": stream}
    response = operation.Case(body=body, media_type="application/json").call_and_validate(base_url=address)
    assert response.headers["content-type"][0].startswith("text/event-stream" if stream else "application/json")


def test_every_option_of_the_library_can_be_asked_for():
    """But how lengths compare, which belongs to the model."""
    assert set(Options.__annotations__) - {"length_prior"} <= set(FillRequest.model_fields)


def test_every_method_has_a_line_of_its_own():
    assert list(DESCRIPTIONS) == list(METHODS)


@pytest.mark.parametrize(("path", "kind"), [("/v1/fill", FillRequest), ("/v1/completions", CompletionRequest)])
def test_the_examples_are_answered(path, kind):
    with served(counted()) as (address, _):
        examples: list[Any] = kind.model_config["json_schema_extra"]["examples"]
        assert examples
        assert [post(address, example, path).status_code for example in examples] == [200] * len(examples)


def test_a_key_is_part_of_the_description():
    plain, guarded = (create_app(counted(), ServiceSettings(api_key=key)).openapi() for key in ("", "secret"))
    assert "securitySchemes" not in plain["components"]
    assert guarded["paths"]["/v1/fill"]["post"]["security"] == [{"key": []}]
    assert "security" not in guarded["paths"]["/healthz"]["get"]


def test_nothing_foreign_is_loaded_by_a_page_of_documentation():
    app = create_app(counted())
    assert app.docs_url is None
    assert app.redoc_url is None
