"""Pictures of what was measured, as SVG: bars of cases side by side, and lines over what grows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import Timing

_WIDE = 30  # the longest case over the shortest, from which a logarithmic axis shows both


@dataclass(frozen=True)
class Curves:
    """Points of lines by name, and what the axes are."""

    points: Mapping[str, tuple[tuple[float, float], ...]]
    x: str
    y: str


def bars(timings: Sequence[Timing], path: Path) -> None:
    """A bar to each case: its median, with its least and most."""
    shown = timings[::-1]
    medians = [timing.median for timing in shown]
    spread = [
        [timing.median - min(timing.seconds) for timing in shown],
        [max(timing.seconds) - timing.median for timing in shown],
    ]
    with _axes((8, 0.6 + 0.4 * len(shown)), path) as axes:
        names = [timing.name for timing in shown]
        axes.barh(names, medians, xerr=spread, color="#4c8bbf", ecolor="#333333", capsize=3)
        if max(medians) > _WIDE * min(medians) > 0:
            axes.set_xscale("log")
        axes.set_xlabel("seconds: median, least and most")


def lines(curves: Curves, path: Path) -> None:
    """A line to each name, both axes logarithmic."""
    with _axes((8, 4.5), path) as axes:
        for name, points in curves.points.items():
            xs, ys = zip(*sorted(points), strict=True)
            axes.plot(xs, ys, marker="o", label=name)
        axes.set(xscale="log", yscale="log", xlabel=curves.x, ylabel=curves.y)
        axes.grid(visible=True, which="major", color="#dddddd")
        axes.legend(frameon=False)


@contextmanager
def _axes(size: tuple[float, float], path: Path) -> Iterator[Any]:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = path.name  # the same figures give the same file
    figure, axes = pyplot.subplots(figsize=size, layout="constrained")
    try:
        yield axes
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, metadata={"Date": None})
    finally:
        pyplot.close(figure)
