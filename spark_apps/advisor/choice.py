"""The choice among things of which each costs something, and which are worth something only together.

Small numbers of them are tried in all sets; else sets grow greedily, and members are exchanged as long as that helps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

from spark_apps.advisor.limits import MAX_COMPARED_MEMBERS, MAX_COMPARED_SETS

Set = frozenset[int]


def choose(
    costs: Sequence[Sequence[float]], limits: Sequence[float], worth: Callable[[Set], float], least: float = 0.0
) -> Set:
    """Return the set that is worth most within the limits, as far as it can be found.

    No other set of up to :data:`~spark_apps.advisor.limits.MAX_COMPARED_MEMBERS` is worth more, if there are fewer than
    some twenty to choose from.

    :param costs: of each, in the order of ``limits``. :param worth: of a set; asked about many.
    :param least: what each of the set has to add to the others.
    """
    alone = [number for number, cost in enumerate(costs) if _fits((cost,), limits) and worth(frozenset((number,))) > 0]
    best = frozenset[int]()
    for start in (_exhaustive(alone, costs, limits, worth), _greedy(alone, costs, limits, worth)):
        found = _exchanged(start, alone, costs, limits, worth)
        if worth(found) > worth(best):
            best = found
    return _without_idlers(best, worth, least)


def _fits(costs: Sequence[Sequence[float]], limits: Sequence[float]) -> bool:
    return all(sum(cost[n] for cost in costs) <= limit for n, limit in enumerate(limits))


def _exhaustive(
    alone: Sequence[int], costs: Sequence[Sequence[float]], limits: Sequence[float], worth: Callable[[Set], float]
) -> Set:
    """Return the best set of as many as can be compared."""
    best, best_worth, tried = frozenset[int](), 0.0, 0
    for count in range(1, min(MAX_COMPARED_MEMBERS, len(alone)) + 1):
        sets = list(combinations(alone, count))
        tried += len(sets)
        if tried > MAX_COMPARED_SETS:
            break
        for members in sets:
            if _fits([costs[number] for number in members], limits):
                value = worth(frozenset(members))
                if value > best_worth:
                    best, best_worth = frozenset(members), value
    return best


def _greedy(
    alone: Sequence[int], costs: Sequence[Sequence[float]], limits: Sequence[float], worth: Callable[[Set], float]
) -> Set:
    """Return a set that grew by what adds most, or most for its part of the budget."""
    best = frozenset[int]()
    for by_cost in (False, True):
        chosen = frozenset[int]()
        while True:
            offers = []
            for number in alone:
                grown = chosen | {number}
                if number in chosen or not _fits([costs[one] for one in grown], limits):
                    continue
                gain = worth(grown) - worth(chosen)
                parts = (cost / limit for cost, limit in zip(costs[number], limits, strict=True) if limit)
                offers.append((gain / max(1e-9, *parts) if by_cost else gain, gain, -number))
            if not offers or max(offers)[1] <= 0:
                break
            chosen |= {-max(offers)[2]}
        if worth(chosen) > worth(best):
            best = chosen
    return best


def _exchanged(
    start: Set,
    alone: Sequence[int],
    costs: Sequence[Sequence[float]],
    limits: Sequence[float],
    worth: Callable[[Set], float],
) -> Set:
    """Return a set after members were added, and exchanged for one or none, as long as it became worth more."""
    chosen = start
    while True:
        better = chosen
        for gone in (None, *sorted(chosen)):
            rest = chosen if gone is None else chosen - {gone}
            for number in alone:
                grown = rest | {number}
                fits = number not in chosen and _fits([costs[one] for one in grown], limits)
                if fits and worth(grown) > worth(better):
                    better = grown
        if better == chosen:
            return chosen
        chosen = better


def _without_idlers(chosen: Set, worth: Callable[[Set], float], least: float) -> Set:
    """Return a set without members that add less than they should to the others, the idlest first."""
    while chosen:
        gains = sorted((worth(chosen) - worth(chosen - {number}), number) for number in chosen)
        if gains[0][0] > least:
            break
        chosen -= {gains[0][1]}
    return chosen
