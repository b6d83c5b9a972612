"""How things are timed: cases in turn, several times, medians and ratios taken within one run.

A machine's speed drifts from minute to minute: what is to be compared runs side by side, and the ratio is what counts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

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


def show(console: Console, title: str, timings: list[Timing], against: str | None = None) -> None:
    """Prints medians, spreads, and ratios to the case named ``against``."""
    table = Table(title=title, title_justify="left")
    for heading in ("case", "median s", "min s", "max s", "runs", f"ratio to {against}" if against else "", "note"):
        table.add_column(heading, justify="left" if heading in ("case", "note") else "right")
    base = next((timing.median for timing in timings if timing.name == against), None)
    for timing in timings:
        ratio = f"{timing.median / base:.2f}" if base else ""
        low, high = min(timing.seconds), max(timing.seconds)
        cells = (f"{timing.median:.3f}", f"{low:.3f}", f"{high:.3f}", str(len(timing.seconds)), ratio, timing.note)
        table.add_row(timing.name, *cells)
    console.print(table)
