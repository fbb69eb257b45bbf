"""One beam search loop, plain or steered by messages.

At slot t the frontier holds partial fills b with running score s_b and next-token log probabilities f_b(y). The loop
keeps the B best extensions (b, y) of

    s_b + f_b(y) + message_t(y)          message_t(y) = max_b' [ c_b' + g_b'(y) ]

where b' runs over the frontier that the opposite pass had at the same slot (the paper's update equation, maximised
over b' first: O(BV) instead of O(B V B)). Without messages this is ordinary beam search. A message ranks and is then
forgotten: running scores are one model's log probability alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from .step_model import Conditions, State, StepModel, map_state, replace_rows, select_conditions, select_rows
from .template import Layout

FREE = -1
"""Marks a free slot in a tensor of slots."""

Chooser = Callable[[Tensor, int, int], tuple[Tensor, Tensor]]
"""(ranked (n, M), k, slot) -> the values (n, k) and indices (n, k) of the chosen extensions."""


@dataclass(frozen=True)
class Opening:
    """N examples, longest region first, whose contexts one model has read: where every pass of it begins."""

    name: str
    model: StepModel
    layouts: tuple[Layout, ...]
    slots: Tensor  # (N, W) the token of a fixed slot, FREE elsewhere
    widths: Tensor  # (N,) slots in each region, falling
    banned: Tensor  # ids that may not fill a free slot
    log_probs: Tensor  # (N, V)
    state: State  # N rows
    scores: Tensor  # (N,) log probability of each context after its first token

    @staticmethod
    def read(
        name: str,
        model: StepModel,
        layouts: Sequence[Layout],
        *,
        conditions: Conditions = None,
        banned: Sequence[int] = (),
        owners: Sequence[int] | None = None,
    ) -> Opening:
        """Let the model read every context. Layouts of one owner (0, 1, ...) share its condition and equal contexts."""
        assert all(len(a.region) >= len(b.region) for a, b in pairwise(layouts))
        owners = range(len(layouts)) if owners is None else owners
        distinct: dict[tuple[int, tuple[int, ...]], int] = {}
        rows = [
            distinct.setdefault((o, layout.context), len(distinct)) for o, layout in zip(owners, layouts, strict=True)
        ]
        log_probs, state, scores = model.start(
            [context for _, context in distinct], select_conditions(conditions, [owner for owner, _ in distinct])
        )
        _check_output(name, "start()", model.vocab_size, len(distinct), log_probs, state)
        if scores.shape != (len(distinct),) or not bool((scores < torch.inf).all()):
            raise ValueError(
                f"the {name} model's start() must return scores ({len(distinct)},), none NaN or +inf, "
                f"but returned {tuple(scores.shape)}: {scores.tolist()}"
            )
        if float(log_probs.max()) > 1e-3:
            warnings.warn(f"the {name} model's log probabilities exceed 0: are they logits?", stacklevel=2)
        width = max((len(layout.region) for layout in layouts), default=0)
        padded = [
            [FREE if token is None else token for token in layout.region] + [FREE] * (width - len(layout.region))
            for layout in layouts
        ]
        device = log_probs.device
        if len(distinct) < len(layouts):
            shared = torch.tensor(rows, device=device)
            log_probs, state, scores = log_probs[shared], select_rows(state, shared), scores[shared]
        return Opening(
            name=name,
            model=model,
            layouts=tuple(layouts),
            slots=torch.tensor(padded, dtype=torch.long, device=device).reshape(len(layouts), width),
            widths=torch.tensor([len(layout.region) for layout in layouts], device=device),
            banned=torch.tensor(sorted(set(banned)), dtype=torch.long, device=device),
            log_probs=log_probs,
            state=state,
            scores=scores,
        )

    def select(self, examples: Tensor) -> Opening:
        widths = self.widths[examples]
        return replace(
            self,
            layouts=tuple(self.layouts[example] for example in examples.tolist()),
            slots=self.slots[examples, : int(widths.max())],
            widths=widths,
            log_probs=self.log_probs[examples],
            state=select_rows(self.state, examples),
            scores=self.scores[examples],
        )

    def step(self, tokens: Tensor, state: State, slot: int) -> tuple[Tensor, State]:
        log_probs, state = self.model.step(tokens, state)
        _check_output(self.name, f"step() at slot {slot}", self.model.vocab_size, len(tokens), log_probs, state)
        return log_probs, state


@dataclass(frozen=True)
class Choice:
    """The extensions chosen at one slot, n examples x K; in no particular order."""

    tokens: Tensor  # (n, K)
    parents: Tensor  # (n, K) the partial fill extended
    scores: Tensor  # (n, K) running score under this model alone; -inf marks a dead beam
    ranking: Tensor  # (n, K) what it was chosen by

    def take(self, order: Tensor) -> Choice:
        return Choice(*(t.gather(1, order) for t in (self.tokens, self.parents, self.scores, self.ranking)))

    def select(self, examples: Tensor) -> Choice:
        return Choice(*(t[examples] for t in (self.tokens, self.parents, self.scores, self.ranking)))

    def first(self, count: int) -> Choice:
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
    expansions: tuple[Expansion, ...]  # slot w, or empty where they were not kept
    messages: Tensor | None  # (N, W, V) for the opposite pass, in this pass's reading order
    settled: Tensor  # (N,) every frontier equals that of the previous pass in this direction

    def select(self, examples: Tensor) -> Pass:
        """Keep some examples, given in their present order."""
        within = [examples[examples < len(choice.tokens)] for choice in self.choices]
        width = sum(len(rows) > 0 for rows in within)
        return Pass(
            tuple(choice.select(rows) for choice, rows in zip(self.choices[:width], within, strict=False)),
            tuple(kept.select(rows) for kept, rows in zip(self.expansions[:width], within, strict=False)),
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


def top_k(ranked: Tensor, k: int, slot: int = 0, *, block: int = 128) -> tuple[Tensor, Tensor]:
    """The k largest of each row (n, M). On long rows first the k best blocks, since those hold the k best values."""
    num_values = ranked.shape[1]
    num_blocks = num_values // block
    if num_blocks < 4 * k:
        return ranked.topk(k)
    whole = num_blocks * block
    best = ranked[:, :whole].reshape(-1, num_blocks, block).amax(2)  # (n, blocks)
    if whole < num_values:
        best = torch.cat([best, ranked[:, whole:].amax(1, keepdim=True)], 1)
    blocks = best.topk(k, sorted=False).indices  # (n, k)
    places = (blocks[..., None] * block + torch.arange(block, device=ranked.device)).flatten(1)  # (n, k * block)
    values = ranked.gather(1, places.clamp(max=num_values - 1)).masked_fill(places >= num_values, -torch.inf)
    values, picks = values.topk(k)
    return values, places.gather(1, picks)


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
    such a look-up, `send` makes messages for the opposite pass.
    """
    device, num_examples, vocab_size = opening.slots.device, len(opening.layouts), opening.model.vocab_size
    counts = [int((opening.widths > slot).sum()) for slot in range(opening.slots.shape[1])]
    sent = opening.log_probs.new_empty(num_examples, len(counts), vocab_size) if send else None
    settled = (opening.widths == 0) | (previous is not None)
    work = opening.log_probs.new_empty(0)
    choices: list[Choice] = []
    expansions: list[Expansion] = []
    for slot, count in enumerate(counts):
        if slot == 0:
            expansion = Expansion(opening.log_probs[:count, None], opening.state)
            scores = opening.log_probs.new_zeros(count, 1)
            known = settled[:count, None]
        else:
            choice = choices[-1].first(count)
            scores, known = choice.scores, known[:count]
            settled[:count] &= (known | ~choice.alive).all(1)
            old = previous.expansions[slot] if previous and previous.expansions else None
            expansion = _advance(opening, expansion, choice, known, old, slot)
        if work.numel() < expansion.log_probs.numel():
            work = torch.empty_like(expansion.log_probs).flatten()
        extended = work[: expansion.log_probs.numel()].view(expansion.log_probs.shape)
        torch.add(expansion.log_probs, scores[:, :, None], out=extended)  # (n, K, V)
        if sent is not None:
            sent[:count, slot] = extended.amax(1)
        message = None
        if messages is not None:
            far_slots = opening.widths[:count] - 1 - slot
            message = messages[torch.arange(count, device=device), far_slots]  # (n, V)
        index, ranking = _choose(opening, extended, message, slot, num_beams, choose)
        if bool((ranking[:, 0] == -torch.inf).any()) and message is not None:
            # Nothing here connects to the far side's beams. They say nothing of other far sides: go on without them.
            torch.add(expansion.log_probs, scores[:, :, None], out=extended)
            cut_off = (ranking == -torch.inf).all(1, keepdim=True)
            plain = _choose(opening, extended, None, slot, num_beams, choose)
            index, ranking = torch.where(cut_off, plain[0], index), torch.where(cut_off, plain[1], ranking)
        tokens, parents = index % vocab_size, index // vocab_size  # (n, K)
        running = expansion.log_probs.flatten(1).gather(1, index) + scores.gather(1, parents)
        choice = Choice(tokens, parents, running.masked_fill(ranking == -torch.inf, -torch.inf), ranking)
        if previous is not None:
            choice, known = _align(choice, previous.choices[slot], known)
        choices.append(choice)
        if keep:
            expansions.append(expansion)
    return Pass(tuple(choices), tuple(expansions), sent, settled)


