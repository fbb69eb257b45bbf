"""What may stand where, as objects beside the search loop: banned and fixed slots, required phrases, words of
several tokens, diversity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from bibs.search import Layout, Rules

from .diversity import answer_in_turn
from .required import Phrases, RequiredPhrases, least_words, num_states
from .slots import Penalties, SlotRules
from .words import Subwords, WordCount, WordCounts

__all__ = [
    "Demands",
    "Penalties",
    "Phrases",
    "Subwords",
    "WordCount",
    "answer_in_turn",
    "least_words",
    "num_states",
]


@dataclass(frozen=True)
class Demands:
    """What is asked of the words in the blanks of each template of a batch."""

    vocab_size: int
    banned: Sequence[int]
    required: Sequence[Phrases]
    penalties: Sequence[Penalties]
    subwords: Subwords | None = None  # where slots hold tokens, and blanks are so many words

    @staticmethod
    def plain(vocab_size: int, banned: Sequence[int], num_templates: int) -> Demands:
        return Demands(vocab_size, banned, [()] * num_templates, [{}] * num_templates)

    def allowing(self, token: int | None) -> Demands:
        """The same, but for a token that is not banned."""
        return replace(self, banned=[other for other in self.banned if other != token])

    def groups(self, template: int) -> tuple[int, ...]:
        phrases = tuple(len(phrase) + 1 for phrase in self.required[template])
        return phrases if self.subwords is None else (self.subwords.num_states(template),)

    def rules(self, layouts: Sequence[Layout], templates: Sequence[int], like: Tensor, *, turned: bool) -> Rules:
        penalties = [self.penalties[template] for template in templates]
        if self.subwords is not None:
            counts = self.subwords.of(templates)
            return WordCounts(layouts, self.banned, penalties, self.vocab_size, like, counts, turned=turned)
        required = [self.required[template] for template in templates]
        if turned:
            required = [tuple(phrase[::-1] for phrase in phrases) for phrases in required]
        if any(required):
            return RequiredPhrases(layouts, self.banned, penalties, required, self.vocab_size, like)
        return SlotRules(layouts, self.banned, penalties, self.vocab_size, like)
