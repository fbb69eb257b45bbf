"""Several answers that differ: each is searched with what the answers before it hold made dearer.

    answer m = argmax over the fills Y not yet given of  score(Y) - diversity_penalty * sum_t n_m(y_t)

where t runs over the free slots, n_m(y) is how many of the answers 1..m-1 hold token y in whatever free slot, and the
score is what the method ranks by. The first answer is the plain one. A partial fill has lost what its tokens have lost,
so the penalty goes along with its running score, and a search finds the penalised best as well as the plain one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from bibs.search import Fill, Layout, Template, Tokens

from .slots import Penalties


def answer_in_turn(
    find: Callable[[Sequence[Penalties], int], list[list[Fill]]],
    templates: Sequence[Template],
    num_answers: int,
    diversity_penalty: float,
) -> list[list[Fill]]:
    """One answer of every template after the other. `find` gives the best few of all, each with its own penalties."""
    answers: list[dict[Tokens, Fill]] = [{} for _ in templates]
    held: list[Counter[int]] = [Counter() for _ in templates]
    for number in range(num_answers):
        penalties = [{token: diversity_penalty * n for token, n in counts.items()} for counts in held]
        for template, given, counts, fills in zip(templates, answers, held, find(penalties, number + 1), strict=True):
            new = next((fill for fill in fills if fill.tokens not in given), None)
            if new is not None:
                given[new.tokens] = new
                layout = Layout.of(template, new.lengths)
                region = new.tokens[len(layout.context) : len(layout.context) + len(layout.region)]
                counts.update(set(layout.free_words(region)))
    return [sorted(given.values(), key=lambda fill: -fill.ranking_score) for given in answers]
