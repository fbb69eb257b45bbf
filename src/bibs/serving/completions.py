"""Fill in the middle as other servers have it: `prompt`, a blank, `suffix`. A token is a word."""

from __future__ import annotations

import json
import math
import re
import time
import uuid
from collections.abc import Sequence
from typing import Any

from bibs.infiller import Completion
from bibs.text import escape, tokenize

from .checks import RefusedError
from .schemas import CompletionRequest, FillRequest
from .service import Found
from .settings import Limits

MAX_TOKENS = 16
"""As other servers have it, unless told."""

NAMES = {"template": "prompt", "num_return_sequences": "n", "alternatives": "logprobs", "max_length": "max_tokens"}
"""What an option is called here."""


def to_fill(asked: CompletionRequest, limits: Limits) -> FillRequest:
    prompts = [asked.prompt] if isinstance(asked.prompt, str) else asked.prompt
    return FillRequest(
        template=[_template(prompt, asked.suffix or "") for prompt in prompts],
        max_length=min(asked.max_tokens or MAX_TOKENS, limits.blank_words),
        num_return_sequences=asked.n or 1,
        alternatives=asked.logprobs,
    )


def _template(prompt: str, suffix: str) -> str:
    """A blank that stands apart from the words around it."""
    left = " " if prompt and not prompt[-1].isspace() and prompt[-1] not in "([{" else ""
    right = " " if suffix and not suffix[0].isspace() and suffix[0] not in ",.;:!?)]}" else ""
    return f"{escape(prompt)}{left}___{right}{escape(suffix)}"


def answer(asked: CompletionRequest, found: Found, model: str) -> dict[str, Any]:
    prompts = [asked.prompt] if isinstance(asked.prompt, str) else asked.prompt
    choices: list[dict[str, Any]] = []
    for prompt, completions in zip(prompts, found.results, strict=True):
        if isinstance(completions, str):
            raise RefusedError(by_other_names(completions))
        choices += [_choice(asked, prompt, completion) for completion in completions]
    used = sum(len(tokenize(text)) for text in (*prompts, asked.suffix or ""))
    made = sum(len(tokenize(span)) for each in found.results for completion in each for span in _spans(completion))
    return {
        "id": f"cmpl-{uuid.uuid4().hex}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": model,
        "choices": [{"index": index, **choice} for index, choice in enumerate(choices)],
        "usage": {"prompt_tokens": used, "completion_tokens": made, "total_tokens": used + made},
    }


def _spans(completion: Completion | str) -> Sequence[str]:
    return completion.spans if isinstance(completion, Completion) else ()


def _choice(asked: CompletionRequest, prompt: str, completion: Completion) -> dict[str, Any]:
    text = completion.text[len(prompt) : len(completion.text) - len(asked.suffix or "")]
    stops = [asked.stop] if isinstance(asked.stop, str) else asked.stop or []
    end = min([text.find(stop) for stop in stops if stop and stop in text], default=len(text))
    shown = prompt + text[:end] if asked.echo else text[:end]
    logprobs = None if asked.logprobs is None else _logprobs(completion, len(prompt) + end)
    return {"text": shown, "logprobs": logprobs, "finish_reason": "stop"}


def _logprobs(completion: Completion, end: int) -> dict[str, Any]:
    """log P(word | all others) of the words that begin before `end`."""
    rows: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    offset = 0
    for word in completion.words:
        offset += len(word.before)
        if word.blank is not None and offset < end:
            own = math.log(word.probability) if word.probability else None
            others = {other.text: math.log(other.probability) for other in word.alternatives}
            rows["tokens"].append(word.text)
            rows["token_logprobs"].append(own)
            rows["top_logprobs"].append(({} if own is None else {word.text: own}) | others)
            rows["text_offset"].append(offset)
        offset += len(word.text)
    return rows


def as_events(body: dict[str, Any]) -> str:
    """The same as a stream of server-sent events, one per choice."""
    parts = [{**body, "choices": [choice], "usage": None} for choice in body["choices"]]
    return "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + "data: [DONE]\n\n"


def by_other_names(message: str) -> str:
    return re.sub(r"`(\w+)", lambda name: f"`{NAMES.get(name[1], name[1])}", message)
