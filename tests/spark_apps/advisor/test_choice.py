"""The choice within a budget, against all sets that there are."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import chain, combinations

import pytest

from spark_apps.advisor.choice import Set, choose


def _worth(rng: random.Random, things: int) -> Callable[[Set], float]:
    """Queries of which each is served as well as by the best of a set, some of them best by two together."""
    alone = [[rng.random() ** 3 * 100 for _ in range(things)] for _ in range(12)]
    pairs = [{frozenset(rng.sample(range(things), 2)): rng.random() * 150} for _ in alone]

    def worth(chosen: Set) -> float:
        total = 0.0
        for served, together in zip(alone, pairs, strict=True):
            best = max((served[number] for number in chosen), default=0.0)
            total += max([best, *(value for pair, value in together.items() if pair <= chosen)])
        return total

    return worth


@pytest.mark.parametrize("seed", range(12))
def test_given_few_to_choose_from_when_chosen_then_no_set_of_up_to_four_is_worth_more(seed: int) -> None:
    rng = random.Random(seed)
    things = rng.randrange(5, 10)
    costs = [(rng.random() * 10, rng.random() * 5) for _ in range(things)]
    limits = (rng.uniform(5, 25), rng.uniform(3, 15))
    worth = _worth(rng, things)

    chosen = choose(costs, limits, worth)

    sets = chain.from_iterable(combinations(range(things), count) for count in range(5))
    best = max(
        worth(frozenset(members))
        for members in sets
        if all(sum(costs[number][n] for number in members) <= limit for n, limit in enumerate(limits))
    )
    assert all(sum(costs[number][n] for number in chosen) <= limit for n, limit in enumerate(limits))
    assert worth(chosen) >= best


def test_given_many_to_choose_from_when_chosen_greedily_then_it_is_close_to_the_best_of_four() -> None:
    rng = random.Random(4)
    things = 40
    costs = [(1.0, 0.0)] * things
    worth = _worth(rng, things)

    chosen = choose(costs, (4.0, 0.0), worth)

    best = max(worth(frozenset(members)) for members in combinations(range(things), 3))
    assert len(chosen) <= 4 and worth(chosen) >= 0.9 * best


def test_given_members_that_add_nothing_when_chosen_then_they_are_left_out() -> None:
    worth = {frozenset(): 0.0, frozenset((0,)): 10.0, frozenset((1,)): 10.0, frozenset((0, 1)): 10.5}
    assert len(choose([(1,), (1,)], (5,), worth.__getitem__, least=1.0)) == 1
    assert choose([(1,), (1,)], (5,), worth.__getitem__) == frozenset((0, 1))
    assert choose([(9,), (9,)], (5,), worth.__getitem__) == frozenset()
    assert choose([], (5,), worth.__getitem__) == frozenset()
