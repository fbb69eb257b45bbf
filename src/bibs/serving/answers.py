"""Completions as JSON. Minus infinity, which JSON does not have, is null."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bibs.infiller import Completion
from bibs.search import TracedPass
from bibs.text import Vocabulary
from bibs.words import Word


def filled(
    template: str, completions: Sequence[Completion], asked: dict[str, Any], words: Vocabulary
) -> dict[str, Any]:
    """What was found for one template; `asked` has the options."""
    wanted, warning = asked["num_return_sequences"], None
    if not completions:
        warning = (
            "nothing was found: no fill has a probability above 0 (fewer `bad_words` or `must_include`, or other "
            "lengths, may help)"
        )
    elif len(completions) < wanted:
        warning = f"`num_return_sequences` is {wanted}, but only {len(completions)} distinct fills were found"
    rows = [_completion(completion, asked, words) for completion in completions]
    return {"template": template, "warning": warning, "completions": rows}


def _completion(completion: Completion, asked: dict[str, Any], words: Vocabulary) -> dict[str, Any]:
    return {
        "text": completion.text,
        "spans": list(completion.spans),
        "score": _number(completion.score),
        "ranking_score": _number(completion.ranking_score),
        "forward_score": _number(completion.forward_score),
        "backward_score": _number(completion.backward_score),
        "rounds": completion.rounds,
        "words": None if asked["alternatives"] is None else list(map(_word, completion.words)),
        "start_score": _number(completion.start_score),
        "end_score": _number(completion.end_score),
        "trace": _passes(completion.trace, asked["start"] == "both", words) if asked["trace"] else None,
    }


def _word(word: Word) -> dict[str, Any]:
    return {
        "before": word.before,
        "text": word.text,
        "known": word.known,
        "blank": word.blank,
        "forward": _number(word.forward),
        "backward": _number(word.backward),
        "probability": word.probability,
        "alternatives": [each._asdict() for each in word.alternatives],
    }


def _passes(trace: Sequence[TracedPass], in_pairs: bool, words: Vocabulary) -> list[dict[str, Any]]:
    """From both ends, the two passes of a step hear the same; otherwise each pass is a step of its own."""
    step, seen = -1, set[str]()
    passes = []
    for each in trace:
        if not in_pairs or not seen or each.direction in seen:
            step, seen = step + 1, set()
        seen.add(each.direction)
        frontiers = [
            [{"words": words.decode(tokens), "score": _number(score)} for tokens, score in frontier]
            for frontier in each.frontiers
        ]
        passes.append(
            {
                "step": step,
                "direction": each.direction,
                "words": words.decode(each.tokens[1:-1]),
                "score": _number(each.score),
                "ranking_score": _number(each.ranking_score),
                "frontiers": frontiers,
            }
        )
    return passes


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
