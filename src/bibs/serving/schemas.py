"""What is asked and what is answered, as the OpenAPI description has it. Bounds that `Infiller` checks stand there."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema

from bibs.baselines import BaselineSettings
from bibs.lengths import LengthSettings
from bibs.search import Settings

from .settings import Limits

SEARCH, LENGTHS, BASELINE, LIMITS = Settings(), LengthSettings(), BaselineSettings(), Limits()
LONGEST_WORD = 100
LARGEST = 2**31 - 1

Template = Annotated[str, Field(max_length=LIMITS.characters)]
Single = Annotated[str, Field(max_length=LONGEST_WORD)]
Phrases = Annotated[list[Single], Field(max_length=100)]
Score = Annotated[float | None, Field(description="A log probability; null is minus infinity.")]


class FillRequest(BaseModel):
    """A template or a list, and every option of `Infiller` under its own name."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        json_schema_extra={
            "examples": [
                {"template": "a man _ _ _ a wave"},
                {"template": ["a dog ___ the beach", "two _ on a _"], "num_return_sequences": 3, "alternatives": 5},
            ]
        },
    )

    template: Template | Annotated[list[Template], Field(min_length=1)]
    image: str | list[str | None] | None = Field(
        default=None, description="base64 or a data URL; a list has one per template"
    )
    method: str = "bibs"
    must_include: Phrases | list[Phrases] = Field(default=[], description="up to four words, or fewer longer phrases")
    bad_words: list[Single] = Field(default=[], description="words that never fill a blank")
    num_beams: int = Field(default=SEARCH.num_beams, ge=1)
    num_rounds: int = Field(default=SEARCH.num_rounds, ge=0)
    num_return_sequences: int = Field(default=SEARCH.num_return_sequences, ge=1)
    diversity_penalty: float = Field(default=0.0, ge=0)
    start: Literal["both", "backward", "forward"] = SEARCH.start
    rescore: bool = SEARCH.rescore
    lookup: bool = SEARCH.lookup
    batch_size: int | None = Field(default=SEARCH.batch_size, ge=1)
    max_memory: int = Field(default=SEARCH.max_memory, ge=1)
    lengths: Literal["unknown", "paper"] = LENGTHS.lengths
    max_length: int = Field(default=LENGTHS.max_length, ge=1)
    num_lengths: int | None = Field(default=LENGTHS.num_lengths, ge=1, description="null: all")
    seed: int = Field(default=BASELINE.seed, ge=0, le=LARGEST)
    shortlist: int = Field(default=BASELINE.shortlist, ge=1)
    max_fills: int = Field(default=LIMITS.fills, ge=1)
    trace: bool = SEARCH.trace
    alternatives: int | None = Field(default=None, ge=0)

    def options(self) -> dict[str, Any]:
        """What all templates of a call share, as `Infiller` takes it."""
        return self.model_dump(exclude={"template", "image", "must_include"})


class CompletionRequest(BaseModel):
    """Fill in the middle. What other servers know and this one does not (`temperature`, ...) is let through."""

    model_config = ConfigDict(
        extra="allow",
        strict=True,
        allow_inf_nan=False,
        json_schema_extra={"examples": [{"model": "coco", "prompt": "a man", "suffix": "a wave", "max_tokens": 3}]},
    )

    model: str = Field(default="", max_length=200)
    prompt: Template | Annotated[list[Template], Field(min_length=1)]
    suffix: Template | None = None
    max_tokens: int | None = Field(default=16, ge=1, le=LARGEST)
    n: int | None = Field(default=1, ge=1)
    logprobs: int | None = Field(default=None, ge=0)
    echo: bool | None = False
    stop: str | Phrases | None = None
    stream: bool | None = False
    seed: int | None = None


class AlternativeAnswer(BaseModel):
    text: str
    probability: float


class WordAnswer(BaseModel):
    before: str
    text: str
    known: bool
    blank: int | None
    forward: Score
    backward: Score
    probability: float | None
    alternatives: list[AlternativeAnswer]


