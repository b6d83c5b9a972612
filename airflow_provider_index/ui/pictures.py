"""Geometry of the page's pictures: marks of the log, bars of buckets, days of an index. Templates draw them.

Lengths are in the units of the picture's own ``viewBox``. No colour is known: a mark's class and its shape say what
it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from airflow_provider_index.ui.commits import LANES, Entry
from airflow_provider_index.ui.formatting import plural, size
from spark_apps.timeline.state import Window
from spark_apps.timeline.statistics import PartitionStatistics

STEP = 17.0
MARGIN = 8.0
TOP = 16.0
"""Room for the words above the bars."""
BARS = 56.0
LANE = 22.0
AXIS = 30.0
FEWEST = 36
"""How many commits have room at least: a short log is not blown up."""

_BUCKETS_DRAWN = 128
_BUCKETS_HEIGHT = 44.0


@dataclass(frozen=True)
class Mark:
    """A commit: its middle, the top and height of its two bars (rows below, indexes above)."""

    entry: Entry
    x: float
    y: float
    data_top: float
    data_height: float
    index_top: float
    index_height: float


@dataclass(frozen=True)
class Stretch:
    """From where to where a window was open; ``open_end`` if it still is."""

    x: float
    width: float
    y: float
    open_end: bool
    title: str


@dataclass(frozen=True)
class Tick:
    x: float
    text: str
    above: str = ""


@dataclass(frozen=True)
class TimelinePicture:
    width: float
    height: float
    lanes: tuple[tuple[str, float], ...]
    marks: tuple[Mark, ...]
    stretches: tuple[Stretch, ...]
    ticks: tuple[Tick, ...]
    most: int
    """Bytes of the tallest bar."""


def timeline_picture(entries: Sequence[Entry], windows: Sequence[Window]) -> TimelinePicture:
    """Draw the log from left to right, newest right, one commit a step.

    Heights go by the square root of bytes, so that small commits beside large ones can still be seen.
    """
    room = max(len(entries), FEWEST)
    first = MARGIN + (room - len(entries)) * STEP + STEP / 2
    most = max((entry.bytes for entry in entries), default=0)
    lanes = tuple((lane, TOP + BARS + LANE * (number + 0.5) + 6) for number, lane in enumerate(LANES))
    heights = dict(lanes)
    marks = []
    for number, entry in enumerate(entries):
        whole = BARS * sqrt(entry.bytes / most) if most else 0.0
        index = whole * entry.index_bytes / entry.bytes if entry.bytes else 0.0
        top = TOP + BARS + 2 - whole
        marks.append(Mark(entry, first + number * STEP, heights[entry.lane], top + index, whole - index, top, index))
    width = MARGIN * 2 + room * STEP
    height = TOP + BARS + LANE * len(LANES) + AXIS + 6
    stretches = _stretches(marks, windows, heights["windows"], width)
    return TimelinePicture(width, height, lanes, tuple(marks), tuple(stretches), tuple(_ticks(marks)), most)


def _stretches(marks: Sequence[Mark], windows: Sequence[Window], y: float, width: float) -> list[Stretch]:
    """Windows as bars from the commit that opened them to the one that ended them, as far as the picture goes."""
    if not marks:
        return []
    still = {window.epoch: window for window in windows}
    opened: dict[int, float] = {}
    ended: dict[int, float] = {}
    for mark in marks:
        epoch = mark.entry.epoch
        if epoch is not None:
            opened.setdefault(epoch, mark.x if epoch == mark.entry.version else marks[0].x - STEP / 2)
            if mark.entry.ended:
                ended[epoch] = mark.x
    for epoch in still:
        if epoch < marks[0].entry.version:
            opened.setdefault(epoch, marks[0].x - STEP / 2)
    stretches = []
    for epoch, x in opened.items():
        end = ended.get(epoch, width - MARGIN if epoch in still else marks[-1].x + STEP / 2)
        whose = f"Window of epoch {epoch}" + (f", held by {still[epoch].holder}, open" if epoch in still else "")
        stretches.append(Stretch(x, max(end - x, 1.0), y, epoch in still, whose))
    return stretches


def _ticks(marks: Sequence[Mark]) -> list[Tick]:
    """Return version numbers, and the time where it fits: each day once."""
    ticks: list[Tick] = []
    day = ""
    for number, mark in enumerate(marks):
        if (len(marks) - 1 - number) % 6:
            continue
        today = f"{mark.entry.at:%d %b}"
        ticks.append(Tick(mark.x, str(mark.entry.version), f"{mark.entry.at:%H:%M}" if today == day else today))
        day = today
    return ticks


# --- buckets -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    x: float
    width: float
    y: float
    height: float
    fullest: bool
    title: str


@dataclass(frozen=True)
class BucketPicture:
    """The buckets of one partition side by side. ``mean`` is the height of the line that an even spread would reach."""

    statistics: PartitionStatistics
    bars: tuple[Bar, ...]
    mean: float
    width: float
    height: float
    title: str


def bucket_picture(partition: PartitionStatistics, largest: int) -> BucketPicture:
    """Draw bars by bytes; the tallest possible is ``largest``, so that partitions can be compared.

    More buckets than can be seen are drawn several to a bar, which shows the fullest of them.
    """
    sizes = partition.bucket_bytes
    each = max(1, -(-len(sizes) // _BUCKETS_DRAWN))
    bins = [sizes[start : start + each] for start in range(0, len(sizes), each)]
    width = 240.0
    step = width / max(len(bins), 8)
    most = max(sizes, default=0)
    bars = []
    for number, part in enumerate(bins):
        fullest = max(part)
        height = _BUCKETS_HEIGHT * fullest / largest if largest else 0.0
        drawn = max(height, 1.0) if fullest else 0.6
        bars.append(
            Bar(
                number * step + step * 0.09,
                step * 0.82,
                _BUCKETS_HEIGHT - drawn,
                drawn,
                fullest == most and partition.skew >= 2,
                _bar_title(partition, number * each, part),
            )
        )
    average = sum(sizes) / len(sizes) if sizes else 0.0
    mean = _BUCKETS_HEIGHT * (1 - average / largest) if largest else _BUCKETS_HEIGHT
    return BucketPicture(partition, tuple(bars), mean, width, _BUCKETS_HEIGHT + 1, _title(partition))


def _bar_title(partition: PartitionStatistics, first: int, part: Sequence[int]) -> str:
    word = "File group" if partition.buckets is None else "Bucket"
    if len(part) == 1:
        return f"{word} {first}: {size(part[0])}"
    return f"{word}s {first} to {first + len(part) - 1}: at most {size(max(part))}"


def _title(partition: PartitionStatistics) -> str:
    word = "file group" if partition.buckets is None else "bucket"
    largest, smallest = max(partition.bucket_bytes, default=0), min(partition.bucket_bytes, default=0)
    return f"{plural(len(partition.bucket_bytes), word)} from {size(smallest)} to {size(largest)}"


# --- worth ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WorthPicture:
    """The bytes that an index saved queries, day by day, as a line from left to right, newest right.

    :param points: of the line, as SVG has them. :param most: bytes of the best day.
    """

    points: str
    width: float
    height: float
    most: float
    title: str


def worth_picture(days: Sequence[float]) -> WorthPicture:
    """Draw what was saved on each day, oldest first; the best day reaches the top."""
    width, height = 240.0, _BUCKETS_HEIGHT
    most = max(days, default=0.0)
    step = width / max(len(days) - 1, 1)
    tops = (height - (height - 2) * saved / most if most else height for saved in days)
    points = " ".join(f"{number * step:.1f},{top:.1f}" for number, top in enumerate(tops))
    title = f"Saved on each of {plural(len(days), 'day')}: at most {size(most)}, {size(days[-1] if days else 0)} today"
    return WorthPicture(points, width, height + 1, most, title)
