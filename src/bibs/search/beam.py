"""One beam search loop, plain or steered by messages.

At slot t the frontier holds partial fills b with running score s_b and next-token log probabilities f_b(y). The loop
keeps the B best extensions (b, y) of

    s_b + f_b(y) + message_t(y)          message_t(y) = max_b' [ c_b' + g_b'(y) ]

where b' runs over the frontier that the opposite pass had at the same slot (the paper's update equation, maximised
over b' first: O(BV) instead of O(B V B)). Without messages this is ordinary beam search. A message ranks and is then
forgotten: running scores are one model's log probability alone.

What a pass tells the opposite one is what it needs itself, max_b [ s_b + f_b(y) ]: the tokens of the B best extensions
are among the B best tokens by its sum with the message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .choosing import Chooser, choose_extensions, top_k, unseen
from .coverage import best_by_bank, message_from
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
        return self._map(lambda each: each.gather(1, order))

    def at(self, examples: Tensor) -> Choice:
        return self._map(lambda each: rows_of(each, examples))

    def first(self, count: int) -> Choice:
        return self if count == len(self.tokens) else self._map(lambda each: each[:count])

    def replace(self, examples: Tensor, fresh: Choice) -> Choice:
        """Take what was chosen for some examples from `fresh`, which holds just those."""
        if len(examples) == len(self.tokens):
            return fresh
        return self._map(lambda old, new: old.index_copy(0, examples, new), fresh)

    def _map(self, function: Callable[..., Tensor], *others: Choice) -> Choice:
        columns = ((each.tokens, each.parents, each.scores, each.ranking) for each in (self, *others))
        return Choice(*map(function, *columns))

    @property
    def alive(self) -> Tensor:
        return self.scores > -torch.inf


@dataclass(frozen=True)
class Expansion:
    """What each partial fill of a frontier comes to with each token: its running score and the token's log P."""

    extended: Tensor  # (n, K, V)
    state: State  # n * K rows
    owned: bool = False  # whether the search made the state's tensors itself, and may write into them


@dataclass(frozen=True)
class Pass:
    """One run of the loop over all slots, in the reading order of its model."""

    choices: tuple[Choice, ...]  # slot w: for the examples that have one
    expansions: list[Expansion]  # slot w, or empty where they were not kept
    best: Tensor | None  # (N, W, 2^k, V) the most that each bank of a frontier comes to with each token
    changed: Tensor  # (N, W) where the frontier is not that of the previous pass in this direction
    settled: Tensor  # (N,) it is, in every slot

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
    facing: Pass | None = None,
    previous: Pass | None = None,
    keep: bool = True,
    send: bool = True,
    choose: Chooser = top_k,
) -> Pass:
    """Run over the region once, from the near side to the far one.

    `facing` is the last pass in the opposite direction, whose messages steer this one. `previous` is the last pass in
    this direction, and is used up. If it was kept, what its partial fills were told is looked up; and where neither the
    frontier nor the message at a slot is new, what is chosen there cannot be either, and nothing is done at all.
    `keep` keeps the expansions for this, `send` keeps what the opposite pass is to be told. Both are written over those
    of `previous`: fresh memory costs more than what is written into it.
    """
    num_examples, vocab_size = len(opening.layouts), opening.model.vocab_size
    widths = opening.widths.tolist()
    counts = [sum(width > slot for width in widths) for slot in range(opening.slots.shape[1])]
    expansions = previous.expansions if previous and keep else []
    recalled = bool(expansions)
    sent = previous.best if previous else None
    if send and sent is None:
        sent = opening.log_probs.new_empty(num_examples, len(counts), opening.num_banks, vocab_size)
    changed = torch.ones(num_examples, len(counts), dtype=torch.bool, device=opening.slots.device)
    if previous is not None:
        changed[:, :1] = False
    choices: list[Choice] = []
    for slot, count in enumerate(counts):
        if slot == 0:
            known = ~changed[:count, :1]  # before the first slot, one partial fill: the empty one
        else:
            choice, known = choices[-1].first(count), known[:count]
            if previous is not None:
                either_alive = choice.alive | previous.choices[slot - 1].first(count).alive
                changed[:count, slot] = (either_alive & ~known).any(1)
        rows = torch.arange(count, device=known.device)  # the examples in which there is something to do
        if previous is not None and recalled:
            rows = _stirred(opening, changed[:count, slot], facing, slot)
            if not len(rows):
                expansion, known = expansions[slot], previous.choices[slot].alive
                choices.append(previous.choices[slot])
                continue
        told = expansions[slot] if recalled else None
        if slot > 0:
            expansion = _advance(opening, expansion, choice, known, told, slot, spent=slot > 1 and not keep)
        else:
            expansion = told or Expansion(opening.log_probs[:count, None], opening.state)
        best = None if sent is None else sent[:count, slot]
        best = _best(opening, expansion.extended, rows, changed[:count, slot] if recalled else None, best)
        index, ranking = _choose(opening, rows, expansion.extended, best, facing, slot, num_beams, choose)
        tokens, parents = index % vocab_size, index // vocab_size  # (m, K)
        running = expansion.extended.flatten(1)[rows[:, None], index]
        if opening.penalties is not None:
            free = opening.slots[rows, slot, None] == FREE
            running -= opening.penalties[rows].gather(1, tokens) * free
        fresh = Choice(tokens, parents, running.masked_fill(ranking == -torch.inf, -torch.inf), ranking)
        if previous is None:
            choices.append(fresh)
        else:
            old = previous.choices[slot]
            fresh, found = _align(fresh, old.at(rows), rows_of(known, rows))
            choices.append(old.replace(rows, fresh))
            known = found if len(rows) == count else old.alive.index_copy(0, rows, found)
        if keep:
            expansions[slot : slot + 1] = [expansion]  # in place of the old one, if there was one
    places = torch.arange(len(counts), device=changed.device)
    settled = ~(changed & (places < opening.widths[:, None])).any(1)
    return Pass(tuple(choices), expansions, sent, changed, settled)


