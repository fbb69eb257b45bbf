"""Text in, text out, with two causal language models of transformers (extra `hf`): blanks are words, slots are tokens.

A blank of n words is searched with n tokens, and with up to `extra_tokens` more; the words of each are counted beside
the search. How long a blank of unknown length is, is searched in tokens.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any, overload

import torch
from typing_extensions import Unpack

from bibs.constraints import Subwords, WordCount
from bibs.infiller import Completion
from bibs.lengths import UNFITTED, LengthPrior, LengthSettings, LengthWeights
from bibs.methods import SAMPLERS, Options, find_fills, pick_settings, say_if_fewer
from bibs.models.huggingface import CausalModel, load_pair, reads_backward
from bibs.search import Fill, Gap
from bibs.search import Template as Row
from bibs.text import SubwordTemplate, SubwordTokenizer, Template

NO_WEIGHTS = LengthWeights(0.0, 0.0)
BY_SCORE = LengthPrior(NO_WEIGHTS, NO_WEIGHTS, NO_WEIGHTS, NO_WEIGHTS, NO_WEIGHTS)
"""The same words in more or fewer tokens compare by their probability alone."""


class SubwordInfiller:
    """Fills the blanks of templates with a left-to-right and a right-to-left model of the same tokens."""

    def __init__(
        self,
        *,
        forward: CausalModel,
        backward: CausalModel,
        tokenizer: Any,
        extra_tokens: int = 2,
        length_prior: LengthPrior = UNFITTED,
        check_direction: bool = True,
    ) -> None:
        """`extra_tokens` is how many more tokens than words a blank may have, beside one for each word.

        `length_prior` says how fills of different lengths, in tokens, compare where the number of words is not known.
        `check_direction` lets the forward model write a little, and sees that the backward one reads it better from
        its end.
        """
        if forward.vocab_size != backward.vocab_size:
            raise ValueError(
                "`forward` and `backward` must share one vocabulary, "
                f"but have {forward.vocab_size} and {backward.vocab_size} tokens"
            )
        if forward.device != backward.device:
            raise ValueError(
                f"`forward` and `backward` must be on one device, but are on {forward.device} and {backward.device}"
            )
        if type(extra_tokens) is not int or extra_tokens < 0:
            raise ValueError(f"`extra_tokens` must be a whole number of at least 0, but is {extra_tokens!r}")
        self.tokenizer = SubwordTokenizer(tokenizer, forward.vocab_size)
        self.forward, self.backward = forward, backward
        self.extra_tokens = extra_tokens
        self.length_prior = length_prior
        if check_direction and not reads_backward(forward, backward, self.tokenizer.start, self.tokenizer.banned):
            raise ValueError(
                "`backward` must read from right to left, but finds what `forward` writes likelier from the left"
            )

    @classmethod
    def load(
        cls,
        forward: Any,
        backward: Any,
        tokenizer: Any = None,
        *,
        device: torch.device | str | None = None,
        **how: Any,
    ) -> SubwordInfiller:
        """From directories, names on the hub, or networks and a tokenizer that are loaded already."""
        models, read = load_pair(forward, backward, tokenizer, device)
        return cls(forward=models[0], backward=models[1], tokenizer=read, **how)

    @overload
    def __call__(self, templates: str, *, method: str = ..., **options: Unpack[Options]) -> list[Completion]: ...

    @overload
    def __call__(
        self, templates: list[str] | tuple[str, ...], *, method: str = ..., **options: Unpack[Options]
    ) -> list[list[Completion]]: ...

    def __call__(
        self, templates: str | Iterable[str], *, method: str = "bibs", **options: Unpack[Options]
    ) -> list[Completion] | list[list[Completion]]:
        """Fill the blanks: one template gives a list of completions, best first; a list gives a list of such lists.

        `bibs.methods.Options` says what the options mean; lengths are those of tokens here.
        """
        if method in SAMPLERS:
            raise ValueError(f"`method` must be no sampler for models of sub-words, but is {method!r}")
        options.setdefault("length_prior", self.length_prior)
        pick_settings(LengthSettings, options)  # a bad option is no fault of a template
        if isinstance(templates, bytes) or not isinstance(templates, Iterable):
            raise ValueError(f"`templates` must be a string or a list of strings, but is {templates!r:.60}")
        texts = [templates] if isinstance(templates, str) else list(templates)
        read = []
        for place, text in enumerate(texts):
            try:
                read.append(self.parse(text))
            except ValueError as error:
                raise error if isinstance(templates, str) else ValueError(f"`templates[{place}]`: {error}") from None
        results: list[list[Completion]] = [[] for _ in read]
        for places, searched in self._searched_alike(read, options):
            found = self._search([read[place] for place in places], method, searched)
            for place, fills in zip(places, found, strict=True):
                results[place] = self._complete(read[place], fills, options.get("num_return_sequences", 1))
        if empty := [place for place, found in enumerate(results) if not found]:
            warnings.warn(f"nothing was found for `templates[{empty[0]}]`: other lengths may help", stacklevel=2)
        say_if_fewer(results, options.get("num_return_sequences", 1))
        return results[0] if isinstance(templates, str) else results

    def parse(self, text: str) -> SubwordTemplate:
        """Read a template; one that cannot be filled so is a ValueError of one line."""
        if not isinstance(text, str):
            raise ValueError(f"a template must be a string, but is {text!r}")
        template = self.tokenizer.read(Template.parse(text))
        needed = _num_tokens(template.row(self.extra_tokens), 1)
        for name, model in (("forward", self.forward), ("backward", self.backward)):
            if model.max_length is not None and needed > model.max_length:
                raise ValueError(
                    f"a template must have at most {model.max_length} tokens, the positions of `{name}`, "
                    f"but may have {needed}"
                )
        return template

    def _searched_alike(
        self, templates: Sequence[SubwordTemplate], options: Options
    ) -> list[tuple[list[int], Options]]:
        """Which templates are searched in one call, and with which options about lengths."""
        known, several, unknown = list[int](), list[int](), list[int]()
        for place, template in enumerate(templates):
            gaps = [blank.gap for blank in template.blanks]
            if any(gap.minimum != gap.maximum for gap in gaps):
                unknown.append(place)
            else:
                (known if len(gaps) < 2 else several).append(place)
        all_lengths: Options = {**options, "length_prior": BY_SCORE, "num_lengths": None}
        climbing: Options = {**all_lengths, "num_lengths": 2}
        groups = ((known, all_lengths), (several, climbing), (unknown, options))
        return [(places, some) for places, some in groups if places]

    def _search(self, templates: Sequence[SubwordTemplate], method: str, options: Options) -> list[list[Fill]]:
        rows: list[Row] = [template.row(self.extra_tokens) for template in templates]
        lengths = pick_settings(LengthSettings, options)
        longest = max(_num_tokens(row, lengths.max_length) for row in rows)
        gaps = [slot for row in rows for slot in row if isinstance(slot, Gap)]
        max_slots = max((gap.maximum or lengths.max_length for gap in gaps), default=1)
        counts = [[WordCount(*_bounds(blank.gap), blank.joined) for blank in each.blanks] for each in templates]
        begins = torch.tensor(self.tokenizer.begins, device=self.forward.device)
        wanted = options.get("num_return_sequences", 1)
        searched: Options = {
            **options,
            "num_return_sequences": wanted if wanted == 1 else 2 * wanted,  # two rows of tokens may be one text
            "max_memory": self._memory_for_log_probs(options.get("max_memory", 512), longest),
        }
        return find_fills(
            self.forward,
            self.backward,
            rows,
            method=method,
            conditions=None,
            banned=self.tokenizer.banned,
            must_include=None,
            subwords=Subwords(begins, counts, max_slots),
            **searched,
        )

    def _memory_for_log_probs(self, max_memory: int, longest: int) -> int:
        """What is left of the budget beside keys and values, in tables that are half empty at worst."""
        vocab_size = self.forward.vocab_size
        return max(1, max_memory * vocab_size // (vocab_size + self.forward.numbers_per_token * longest) // 2)

    def _complete(self, template: SubwordTemplate, fills: Sequence[Fill], wanted: int) -> list[Completion]:
        completions: dict[str, Completion] = {}
        for fill in fills:
            words = [self.tokenizer.decode(tokens) for tokens in template.cut(fill.tokens, fill.lengths)]
            try:
                text, spans = template.template.render(words)
            except ValueError:  # odd bytes made white space: these are not so many words
                continue
            completions.setdefault(text, Completion.of(fill, text, spans))
        return list(completions.values())[:wanted]


def _bounds(gap: Gap) -> tuple[int, int | None]:
    return gap.minimum, gap.maximum


def _num_tokens(row: Row, max_length: int) -> int:
    return sum((slot.maximum or max(slot.minimum, max_length)) if isinstance(slot, Gap) else 1 for slot in row)