def _choose(
    opening: Opening, extended: Tensor, message: Tensor | None, slot: int, num_beams: int, choose: Chooser
) -> tuple[Tensor, Tensor]:
    """The best B of the extensions (n, K, V), which are ranked in place: indices (n, B) into K * V, and rankings."""
    count, num_parents, vocab_size = extended.shape
    fixed = opening.slots[:count, slot, None]  # (n, 1)
    if message is None and not bool((fixed != FREE).any()):
        extended.index_fill_(2, opening.banned, -torch.inf)
    else:
        told = extended.new_zeros(count, vocab_size) if message is None else message
        steer = told.index_fill(1, opening.banned, -torch.inf)  # (n, V)
        bound = (fixed[:, 0] != FREE).nonzero().flatten()
        if len(bound):
            place = fixed[bound]
            steer[bound] = steer.new_full((len(bound), vocab_size), -torch.inf).scatter(
                1, place, told[bound].gather(1, place)
            )
        extended += steer[:, None]
    ranking, index = choose(extended.flatten(1), min(num_beams, num_parents * vocab_size), slot)
    return index, ranking


def _align(choice: Choice, old: Choice, known: Tensor) -> tuple[Choice, Tensor]:
    """Move each extension that `old` also holds to its place there. Returns the choice and (n, K) which those are.

    `known` (n, K) says the same of the partial fills that were extended, so equal parents are equal histories.
    """
    same = (choice.parents[:, :, None] == old.parents[:, None]) & (choice.tokens[:, :, None] == old.tokens[:, None])
    same &= (choice.alive & known.gather(1, choice.parents))[:, :, None] & old.alive[:, None]  # (n, K, K)
    found, place = same.any(2), same.long().argmax(2)
    taken = same.any(1)
    vacant = taken.long().argsort(dim=1, stable=True)  # the vacant places, in order, come first
    place = torch.where(found, place, vacant.gather(1, (~found).long().cumsum(1).sub(1).clamp(min=0)))
    order = place.argsort(1)  # place is a permutation: this is its inverse
    return choice.take(order), found.gather(1, order)


