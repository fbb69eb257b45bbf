"""What may stand where, as objects beside the search loop: banned and fixed slots, required words, diversity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from bibs.search import Layout, Rules, Tokens

from .diversity import answer_in_turn
from .required import RequiredWords
from .slots import Penalties, SlotRules

__all__ = ["Demands", "Penalties", "answer_in_turn"]


@dataclass(frozen=True)
class Demands:
    """What is asked of the words in the blanks of each template of a batch."""

    vocab_size: int
    banned: Sequence[int]
    required: Sequence[Tokens]
    penalties: Sequence[Penalties]

    @staticmethod
    def plain(vocab_size: int, banned: Sequence[int], num_templates: int) -> Demands:
        return Demands(vocab_size, banned, [()] * num_templates, [{}] * num_templates)

    def allowing(self, token: int | None) -> Demands:
        """The same, but for a token that is not banned."""
        return replace(self, banned=[other for other in self.banned if other != token])

    def num_groups(self, template: int) -> int:
        return 1 << len(self.required[template])

    def rules(self, layouts: Sequence[Layout], templates: Sequence[int], like: Tensor) -> Rules:
        penalties = [self.penalties[template] for template in templates]
        required = [self.required[template] for template in templates]
        if any(required):
            return RequiredWords(layouts, self.banned, penalties, required, self.vocab_size, like)
        return SlotRules(layouts, self.banned, penalties, self.vocab_size, like)
