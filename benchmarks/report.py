"""What a run measured: printed as it comes, and kept as a page with a picture to each comparison.

The page says what was measured, on which machine, with which versions and when; a ratio is always of one run.
"""

from __future__ import annotations

import datetime as dt
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Timing

_WIDTH = 160
_SHOWN = ("pyspark", "pyarrow", "apache-airflow", "obstore")


@dataclass(frozen=True)
class Section:
    """One table of figures; ``timings`` are what its picture shows."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    timings: tuple[Timing, ...] = ()

    @property
    def slug(self) -> str:
        """Its title as a name of a file."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")[:60]


class Report:
    """Collects the sections of a run."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(width=_WIDTH)
        self.sections: list[Section] = []
        self.console.print(machine())

    def timings(self, title: str, timings: Sequence[Timing], against: str | None = None) -> None:
        """Medians, spreads, and ratios to the case named ``against``."""
        ratio = f"ratio to {against}" if against else ""
        base = next((timing.median for timing in timings if timing.name == against), None)
        rows = [
            (
                timing.name,
                f"{timing.median:.3f}",
                f"{min(timing.seconds):.3f}",
                f"{max(timing.seconds):.3f}",
                str(len(timing.seconds)),
                f"{timing.median / base:.2f}" if base else "",
                timing.note,
            )
            for timing in timings
        ]
        self._add(title, ("case", "median s", "min s", "max s", "runs", ratio, "note"), rows, timings)

    def table(self, title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Figures that are no times of cases."""
        self._add(title, headings, rows)

    def say(self, text: str) -> None:
        """A line that belongs to the figures beside it."""
        self.console.print(text)

    def _add(
        self, title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], timings: Sequence[Timing] = ()
    ) -> None:
        section = Section(title, tuple(headings), tuple(map(tuple, rows)), tuple(timings))
        self.sections.append(section)
        shown = Table(title=title, title_justify="left")
        for heading in headings:
            shown.add_column(heading, justify="left" if heading in (headings[0], "note") else "right")
        for row in section.rows:
            shown.add_row(*row)
        self.console.print(shown)

    def write(self, page: Path) -> None:
        """Writes the page and, beside it in ``plots/``, its pictures."""
        plots = page.parent / "plots"
        plots.mkdir(parents=True, exist_ok=True)
        lines = ["# Measured", "", machine(), ""]
        for section in self.sections:
            lines += [f"## {section.title}", "", _line(section.headings), _line(["---"] * len(section.headings))]
            lines += [*map(_line, section.rows), ""]
            if len(section.timings) > 1:
                _plot(section, plots / f"{section.slug}.svg")
                lines += [f"![{section.title}](plots/{section.slug}.svg)", ""]
        page.write_text("\n".join(lines))


def machine() -> str:
    """The machine, the versions and the day."""
    versions = ", ".join(f"{name} {version(name)}" for name in _SHOWN)
    return (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {_memory()} GiB; "
        f"Python {platform.python_version()}, {versions}; {dt.datetime.now(dt.UTC):%Y-%m-%d}"
    )


def _memory() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _plot(section: Section, path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    timings = section.timings[::-1]
    figure, axes = pyplot.subplots(figsize=(8, 0.6 + 0.4 * len(timings)), layout="constrained")
    medians = [timing.median for timing in timings]
    spread = [
        [timing.median - min(timing.seconds) for timing in timings],
        [max(timing.seconds) - timing.median for timing in timings],
    ]
    axes.barh([timing.name for timing in timings], medians, xerr=spread, color="#4c8bbf", ecolor="#333333", capsize=3)
    axes.set_xlabel("seconds: median, least and most")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
