"""A city made from a seed: crossings, streets of which some are one-way, a river with a few bridges, and trips.

People know the city by and large: a trip is the cheapest way under costs that are a little off, in each trip anew.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

Street = tuple[int, int]


@dataclass(frozen=True)
class City:
    places: tuple[tuple[float, float], ...]  # of the crossings
    costs: dict[Street, float]  # minutes from one crossing to the next; a one-way street has one direction only
    river: tuple[tuple[float, float], ...]

    @cached_property
    def neighbours(self) -> dict[int, list[int]]:
        """The crossings that can be reached from each."""
        found: dict[int, list[int]] = {crossing: [] for crossing in range(len(self.places))}
        for here, there in self.costs:
            found[here].append(there)
        return found

    def cost(self, path: Sequence[int]) -> float:
        """Minutes; infinite where a move is impossible."""
        return sum(self.costs.get(street, math.inf) for street in pairwise(path))

    def invalid_moves(self, path: Sequence[int]) -> int:
        return sum(street not in self.costs for street in pairwise(path))

    def cheapest(self, start: int, goal: int, cost: Callable[[Street], float] | None = None) -> list[int]:
        """Dijkstra's way from start to goal."""
        cost = cost or self.costs.__getitem__
        best: dict[int, tuple[float, int]] = {}
        waiting = [(0.0, start, start)]
        while waiting:
            minutes, here, before = heapq.heappop(waiting)
            if here in best:
                continue
            best[here] = minutes, before
            if here == goal:
                break
            for there in self.neighbours[here]:
                if there not in best:
                    heapq.heappush(waiting, (minutes + cost((here, there)), there, here))
        path = [goal]
        while path[-1] != start:
            path.append(best[path[-1]][1])
        return path[::-1]


def make_city(size: int = 12, bridges: int = 3, seed: int = 0) -> City:
    """A grid of size x size crossings, a little out of line. Every crossing can be reached from every other."""
    random = np.random.default_rng(seed)
    spots = {(x, y): (x + random.normal(0, 0.13), y + random.normal(0, 0.13)) for x in range(size) for y in range(size)}
    middle = [size / 2 - 0.5 + 0.18 * size * math.sin(2.2 * math.pi * x / size) for x in range(size)]
    crossed = set(random.choice(size, bridges, replace=False).tolist())
    costs: dict[tuple[tuple[int, int], tuple[int, int]], float] = {}
    for x, y in spots:
        for there in ((x + 1, y), (x, y + 1)):
            if there not in spots:
                continue
            over = (y < middle[x]) != (there[1] < middle[there[0]])
            if (over and (x != there[0] or x not in crossed)) or (not over and random.random() < 0.08):
                continue
            avenue = (y if there[0] > x else x) % 4 == 1
            minutes = math.dist(spots[x, y], spots[there]) * (0.6 if avenue else random.uniform(0.9, 1.6))
            costs[(x, y), there] = costs[there, (x, y)] = minutes
            if not over and random.random() < 0.3:
                del costs[((x, y), there) if random.random() < 0.5 else (there, (x, y))]
    kept = sorted(_reached(costs, (1, 1)) & _reached({(b, a): c for (a, b), c in costs.items()}, (1, 1)))
    numbers = {spot: number for number, spot in enumerate(kept)}
    within = {(numbers[a], numbers[b]): c for (a, b), c in costs.items() if a in numbers and b in numbers}
    return City(tuple(spots[spot] for spot in kept), within, tuple((x, middle[x] - 0.5) for x in range(size)))


def make_trips(city: City, count: int, seed: int, noise: float = 0.25) -> list[list[int]]:
    """Cheapest ways between random crossings, under costs that are wrong by about `noise`."""
    random = np.random.default_rng(seed)
    streets = list(city.costs)
    trips = []
    while len(trips) < count:
        start, goal = random.integers(len(city.places), size=2).tolist()
        if start == goal:
            continue
        factors = np.exp(random.normal(0, noise, len(streets)))
        believed = {street: city.costs[street] * factor for street, factor in zip(streets, factors, strict=True)}
        trips.append(city.cheapest(start, goal, believed.__getitem__))
    return trips


def _reached(
    costs: dict[tuple[tuple[int, int], tuple[int, int]], float], start: tuple[int, int]
) -> set[tuple[int, int]]:
    after: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for here, there in costs:
        after.setdefault(here, []).append(there)
    found, waiting = {start}, [start]
    while waiting:
        for there in after.get(waiting.pop(), ()):
            if there not in found:
                found.add(there)
                waiting.append(there)
    return found
