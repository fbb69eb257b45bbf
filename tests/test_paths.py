"""The example of paths through checkpoints, on a small city: its map, its models, its answers."""

from __future__ import annotations

import math
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch

EXAMPLE = Path(__file__).parent.parent / "examples" / "paths"


@pytest.fixture(scope="module")
def run():
    """The modules of the example, which is no package."""
    sys.path.insert(0, str(EXAMPLE))
    names = ("city", "model", "run")
    try:
        import run

        yield run
    finally:
        sys.path.remove(str(EXAMPLE))
        for name in names:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def planner(run):
    city = run.make_city(size=6, bridges=2, seed=3)
    return run.Planner(city, run.make_trips(city, 1_500, seed=4))


def test_a_city_is_the_same_for_the_same_seed_and_has_one_way_streets(run):
    city, again = run.make_city(size=6, seed=3), run.make_city(size=6, seed=3)
    assert city == again
    assert any((there, here) not in city.costs for here, there in city.costs)


def test_the_cheapest_way_is_the_cheapest_of_all(planner):
    """Judged by Bellman and Ford's: every street relaxed as often as there are crossings."""
    city = planner.city
    best = [[math.inf] * len(city.places) for _ in city.places]
    for start, row in enumerate(best):
        row[start] = 0.0
        for _ in city.places:
            for (here, there), cost in city.costs.items():
                row[there] = min(row[there], row[here] + cost)
    for start in range(0, len(city.places), 5):
        for goal in range(len(city.places)):
            assert city.cost(city.cheapest(start, goal)) == pytest.approx(best[start][goal])


def test_the_table_holds_the_counts_of_trips(planner):
    trips = planner.trips
    for model, trips_read in zip(planner.pair, (trips, [trip[::-1] for trip in trips]), strict=True):
        assert torch.allclose(model.table.exp().sum(2), torch.ones(1).double())
        z, here = trips_read[0][-1], trips_read[0][0]
        bound = [t[t.index(here) + 1] for t in trips_read if here in t and z in t and t.index(here) < t.index(z)]
        moves = [b for t in trips_read for a, b in pairwise(t) if a == here]
        for y in set(moves):
            new = len(set(bound))
            expected = (bound.count(y) + new * moves.count(y) / len(moves)) / (len(bound) + new)
            assert float(model.table[z, here, y].exp()) == pytest.approx(expected)


def test_every_way_goes_by_its_checkpoints_over_streets_and_costs_no_less_than_the_best(run, planner):
    city, problems = planner.city, run.draw_problems(planner.city, 15, seed=5)
    ways = planner.solve(problems, "bibs")
    for problem, way in zip(problems, ways, strict=True):
        assert (way[0], way[-1]) == (problem[0], problem[-1])
        assert problem[1] in way
        assert city.invalid_moves(way) == 0
        assert city.cost(way) >= city.cost(run.best_way(city, problem)) - 1e-9
    total, best = (sum(map(city.cost, some)) for some in (ways, [run.best_way(city, each) for each in problems]))
    assert total < 1.03 * best


def test_a_template_leaves_room_for_the_best_way(run, planner):
    for problem in run.draw_problems(planner.city, 30, seed=6):
        slots = planner.template(problem)
        for gap, (here, there) in zip(slots[1::2], pairwise(problem), strict=True):
            assert gap.minimum <= len(planner.city.cheapest(here, there)) - 2 <= gap.maximum