def _advance(
    opening: Opening, expansion: Expansion, choice: Choice, known: Tensor, old: Expansion | None, slot: int
) -> Expansion:
    """Step the model into `slot`, or look up what the previous pass was told there."""
    count, width = choice.tokens.shape
    first_rows = torch.arange(count, device=known.device)[:, None] * expansion.log_probs.shape[1]
    rows, tokens = (first_rows + choice.parents).flatten(), choice.tokens.flatten()  # (n * K,)
    if old is None:
        log_probs, state = opening.step(tokens, select_rows(expansion.state, rows), slot)
        return Expansion(log_probs.view(count, width, -1), state)
    stale = (choice.alive & ~known).flatten().nonzero().flatten()
    if not len(stale):
        return old
    log_probs, state = opening.step(tokens[stale], select_rows(expansion.state, rows[stale]), slot)
    told = old.log_probs if old.owned else old.log_probs.clone(memory_format=torch.contiguous_format)
    told.flatten(0, 1).index_copy_(0, stale, log_probs)
    return Expansion(told, replace_rows(old.state, stale, state), owned=True)


def _check_output(name: str, call: str, vocab_size: int, num_rows: int, log_probs: Tensor, state: State) -> None:
    if log_probs.shape != (num_rows, vocab_size):
        raise ValueError(
            f"the {name} model's {call} must return log_probs ({num_rows}, {vocab_size}), "
            f"but returned {tuple(log_probs.shape)}"
        )

    def check(tensor: Tensor) -> Tensor:
        if tensor.dim() == 0 or len(tensor) != num_rows:
            raise ValueError(
                f"the {name} model's {call} must return a state of {num_rows} rows, "
                f"but one of its tensors has shape {tuple(tensor.shape)}"
            )
        return tensor

    map_state(check, state)
    peak = float(log_probs.max())  # NaN and +inf survive a maximum
    if not peak < torch.inf:
        raise ValueError(f"the {name} model's {call} returned a log probability of {peak}")