def rows_of(tensor: Tensor, rows: Tensor) -> Tensor:
    """Some rows, given in rising order; the tensor itself, if those are all."""
    return tensor if len(rows) == len(tensor) else tensor.index_select(0, rows)


def runs(rows: Sequence[int]) -> Iterator[slice]:
    """Rows in rising order as slices: what is read through them is not copied."""
    begin = 0
    for end in range(1, len(rows) + 1):
        if end == len(rows) or rows[end] > rows[end - 1] + 1:
            yield slice(rows[begin], rows[end - 1] + 1)
            begin = end


def _far_slots(opening: Opening, rows: Tensor, slot: int) -> Tensor:
    """Where the opposite pass has this slot."""
    return opening.widths[rows] - 1 - slot


def _stirred(opening: Opening, changed: Tensor, facing: Pass | None, slot: int) -> Tensor:
    """The examples (m,) whose frontier has changed (n,) or whose message has."""
    rows = torch.arange(len(changed), device=changed.device)
    if facing is not None:
        changed = changed | facing.changed[rows, _far_slots(opening, rows, slot)]
    return changed.nonzero().flatten()


def _best(opening: Opening, extended: Tensor, rows: Tensor, changed: Tensor | None, best: Tensor | None) -> Tensor:
    """The most (m, 2^k, V) that each bank comes to in some examples, of extensions (n, K, V).

    It is written into `best` (n, 2^k, V), if given, where only the examples that have `changed` (n,) are looked at.
    """
    if best is None:
        return best_by_bank(rows_of(extended, rows), opening.num_banks)
    stale = rows if changed is None else changed.nonzero().flatten()
    for run in runs(stale.tolist()):
        best_by_bank(extended[run], opening.num_banks, out=best[run])
    return rows_of(best, rows)


def _choose(
    opening: Opening,
    rows: Tensor,
    extended: Tensor,
    best: Tensor,
    facing: Pass | None,
    slot: int,
    num_beams: int,
    choose: Chooser,
) -> tuple[Tensor, Tensor]:
    """Indices (m, K') into K * V of the chosen extensions (n, K, V) of some examples (m,), and their rankings."""
    if facing is None:
        return choose_extensions(opening, rows, extended, best, unseen(opening, rows, slot), slot, num_beams, choose)
    assert facing.best is not None
    places = rows * facing.best.shape[1] + _far_slots(opening, rows, slot)
    message = message_from(facing.best.flatten(0, 1).index_select(0, places))  # (m, 2^k, V)
    index, ranking = choose_extensions(opening, rows, extended, best, message, slot, num_beams, choose)
    cut_off = (ranking == -torch.inf).all(1)
    if bool(cut_off.any()):
        # Nothing here connects to the far side's beams. They say nothing of other far sides: go on without them.
        message = torch.where(cut_off[:, None, None], unseen(opening, rows, slot), message)
        index, ranking = choose_extensions(opening, rows, extended, best, message, slot, num_beams, choose)
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
    opening: Opening,
    expansion: Expansion,
    choice: Choice,
    known: Tensor,
    old: Expansion | None,
    slot: int,
    *,
    spent: bool,
) -> Expansion:
    """Step the model into `slot`, or look up what the previous pass was told there.

    If what the last expansion holds is `spent`, the new one is written over it.
    """
    count, width = choice.tokens.shape
    first_rows = torch.arange(count, device=known.device)[:, None] * expansion.extended.shape[1]
    rows, tokens = (first_rows + choice.parents).flatten(), choice.tokens.flatten()  # (n * K,)
    if old is None:
        live = choice.alive.flatten()
        if opening.num_banks > 1 and bool(live.any()):  # many banks are empty: step what is in the others
            log_probs, state = opening.step(tokens[live], select_rows(expansion.state, rows[live]), slot)
            places = live.cumsum(0).sub(1).clamp(min=0)  # a dead row is given another's, which nobody reads
            log_probs, state = log_probs[places], select_rows(state, places)
        else:
            log_probs, state = opening.step(tokens, select_rows(expansion.state, rows), slot)
        over = expansion.extended[:count] if spent and expansion.extended.shape[1] == width else None
        return Expansion(torch.add(log_probs.view(count, width, -1), choice.scores[:, :, None], out=over), state)
    told = old.extended.flatten(0, 1)  # (n * K, V)
    told.index_fill_(0, (~choice.alive).flatten().nonzero().flatten(), -torch.inf)
    stale = (choice.alive & ~known).flatten().nonzero().flatten()
    if not len(stale):
        return old
    log_probs, state = opening.step(tokens[stale], select_rows(expansion.state, rows[stale]), slot)
    told.index_copy_(0, stale, log_probs + choice.scores.flatten()[stale, None])
    return Expansion(old.extended, replace_rows(old.state, stale, state, in_place=old.owned), owned=True)
