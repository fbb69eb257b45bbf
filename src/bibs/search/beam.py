"""One beam search loop, plain or steered by messages.

At slot t the frontier holds partial fills b with running score s_b and next-token log probabilities f_b(y). The loop
keeps the B best extensions (b, y) of

    s_b + f_b(y) + message_t(y)          message_t(y) = max_b' [ c_b' + g_b'(y) ]

where b' runs over the frontier that the opposite pass had at the same slot (the paper's update equation, maximised
over b' first: O(BV) instead of O(B V B)). Without messages this is ordinary beam search. A message ranks and is then
forgotten: running scores are one model's log probability alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .choosing import Chooser, choose_extensions, top_k, unseen
from .coverage import send_message
from .opening import FREE, Opening
from .step_model import State, replace_rows, select_rows

__all__ = ["FREE", "Choice", "Expansion", "Opening", "Pass", "beam_search", "top_k"]


@dataclass(frozen=True)
class Choice:
    """The extensions chosen at one slot, n examples x K; in no particular order."""

    tokens: Tensor  # (n, K)
    parents: Tensor  # (n, K) the partial fill extended
    scores: Tensor  # (n, K) running score under this model alone, less penalties; -inf marks a dead beam
    ranking: Tensor  # (n, K) what it was chosen by

    def take(self, order: Tensor) -> Choice:
        return Choice(*(t.gather(1, order) for t in (self.tokens, self.parents, self.scores, self.ranking)))

    def select(self, examples: Tensor) -> Choice:
        return Choice(*(t[examples] for t in (self.tokens, self.parents, self.scores, self.ranking)))

    def first(self, count: int) -> Choice:
        if count == len(self.tokens):
            return self
        return Choice(*(t[:count] for t in (self.tokens, self.parents, self.scores, self.ranking)))

    @property
    def alive(self) -> Tensor:
        return self.scores > -torch.inf


@dataclass(frozen=True)
class Expansion:
    """What a model says at one slot after each partial fill of the frontier."""

    log_probs: Tensor  # (n, K, V)
    state: State  # n * K rows
    owned: bool = False  # whether the search made these tensors itself, and may write into them

    def select(self, examples: Tensor) -> Expansion:
        width = self.log_probs.shape[1]
        rows = (examples[:, None] * width + torch.arange(width, device=examples.device)).flatten()
        return Expansion(self.log_probs[examples], select_rows(self.state, rows), owned=True)


@dataclass(frozen=True)
class Pass:
    """One run of the loop over all slots, in the reading order of its model."""

    choices: tuple[Choice, ...]  # slot w: for the examples that have one
    expansions: list[Expansion]  # slot w, or empty where they were not kept
    messages: Tensor | None  # (N, W, V), or (N, W, 2^k, V), for the opposite pass, in this pass's reading order
    settled: Tensor  # (N,) every frontier equals that of the previous pass in this direction

    def select(self, examples: Tensor) -> Pass:
        """Keep some examples, given in their present order."""
        within = [examples[examples < len(choice.tokens)] for choice in self.choices]
        width = sum(len(rows) > 0 for rows in within)
        return Pass(
            tuple(choice.select(rows) for choice, rows in zip(self.choices[:width], within, strict=False)),
            [kept.select(rows) for kept, rows in zip(self.expansions[:width], within, strict=False)],
            None if self.messages is None else self.messages[examples, :width],
            self.settled[examples],
        )

    def fills(self) -> tuple[Tensor, Tensor, Tensor]:
        """The complete fills, best ranked first: tokens (N, K, W) padded with FREE, scores and rankings (N, K)."""
        num_examples, num_beams = len(self.settled), max((c.tokens.shape[1] for c in self.choices), default=1)
        device = self.settled.device
        shape = (num_examples, num_beams)
        tokens = torch.full((*shape, len(self.choices)), FREE, dtype=torch.long, device=device)
        pointer = torch.zeros(shape, dtype=torch.long, device=device)
        # An example without a region has one fill, the empty one, of score 0.
        scores = torch.full(shape, -torch.inf, dtype=torch.float64, device=device)
        scores[:, 0] = 0.0
        ranking = scores.clone()
        ended = 0
        for slot in reversed(range(len(self.choices))):
            choice = self.choices[slot]
            count, width = choice.tokens.shape
            if count > ended:
                pointer[ended:count, :width] = torch.arange(width, device=device)
                scores[ended:count], ranking[ended:count] = -torch.inf, -torch.inf
                scores[ended:count, :width] = choice.scores[ended:]
                ranking[ended:count, :width] = choice.ranking[ended:]
                ended = count
            tokens[:count, :, slot] = choice.tokens.gather(1, pointer[:count].clamp(max=width - 1))
            pointer[:count] = choice.parents.gather(1, pointer[:count].clamp(max=width - 1))
        order = ranking.argsort(dim=1, descending=True, stable=True)
        spread = order[:, :, None].expand_as(tokens)
        return tokens.gather(1, spread), scores.gather(1, order), ranking.gather(1, order)


def beam_search(
    opening: Opening,
    *,
    num_beams: int,
    messages: Tensor | None = None,
    previous: Pass | None = None,
    keep: bool = True,
    send: bool = True,
    choose: Chooser = top_k,
) -> Pass:
    """Run over the region once, from the near side to the far one.

    `messages` are those of a pass in the opposite direction. `previous` is the last pass in this direction: what its
    partial fills were told is looked up, not computed again, and that pass is used up. `keep` keeps the expansions for
    such a look-up, `send` makes messages for the opposite pass. What `previous` holds is replaced slot by slot, and its
    messages, which have been read, are written over: fresh memory costs more than what is written into it.
    """
    num_examples, vocab_size = len(opening.layouts), opening.model.vocab_size
    counts = [int((opening.widths > slot).sum()) for slot in range(opening.slots.shape[1])]
    sent = None
    if send:
        shape = (num_examples, len(counts), opening.num_banks, vocab_size)
        spent = previous.messages if previous else None
        sent = opening.log_probs.new_empty(shape) if spent is None else spent.view(shape)
    settled = (opening.widths == 0) | (previous is not None)
    work = opening.log_probs.new_empty(0)
    choices: list[Choice] = []
    expansions = previous.expansions if previous and keep else []
    for slot, count in enumerate(counts):
        if slot == 0:
            expansion = Expansion(opening.log_probs[:count, None], opening.state)
            scores = opening.log_probs.new_zeros(count, 1)
            known = settled[:count, None]
        else:
            choice = choices[-1].first(count)
            scores, known = choice.scores, known[:count]
            if previous is not None:
                either_alive = choice.alive | previous.choices[slot - 1].first(count).alive
                settled[:count] &= (known | ~either_alive).all(1)
            old = expansions[slot] if slot < len(expansions) else None
            expansion = _advance(opening, expansion, choice, known, old, slot)
        if work.numel() < expansion.log_probs.numel():
            work = torch.empty_like(expansion.log_probs).flatten()
        extended = work[: expansion.log_probs.numel()].view(expansion.log_probs.shape)
        torch.add(expansion.log_probs, scores[:, :, None], out=extended)  # (n, K, V)
        if sent is not None:
            send_message(extended, sent[:count, slot])
        index, ranking = _choose(opening, extended, (expansion, scores), messages, slot, num_beams, choose)
        tokens, parents = index % vocab_size, index // vocab_size  # (n, K)
        running = expansion.log_probs.flatten(1).gather(1, index) + scores.gather(1, parents)
        if opening.penalties is not None:
            free = opening.slots[:count, slot, None] == FREE
            running -= opening.penalties[:count].gather(1, tokens) * free
        choice = Choice(tokens, parents, running.masked_fill(ranking == -torch.inf, -torch.inf), ranking)
        if previous is not None:
            choice, known = _align(choice, previous.choices[slot], known)
        choices.append(choice)
        if keep:
            expansions[slot : slot + 1] = [expansion]  # in place of the old one, if there was one
    return Pass(tuple(choices), expansions, None if sent is None else sent.squeeze(2), settled)


def _choose(
    opening: Opening,
    extended: Tensor,
    terms: tuple[Expansion, Tensor],
    messages: Tensor | None,
    slot: int,
    num_beams: int,
    choose: Chooser,
) -> tuple[Tensor, Tensor]:
    """Indices (n, K') into K * V of the chosen extensions (n, K, V), which are ranked in place, and their rankings.

    `terms` are what the extensions are the sum of.
    """
    if messages is None:
        return choose_extensions(opening, extended, None, slot, num_beams, choose)
    count = len(extended)
    far_slots = opening.widths[:count] - 1 - slot
    rows = torch.arange(count, device=far_slots.device) * messages.shape[1] + far_slots
    message = messages.flatten(0, 1).index_select(0, rows).view(count, opening.num_banks, -1)
    index, ranking = choose_extensions(opening, extended, message, slot, num_beams, choose)
    cut_off = (ranking == -torch.inf).all(1)
    if bool(cut_off.any()):
        # Nothing here connects to the far side's beams. They say nothing of other far sides: go on without them.
        expansion, scores = terms
        torch.add(expansion.log_probs, scores[:, :, None], out=extended)
        message = torch.where(cut_off[:, None, None], unseen(opening, count, slot), message)
        index, ranking = choose_extensions(opening, extended, message, slot, num_beams, choose)
    return index, ranking


def _align(choice: Choice, old: Choice, known: Tensor) -> tuple[Choice, Tensor]:
    """Move each extension that `old` also holds to its place there. Returns the choice and (n, K) which those are.

    `known` (n, K) says the same of the partial fills that were extended, so equal parents are equal histories. Banks
    stay whole: each has as many vacant places as new extensions, and both are taken in order.
    """
    same = (choice.parents[:, :, None] == old.parents[:, None]) & (choice.tokens[:, :, None] == old.tokens[:, None])
    same &= (choice.alive & known.gather(1, choice.parents))[:, :, None] & old.alive[:, None]  # (n, K, K)
    taken, found = same.any(1), same.any(2)
    new = found.long().argsort(dim=1, stable=True)  # the new extensions, in order, come first
    nth = (~taken).cumsum(1).sub_(1).clamp_(min=0)  # of the vacant places
    order = torch.where(taken, same.long().argmax(1), new.gather(1, nth))
    return choice.take(order), taken


def _advance(
    opening: Opening, expansion: Expansion, choice: Choice, known: Tensor, old: Expansion | None, slot: int
) -> Expansion:
    """Step the model into `slot`, or look up what the previous pass was told there."""
    count, width = choice.tokens.shape
    first_rows = torch.arange(count, device=known.device)[:, None] * expansion.log_probs.shape[1]
    rows, tokens = (first_rows + choice.parents).flatten(), choice.tokens.flatten()  # (n * K,)
    if old is None:
        live = choice.alive.flatten()
        if opening.num_banks > 1 and bool(live.any()):  # many banks are empty: step what is in the others
            log_probs, state = opening.step(tokens[live], select_rows(expansion.state, rows[live]), slot)
            places = live.cumsum(0).sub(1).clamp(min=0)  # a dead row is given another's, which nobody reads
            return Expansion(log_probs[places].view(count, width, -1), select_rows(state, places))
        log_probs, state = opening.step(tokens, select_rows(expansion.state, rows), slot)
        return Expansion(log_probs.view(count, width, -1), state)
    stale = (choice.alive & ~known).flatten().nonzero().flatten()
    if not len(stale):
        return old
    log_probs, state = opening.step(tokens[stale], select_rows(expansion.state, rows[stale]), slot)
    told = old.log_probs if old.owned else old.log_probs.clone(memory_format=torch.contiguous_format)
    told.flatten(0, 1).index_copy_(0, stale, log_probs)
    return Expansion(told, replace_rows(old.state, stale, state, in_place=old.owned), owned=True)
