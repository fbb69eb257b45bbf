"""From templates to fills: contexts are read once, and layouts are searched together, as many as fit in memory.

A batch of templates has two trees, which die with it. Between two searches they forget what they have read, where it
has become too much. So the memory of a call follows from vocabulary, widths and a budget, whatever is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple, Protocol, TypeAlias

from torch import Tensor

from .beam import Rules, Side
from .model import Conditions, ScoringModel
from .prefixes import Prefixes
from .problem import Fill, Gap, Layout, Settings, Template
from .rescore import Batch

ROWS_AT_ONCE = 320
"""Layouts x beams that are searched together unless told otherwise: more is slower, fewer waste the matrix products."""

NODES_PER_SLOT = 4
"""About how many nodes the two trees have in the end for each slot and beam."""

Method: TypeAlias = Callable[[Batch, Settings], list[list[Fill]]]


class Constraints(Protocol):
    """What holds for each template of a batch, whatever the lengths of its gaps."""

    def groups(self, template: int) -> tuple[int, ...]:
        """How many groups of beams its rules need, as factors: templates with other factors are searched apart."""
        ...

    def rules(self, layouts: Sequence[Layout], templates: Sequence[int], like: Tensor, *, turned: bool) -> Rules:
        """The rules for layouts of these templates, all with the same groups, which are read from left to right or
        `turned`; `like` has the type of scores."""
        ...


@dataclass(frozen=True)
class Trees:
    """What the two models have read of the templates of a batch; template i is node i of either tree."""

    forward: Prefixes
    backward: Prefixes
    settings: Settings

    @staticmethod
    def of(forward: ScoringModel, backward: ScoringModel, settings: Settings) -> Trees:
        max_nodes = (settings.max_memory << 20) // (8 * forward.vocab_size)  # float32, half the budget each
        max_rows = settings.batch_size * settings.num_beams if settings.batch_size else 4 * ROWS_AT_ONCE
        limits = (max_rows, max_nodes, settings.lookup)
        return Trees(Prefixes(forward, *limits), Prefixes(backward, *limits), settings)

    def begin(self, templates: Sequence[Template], conditions: Conditions = None) -> None:
        """Forget everything, and read the contexts of other templates."""
        gaps = [[token.minimum for token in template if isinstance(token, Gap)] for template in templates]
        layouts = [Layout.of(template, lengths) for template, lengths in zip(templates, gaps, strict=True)]
        self.forward.begin([layout.context for layout in layouts], conditions)
        self.backward.begin([layout.mirrored().context for layout in layouts], conditions)

    def side(self, tree: Prefixes, layouts: Sequence[Layout], templates: Sequence[int], given: Constraints) -> Side:
        """One model before layouts, in its reading order, of these templates."""
        turned = tree is self.backward
        rules = given.rules(layouts, templates, tree.context_scores, turned=turned)
        return Side(tree, layouts, templates, rules, self.settings.num_beams, turned)

    def search(
        self, method: Method, layouts: Sequence[Layout], templates: Sequence[int], constraints: Constraints
    ) -> list[list[Fill]]:
        """The fills of each layout, which is a variant of one of the templates."""
        results: list[list[Fill]] = [[] for _ in layouts]
        groups = map(constraints.groups, templates)
        sizes = [Size(number, len(layout.region)) for number, layout in zip(groups, layouts, strict=True)]
        for batch in cut_into_batches(sizes, self.settings, self.forward.vocab_size):
            for tree in (self.forward, self.backward):
                if tree.is_full:
                    tree.forget()
            owners, chosen = [templates[index] for index in batch], [layouts[index] for index in batch]
            forward = self.side(self.forward, chosen, owners, constraints)
            backward = self.side(self.backward, [layout.mirrored() for layout in chosen], owners, constraints)
            for index, fills in zip(batch, method(Batch(forward, backward), self.settings), strict=True):
                results[index] = fills
        return results


class Size(NamedTuple):
    """What decides with which others a template, or one layout of it, is searched."""

    groups: tuple[int, ...]
    width: int
    outside: int = 0  # tokens around the region
    weight: int = 1  # layouts that it stands for


def cut_into_batches(sizes: Sequence[Size], settings: Settings, vocab_size: int) -> Iterator[list[int]]:
    """The places in `sizes` of what is to be searched together: alike in groups and width, and not too much at once."""
    batch: list[int] = []
    for index in sorted(range(len(sizes)), key=lambda i: (sizes[i].groups, -sizes[i].width, sizes[i].outside)):
        size, widest = sizes[index], sizes[batch[0] if batch else index]
        rows = settings.num_beams * prod(widest.groups)
        bytes_each = 4 * vocab_size * max(1, widest.width) * rows * NODES_PER_SLOT
        room = min(_layouts_at_once(settings) // prod(widest.groups), (settings.max_memory << 20) // bytes_each)
        if batch and (size.groups != widest.groups or sum(sizes[i].weight for i in batch) + size.weight > room):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _layouts_at_once(settings: Settings) -> int:
    return settings.batch_size or max(1, ROWS_AT_ONCE // settings.num_beams)
