"""Methods for the tables of `bibs.evaluation`: the GPT-2 pair, fill-in-the-middle, and masked language models.

Each fills the blanks of examples, as `bibs.evaluation.METHODS` wants it. S is known for the pair alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from objectives import END_ID, MASK_ID, PAD_ID, SPECIALS, START_ID, blanked
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

from bibs.evaluation import Answer, Example, Pair
from bibs.huggingface import SubwordInfiller
from bibs.text import SubwordTokenizer

EXTRA_TOKENS = 12
"""How many tokens more than words a fill-in-the-middle model may write."""

MAX_WORDS = 20
"""Of a blank whose length is not known."""


@dataclass(frozen=True)
class PairSearch:
    """The GPT-2 pair, by one of the methods of bibs."""

    infiller: SubwordInfiller
    method: str

    def __call__(self, pair: Pair, examples: Sequence[Example], num_beams: int, lengths: str) -> list[Answer]:
        blanks = [["_"] * len(example.blank) if lengths == "known" else ["___"] for example in examples]
        templates = [" ".join(example.filled(blank)) for example, blank in zip(examples, blanks, strict=True)]
        found = self.infiller(templates, method=self.method, num_beams=num_beams)
        return [
            Answer(best.spans[0], best.score, best.forward_score, best.backward_score, best.rounds)
            for best, *_ in found
        ]


class SoManyWords(LogitsProcessor):
    """Bars what would make a fill of other than so many words: from one word on, where the number is not known."""

    def __init__(self, begins: Tensor, counts: Tensor | None, prompt_length: int) -> None:
        self.begins, self.counts, self.prompt_length = begins, counts, prompt_length

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        written = input_ids[:, self.prompt_length :]
        words = self.begins[written].sum(1)  # (R,)
        barred = torch.zeros_like(scores, dtype=torch.bool)
        barred[:, : len(SPECIALS)] = True
        no_more = (words == 0) | (written.shape[1] - words >= EXTRA_TOKENS)  # the first token begins a word
        barred |= ~self.begins & no_more[:, None]
        barred[:, END_ID] = words < 1
        if self.counts is not None:
            counts = self.counts.repeat_interleave(len(words) // len(self.counts))
            barred |= self.begins & (words >= counts)[:, None]
            barred[:, END_ID] = words < counts
        return scores.masked_fill(barred, -torch.inf)


@dataclass(frozen=True)
class MiddleWriter:
    """A GPT-2 that was trained to write what is missing between a prefix and a suffix."""

    network: Any
    tokenizer: SubwordTokenizer
    samples: bool = False  # as many as others have beams, of which the likeliest is the answer; else beam search

    @torch.inference_mode()
    def __call__(self, pair: Pair, examples: Sequence[Example], num_beams: int, lengths: str) -> list[Answer]:
        prompts = [blanked(*_around(self.tokenizer, example)) for example in examples]
        width = max(map(len, prompts))
        tokens = torch.tensor([[PAD_ID] * (width - len(prompt)) + prompt for prompt in prompts])  # (N, T)
        is_known = lengths == "known"
        counts = torch.tensor([len(example.blank) for example in examples]) if is_known else None
        rule = SoManyWords(torch.tensor(self.tokenizer.begins), counts, width)
        how: dict[str, Any] = {"num_beams": num_beams, "length_penalty": 0.0 if is_known else 1.0}
        if self.samples:
            how = {"do_sample": True, "num_return_sequences": num_beams, "top_k": 0}
            torch.manual_seed(pair.seed)
        written = self.network.generate(
            tokens,
            attention_mask=(tokens != PAD_ID).long(),
            max_new_tokens=1 + EXTRA_TOKENS + (int(counts.max()) if counts is not None else MAX_WORDS),
            logits_processor=LogitsProcessorList([rule]),
            return_dict_in_generate=True,
            output_scores=True,
            eos_token_id=END_ID,
            pad_token_id=PAD_ID,
            **how,
        )
        rows, scores = written.sequences, getattr(written, "sequences_scores", None)
        if scores is None:
            steps = self.network.compute_transition_scores(rows, written.scores, normalize_logits=True)
            scores = steps.masked_fill(steps.isinf(), 0.0).sum(1)  # behind its end, nothing is written
        best = scores.view(len(examples), -1).argmax(1) + torch.arange(len(examples)) * (len(rows) // len(examples))
        fills = [[token for token in row if token >= len(SPECIALS)] for row in rows[best, width:].tolist()]
        return [_answer(self.tokenizer.decode(fill)) for fill in fills]


@dataclass(frozen=True)
class MaskFiller:
    """A masked language model, which fills a blank of so many words, each of one token."""

    network: Any
    tokenizer: SubwordTokenizer
    order: str  # "left to right", with beams; "greedy": the same with one; "confidence": the surest mask first

    @torch.inference_mode()
    def __call__(self, pair: Pair, examples: Sequence[Example], num_beams: int, lengths: str) -> list[Answer]:
        if lengths != "known":
            raise ValueError("a masked language model must be told the length of a blank")
        answers: dict[Any, Answer] = {}
        order = sorted(examples, key=lambda example: len(example.blank))
        for length, several in groupby(order, key=lambda example: len(example.blank)):
            some = list(several)
            rows, places = self._rows(some, length)
            if self.order == "confidence":
                fills = self._surest_first(rows, places)
            else:
                fills = self._left_to_right(rows, places, 1 if self.order == "greedy" else num_beams)
            for example, fill in zip(some, fills.tolist(), strict=True):
                answers[example.key] = _answer(self.tokenizer.decode(fill))
        return [answers[example.key] for example in examples]

    def _rows(self, examples: Sequence[Example], length: int) -> tuple[Tensor, Tensor]:
        """The texts with masks (N, T), and where these stand (N, W)."""
        around = [_around(self.tokenizer, example) for example in examples]
        rows = [[START_ID, *before, *[MASK_ID] * length, *after, END_ID] for before, after in around]
        width = max(map(len, rows))
        places = [[1 + len(before) + slot for slot in range(length)] for before, _ in around]
        return torch.tensor([row + [PAD_ID] * (width - len(row)) for row in rows]), torch.tensor(places)

    def _log_probs(self, rows: Tensor, places: Tensor) -> Tensor:
        """Of the words at some places (R, W): (R, W, V), nothing but beginnings of words."""
        logits = self.network(input_ids=rows, attention_mask=(rows != PAD_ID).long()).logits
        logits = logits.gather(1, places[:, :, None].expand(-1, -1, logits.shape[2]))
        allowed = torch.tensor(self.tokenizer.begins)
        allowed[list(self.tokenizer.banned)] = False
        return logits.log_softmax(2).masked_fill(~allowed, -torch.inf)  # type: ignore[no-any-return]

    def _surest_first(self, rows: Tensor, places: Tensor) -> Tensor:
        every = torch.arange(len(rows))
        for _ in range(places.shape[1]):
            best, tokens = self._log_probs(rows, places).max(2)  # (N, W)
            slots = best.masked_fill(rows.gather(1, places) != MASK_ID, -torch.inf).argmax(1)
            rows[every, places[every, slots]] = tokens[every, slots]
        return rows.gather(1, places)

    def _left_to_right(self, rows: Tensor, places: Tensor, num_beams: int) -> Tensor:
        count, width = rows.shape
        beams = rows[:, None].repeat(1, num_beams, 1)  # (N, B, T)
        scores = torch.full((count, num_beams), -math.inf)
        scores[:, 0] = 0.0
        for slot in range(places.shape[1]):
            here = places[:, slot].repeat_interleave(num_beams)[:, None]  # (N * B, 1)
            log_probs = self._log_probs(beams.view(-1, width), here).view(count, num_beams, -1)
            scores, best = (scores[:, :, None] + log_probs).flatten(1).topk(num_beams)  # (N, B)
            parents, tokens = best // log_probs.shape[2], best % log_probs.shape[2]
            beams = beams.gather(1, parents[:, :, None].expand_as(beams))
            beams.scatter_(2, places[:, slot, None, None].expand(-1, num_beams, 1), tokens[:, :, None])
        return beams[:, 0].gather(1, places)


def _around(tokenizer: SubwordTokenizer, example: Example) -> tuple[list[int], list[int]]:
    """The tokens before and after the blank."""
    before, after = " ".join(example.before), " ".join(example.after)
    return tokenizer.encode(before, first=True), tokenizer.encode(f" {after}", first=False)


def _answer(words: Sequence[str]) -> Answer:
    return Answer(" ".join(words), 0.0, 0.0, 0.0)
