"""From a start by way of a checkpoint to a goal, in a city known only from trips that people made.

    python examples/paths/run.py --picture paths.png

The template is `start ___ checkpoint ___ goal`. The two models are counts of trips (model.py); neither knows a cost, or
the map. Dijkstra's algorithm knows both, and says what the best way costs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from city import City, make_city, make_trips
from model import count_pair

from bibs import Gap, fill_templates
from bibs.lengths import LengthPrior, LengthWeights

METHODS = {"forward": "left to right", "backward": "right to left", "rerank-sum": "both, re-ranked", "bibs": "BiBS"}
MORE_MOVES = 6
"""How many moves more than the fewest a way between two checkpoints may have."""

NO_BONUS = LengthWeights(0.0, 0.0)
PLAIN = LengthPrior(sum=NO_BONUS, max=NO_BONUS, forward=NO_BONUS, backward=NO_BONUS, join=NO_BONUS)
"""A way is as good as it is probable, however many moves it has."""

Problem = tuple[int, ...]


@dataclass(frozen=True)
class Planner:
    """What trips have taught: two models, and which moves are possible at all."""

    city: City
    trips: Sequence[Sequence[int]]

    def __post_init__(self) -> None:
        moves = {move: 1.0 for trip in self.trips for move in pairwise(trip)}
        object.__setattr__(self, "seen", City(self.city.places, moves, ()))
        object.__setattr__(self, "pair", count_pair(self.trips, len(self.city.places)))

    def template(self, problem: Problem) -> list[int | Gap]:
        slots: list[int | Gap] = [problem[0]]
        for here, there in pairwise(problem):
            fewest = len(self.seen.cheapest(here, there)) - 2  # crossings between the two
            slots += [Gap(fewest, fewest + MORE_MOVES), there]
        return slots

    def solve(self, problems: Sequence[Problem], method: str, num_beams: int = 5) -> list[list[int]]:
        """A way for each problem, empty where none was found."""
        templates = [self.template(problem) for problem in problems]
        checkpoints = [list(problem) for problem in problems]
        options = {"method": method, "num_beams": num_beams, "length_prior": PLAIN}
        found = fill_templates(*self.pair, templates, conditions=checkpoints, **options)
        return [list(fills[0].tokens) if fills else [] for fills in found]


def draw_problems(city: City, count: int, seed: int) -> list[Problem]:
    random = np.random.default_rng(seed)
    return [tuple(random.choice(len(city.places), 3, replace=False).tolist()) for _ in range(count)]


def best_way(city: City, problem: Problem) -> list[int]:
    return [problem[0], *(crossing for leg in pairwise(problem) for crossing in city.cheapest(*leg)[1:])]


def describe(city: City, ways: Sequence[list[int]], best: Sequence[list[int]], seconds: float) -> str:
    """Over all problems: how often the way can be driven, and how much longer than the best it then takes."""
    valid = [bool(way) and not city.invalid_moves(way) for way in ways]
    ratios = np.array([city.cost(a) / city.cost(b) for a, b, fine in zip(ways, best, valid, strict=True) if fine])
    means = np.random.default_rng(0).choice(ratios, (2_000, len(ratios))).mean(1)
    low, high = 100 * (np.quantile(means, [0.025, 0.975]) - 1)
    same = np.mean([a == b for a, b in zip(ways, best, strict=True)])
    text = f"{np.mean(valid):7.1%} without an invalid move   {100 * (ratios.mean() - 1):5.2f} % [{low:.2f}, {high:.2f}]"
    return f"{text} dearer than the best   {same:5.1%} the best   {1000 * seconds / len(ways):5.1f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=1_000)
    parser.add_argument("--trips", type=int, default=5_000)
    parser.add_argument("--num-beams", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_args()
    city = make_city(seed=arguments.seed)
    one_way = sum((there, here) not in city.costs for here, there in city.costs)
    print(f"{len(city.places)} crossings, {len(city.costs)} streets by direction, {one_way} of them one-way")
    planner = Planner(city, make_trips(city, arguments.trips, seed=arguments.seed + 1))
    problems = draw_problems(city, arguments.problems, seed=arguments.seed + 2)
    best = [best_way(city, problem) for problem in problems]
    ways = {}
    for method, label in METHODS.items():
        before = time.process_time()
        ways[method] = planner.solve(problems, method, arguments.num_beams)
        print(f"{label:<16}{describe(city, ways[method], best, time.process_time() - before)}", flush=True)
    if arguments.picture:
        from picture import draw

        draw(planner, problems, ways, best, arguments.picture)


if __name__ == "__main__":
    main()
