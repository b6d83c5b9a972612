"""What a run measured: printed as it comes, and kept as a page.

The page opens with the verdicts on the targets; then the machine, the versions and the day; then each question with
what was said, its tables and pictures in the order in which they came. A ratio is always of one run.
"""

from __future__ import annotations

import datetime as dt
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks import peers, pictures, targets
from benchmarks.measure import Timing
from benchmarks.pictures import Curves
from benchmarks.targets import Verdict

_OPENING = (
    "A figure is of the size at which its question was asked, which stands with the question. The fewer the rows, the "
    "more of a ratio is Spark's own time to plan and start jobs; a target that names a size is of that size."
)
_WIDTH = 160
_SHOWN = ("pyspark", "pyarrow", "apache-airflow", "obstore")


@dataclass(frozen=True)
class Section:
    """One table of figures; ``timings`` or ``curves`` are what its picture shows."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    timings: tuple[Timing, ...] = ()
    curves: Curves | None = None

    @property
    def slug(self) -> str:
        """Its title as a name of a file."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")[:60]


@dataclass
class Chapter:
    """One question: tables and what was said beside them, in their order."""

    title: str
    parts: list[Section | str] = field(default_factory=list)


class Report:
    """Collects what a run measured."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(width=_WIDTH)
        self.chapters: list[Chapter] = []
        self.verdicts: list[Verdict] = []
        self.console.print(machine())

    @property
    def sections(self) -> list[Section]:
        return [part for chapter in self.chapters for part in chapter.parts if isinstance(part, Section)]

    def chapter(self, title: str, text: str = "") -> None:
        """What comes from now on answers this question."""
        self.chapters.append(Chapter(title))
        self.console.rule(title)
        if text:
            self.say(text)

    def timings(self, title: str, timings: Sequence[Timing], against: str | None = None) -> None:
        """Medians, spreads, and ratios to the case named ``against``; counts and memory where a case told them."""
        base = next((timing.median for timing in timings if timing.name == against), None)
        columns: dict[str, list[str]] = {
            "case": [timing.name for timing in timings],
            "median s": [_seconds(timing.median) for timing in timings],
            "min s": [_seconds(min(timing.seconds)) for timing in timings],
            "max s": [_seconds(max(timing.seconds)) for timing in timings],
            "runs": [str(len(timing.seconds)) for timing in timings],
            f"ratio to {against}": [f"{timing.median / base:.2f}" if base else "" for timing in timings],
            "rows": [_count(timing, "rows") for timing in timings],
            "MB": [f"{timing.counts['bytes'] / 1e6:,.1f}" if "bytes" in timing.counts else "" for timing in timings],
            "files": [_count(timing, "files") for timing in timings],
            "peak MiB": [f"{timing.peak / 2**20:,.0f}" if timing.peak else "" for timing in timings],
            "note": [timing.note for timing in timings],
        }
        filled = {heading: cells for heading, cells in columns.items() if any(cells)}
        rows = list(zip(*filled.values(), strict=True))
        self._add(Section(title, tuple(filled), tuple(rows), tuple(timings)))

    def table(self, title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Figures that are no times of cases."""
        self._add(Section(title, tuple(headings), tuple(map(tuple, rows))))

    def curves(self, title: str, lines: Mapping[str, Sequence[tuple[float, float]]], x: str, y: str) -> None:
        """Lines over a quantity that grows, on two logarithmic axes; as a table too, a column to each ``x``."""
        places = sorted({point[0] for points in lines.values() for point in points})
        rows = []
        for name, points in lines.items():
            at = dict(points)
            rows.append((name, *(_seconds(at[place]) if place in at else "" for place in places)))
        headings = (f"{y}, by {x}", *(f"{place:,.0f}" for place in places))
        drawn = Curves({name: tuple(points) for name, points in lines.items()}, x, y)
        self._add(Section(title, headings, tuple(rows), curves=drawn))

    def say(self, text: str) -> None:
        """A line that belongs to the figures before it, or opens the question."""
        self._parts().append(text)
        self.console.print(escape(text))

    def verdict(self, target: int, what: str, measured: float) -> Verdict:
        """Holds a figure against its target.

        :param what: the key of the figure, alone or before a colon and the case; free where the target has one figure.
        :param measured: in the unit that the figure has in ``benchmarks/targets.py``.
        :raises ValueError: the target has no such figure.
        """
        verdict = Verdict(target, what, float(measured))
        number, meaning, figure, limit, met = verdict.cells()
        self.verdicts.append(verdict)
        self.console.print(f"target {number}: {escape(meaning)}: {figure}, asked {limit}: {met.strip('*')}")
        return verdict

    def _parts(self) -> list[Section | str]:
        if not self.chapters:
            self.chapters.append(Chapter("Figures"))
        return self.chapters[-1].parts

    def _add(self, section: Section) -> None:
        self._parts().append(section)
        left = (section.headings[0], "note")
        shown = Table(title=section.title, title_justify="left")
        for heading in section.headings:
            shown.add_column(heading, justify="left" if heading in left else "right")
        for row in section.rows:
            shown.add_row(*row)
        self.console.print(shown)

    def write(self, page: Path) -> None:
        """Writes the page and, beside it in ``plots/``, its pictures."""
        plots = page.parent / "plots"
        plots.mkdir(parents=True, exist_ok=True)
        lines = ["# Measured", "", _OPENING, "", *_table(targets.HEADINGS, targets.table(self.verdicts)), machine(), ""]
        for chapter in self.chapters:
            lines += [f"## {chapter.title}", ""]
            for part in chapter.parts:
                lines += _said(part) if isinstance(part, str) else _shown(part, plots)
        page.write_text("\n".join(lines))


def machine() -> str:
    """The machine, the versions (of the peers met too) and the day."""
    ours = {name: version(name) for name in _SHOWN}
    versions = ", ".join(f"{name} {number}" for name, number in {**ours, **peers.versions_met}.items())
    return (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {_memory()} GiB; "
        f"Python {platform.python_version()}, {versions}; {dt.datetime.now(dt.UTC):%Y-%m-%d}"
    )


def _memory() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)


def _seconds(figure: float) -> str:
    return f"{figure:.3f}" if figure >= 0.1 else f"{figure:.5f}"


def _count(timing: Timing, name: str) -> str:
    return f"{timing.counts[name]:,}" if name in timing.counts else ""


def _shown(section: Section, plots: Path) -> list[str]:
    lines = [f"### {section.title}", "", *_table(section.headings, section.rows)]
    if len(section.timings) > 1:
        pictures.bars(section.timings, plots / f"{section.slug}.svg")
    elif section.curves is not None:
        pictures.lines(section.curves, plots / f"{section.slug}.svg")
    else:
        return lines
    return [*lines, f"![{section.title}](plots/{section.slug}.svg)", ""]


def _said(text: str) -> list[str]:
    if "\n" in text:
        return ["```text", text, "```", ""]
    return [text, ""]


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [_line(headings), _line(["---"] * len(headings)), *map(_line, rows), ""]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