class PartialFill(BaseModel):
    words: list[str]
    score: Score


class PassAnswer(BaseModel):
    step: int
    direction: Literal["forward", "backward"]
    words: list[str]
    score: Score
    ranking_score: Score
    frontiers: list[list[PartialFill]]


class CompletionAnswer(BaseModel):
    text: str
    spans: list[str]
    score: Score
    ranking_score: Score
    forward_score: Score
    backward_score: Score
    rounds: int
    words: list[WordAnswer] | None
    start_score: Score
    end_score: Score
    trace: list[PassAnswer] | None


class Filled(BaseModel):
    template: str
    warning: str | None
    completions: list[CompletionAnswer]


class NotFilled(BaseModel):
    template: str
    error: str


class FillAnswer(BaseModel):
    model: str
    precision: str
    results: list[Filled | NotFilled]


class ErrorAnswer(BaseModel):
    error: str


class ErrorMessage(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class CompletionErrorAnswer(BaseModel):
    error: ErrorMessage


class LogProbs(BaseModel):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class Choice(BaseModel):
    index: int
    text: str
    logprobs: LogProbs | None
    finish_reason: str | None


class CompletionsAnswer(BaseModel):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: dict[str, int] | None = None


class MethodAnswer(BaseModel):
    name: str
    description: str
    samples: bool


class MethodsAnswer(BaseModel):
    methods: list[MethodAnswer]
    limits: dict[str, float]


class ModelAnswer(BaseModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    precision: str
    vocabulary: int
    pictures: bool
    why_no_pictures: str | None


class ModelsAnswer(BaseModel):
    object: Literal["list"]
    data: list[ModelAnswer]


class StatusAnswer(BaseModel):
    status: str


Upload = Annotated[bytes, WithJsonSchema({"type": "string", "format": "binary"})]


class FillForm(BaseModel):
    """A picture as an upload."""

    request: FillRequest
    image: Upload | None = None


EITHER = {
    "template": "a text or a list of texts",
    "prompt": "a text or a list of texts",
    "image": "base64, or a list with base64 or null for each template",
    "must_include": "a list of words, or a list of such lists",
    "stop": "a text or a list of texts",
}
"""What a field may be that may be several things."""

PLAIN = {
    "valid integer": "whole number",
    "valid boolean": "true or false",
    "a true or": "true or",
    "valid array": "list",
    "valid ": "",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
}
"""Plainer words."""


def one_line(error: ValidationError) -> str:
    """The first thing that is wrong, by the name that the user wrote."""
    errors = error.errors(include_url=False, include_context=False)
    if errors[0]["type"] == "json_invalid":
        return f"the body must be JSON, but is not: {errors[0]['msg'].removeprefix('Invalid JSON: ')}"
    if not errors[0]["loc"]:
        return f"the body must be a JSON object, but is {shortened(errors[0]['input'])}"
    name = str(errors[0]["loc"][0])
    if errors[0]["type"] == "missing":
        return f"`{name}` must be given"
    if errors[0]["type"] == "extra_forbidden":
        return f"`{name[:60]}` is no option"
    first = max((each for each in errors if each["loc"][0] == name), key=lambda each: len(each["loc"]))
    # Between the numbers of the place stand kinds of values (`str`, `list[str]`), which the user did not write.
    place = name + "".join(f"[{step}]" for step in first["loc"][1:] if isinstance(step, int))
    rule = first["msg"].removeprefix("Input ").removeprefix("String ").removeprefix("List ")
    rule = rule.replace("should ", "must ", 1)
    for theirs, ours in PLAIN.items():
        rule = rule.replace(theirs, ours)
    verb = "is"
    if name in EITHER and "type" in first["type"]:
        verb = "is" if place == name else "holds"
        place, rule = name, f"must be {EITHER[name]}"
    return f"`{place}` {rule}, but {verb} {shortened(first['input'])}"


def shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
