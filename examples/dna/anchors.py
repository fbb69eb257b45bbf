"""The naive way to fill a gap: find what stands on either side in the references, and copy what stands between."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from bibs.dna import LetterGap

COMPLEMENT = str.maketrans("ACGT", "TGCA")


class Anchors:
    """Anchors of `size` letters, as near to the gap as both are found at the right distance on one strand.

    The right distance is known, as it is to the search. Of several copies the most frequent is taken.
    """

    def __init__(self, references: Sequence[str], size: int = 12, reach: int = 80) -> None:
        self.strands = [*references, *(letters[::-1].translate(COMPLEMENT) for letters in references)]
        self.size, self.reach = size, reach
        self.places: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for number, letters in enumerate(self.strands):
            for place in range(len(letters) - size + 1):
                self.places[letters[place : place + size]].append((number, place))

    def __call__(self, gap: LetterGap) -> str | None:
        lefts = [gap.left[-self.size - away : len(gap.left) - away] for away in range(self.reach - self.size)]
        rights = [gap.right[away : away + self.size] for away in range(self.reach - self.size)]
        behind = [{(n, place - away) for n, place in self.places.get(text, ())} for away, text in enumerate(rights)]
        for total in range(2 * len(lefts) - 1):  # how far the two anchors are away, together
            for away in range(max(0, total - len(rights) + 1), min(total, len(lefts) - 1) + 1):
                found: Counter[str] = Counter()
                for number, place in self.places.get(lefts[away], ()):
                    start = place + self.size + away
                    if (number, start + gap.length) in behind[total - away]:
                        found[self.strands[number][start : start + gap.length]] += 1
                if found:
                    return found.most_common(1)[0][0]
        return None
