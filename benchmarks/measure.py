"""How things are timed: cases in turn, several times, medians and ratios taken within one run.

A machine's speed drifts from minute to minute: what is to be compared runs side by side, and the ratio is what counts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Case = Callable[[], object]


@dataclass(frozen=True)
class Timing:
    """Seconds that one case took in each repeat."""

    name: str
    seconds: tuple[float, ...]
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def in_turn(cases: Mapping[str, Case], repeats: int = 5, warmup: int = 1) -> list[Timing]:
    """Runs the cases one after the other, ``repeats`` times round, after ``warmup`` rounds that do not count."""
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(warmup + repeats):
        for name, case in cases.items():
            begun = time.perf_counter()
            case()
            if turn >= warmup:
                taken[name].append(time.perf_counter() - begun)
    return [Timing(name, tuple(seconds)) for name, seconds in taken.items()]


def timed(case: Case) -> float:
    """Seconds of one run."""
    begun = time.perf_counter()
    case()
    return time.perf_counter() - begun
