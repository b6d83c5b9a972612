"""A rescale drawn before it is done: sizes of buckets as they are, and about as they will be.

As text, for an approval form (whose Markdown shows no embedded pictures), and as an SVG for wherever one can be shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from spark_apps.storage.printing import code, counted, fence, markdown_text, plain
from spark_apps.storage.units import format_bytes, format_seconds
from spark_apps.timeline.statistics import PartitionStatistics

SHOWN = 30
"""How many partitions are drawn, those with most bytes."""

_BAR = 30
_INDENT = 41
_DETAILED, _BUCKETS = 10, 8
"""Of how many partitions, those with most bytes, the buckets are drawn, and in how many lines at most."""
_COLUMNS = 96
_WIDTH, _LEFT_MARGIN, _ROW = 760, 210, 54


@dataclass(frozen=True)
class RescaledPartition:
    """A partition that is to be rescaled, with the sizes of its buckets now and their number then."""

    partition: PartitionStatistics
    to_buckets: int

    @property
    def after_bytes(self) -> int:
        """About what a bucket will hold: hashing spreads keys evenly; rows of one key stay together."""
        return round(self.partition.bytes / self.to_buckets)


def markdown(table: str, plan: dict[str, Any], partitions: Sequence[RescaledPartition], link: str = "") -> str:
    """Return what a person decides on: counts from and to, bars, what it costs, and what comes of the rules."""
    lines = [f"{code(table)}: {_sentence(plan)}", ""]
    drawn = sorted(partitions, key=lambda one: -one.partition.bytes)[:SHOWN]
    if drawn:
        lines += ["Sizes of buckets, all on one scale:", "", *fence(_bars(drawn)), ""]
    if len(partitions) > len(drawn):
        lines += [f"… and {len(partitions) - len(drawn)} smaller partitions.", ""]
    rules = code(plan["expressions"]) if plan.get("expressions") else "none"
    lines.append(
        f"Rules of the newest config then: {rules} ({markdown_text(plan['rule'])}), else {plan['default']} buckets; "
        f"{counted(plan['unchanged'], 'partition keeps its', 'partitions keep their')} count."
    )
    if plan["partitions"]:
        lines += ["", "While it runs nobody else writes to these partitions. Rejecting leaves everything as it is."]
    return "\n".join([*lines, *link_to_page(link)])


def svg(table: str, partitions: Sequence[RescaledPartition]) -> str:
    """Return the same bars as a picture; legible on light and dark ground."""
    drawn = sorted(partitions, key=lambda one: -one.partition.bytes)[:SHOWN]
    top = max((_largest(one) for one in drawn), default=1) or 1
    parts = [svg_text(10, 22, f"Bucket sizes of {table}, before and after", 15)]
    for number, one in enumerate(drawn):
        y, sizes = 46 + number * _ROW, one.partition.bucket_bytes
        parts.append(svg_text(10, y + 14, one.partition.path or "(one partition)", 12))
        parts += _columns(y, sizes, top, "#c2703d")
        parts.append(svg_text(_WIDTH - 160, y + 13, f"{len(sizes)}, up to {format_bytes(max(sizes, default=0))}", 11))
        parts += _columns(y + 19, [one.after_bytes] * one.to_buckets, top, "#3d7ac2")
        parts.append(svg_text(_WIDTH - 160, y + 32, f"{one.to_buckets}, about {format_bytes(one.after_bytes)}", 11))
    return svg_picture(_WIDTH, 60 + len(drawn) * _ROW, parts)


def _columns(y: int, sizes: Sequence[int], top: int, colour: str) -> list[str]:
    """Return a column a bucket; of very many buckets one for each few, as high as their fullest."""
    shown = _thinned(sizes, _COLUMNS)
    cell = (_WIDTH - _LEFT_MARGIN - 170) / max(len(shown), 1)
    parts = []
    for at, size in enumerate(shown):
        height = max(round(15 * size / top, 1), 0.6)
        parts.append(
            f'<rect x="{_LEFT_MARGIN + at * cell:.1f}" y="{y + 15 - height:.1f}" width="{max(cell - 1, 0.5):.1f}" '
            f'height="{height}" fill="{colour}"/>'
        )
    return parts


def _sentence(plan: dict[str, Any]) -> str:
    if not plan["partitions"]:
        return "no partition is written anew; only the rules for new ones change."
    count, size = counted(len(plan["partitions"]), "partition is", "partitions are"), format_bytes(plan["bytes"])
    seconds = format_seconds(plan["estimated_seconds"])
    return (
        f"{count} written anew, {counted(plan['files'], 'file')} of {size}, in about {seconds} "
        f"(from {markdown_text(plan['estimated_from'])})."
    )


def _bars(drawn: Sequence[RescaledPartition]) -> list[str]:
    top = max(_largest(one) for one in drawn) or 1
    half, whole = _BAR // 2, format_bytes(top)
    lines = [
        f"{'':<{_INDENT}}{'0':<{half}}{format_bytes(top / 2):<{_BAR - half}}{whole}",
        f"{'':<{_INDENT}}├{'─' * (half - 1)}┼{'─' * (_BAR - half - 2)}┤",
    ]
    for number, one in enumerate(drawn):
        sizes, then = one.partition.bucket_bytes, one.after_bytes
        largest = max(sizes, default=0)
        lines += [
            f"{one.partition.path or '(one partition)'}   {format_bytes(one.partition.bytes)}",
            f"  before {len(sizes):>5} buckets, up to {format_bytes(largest):>9}  {bar(largest, top)}",
            f"  after  {one.to_buckets:>5} buckets, about {format_bytes(then):>9}  {bar(then, top)}",
        ]
        lines += _buckets(sizes, top) if number < _DETAILED else []
    return lines


def bar(size: float, top: float) -> str:
    """Return a bar of text, as long as a size is beside the largest one."""
    return "█" * max(round(_BAR * size / top), 1 if size else 0) or "·"


def _buckets(sizes: Sequence[int], top: int) -> list[str]:
    """Return a bar a bucket as it is now; of many buckets one for each few, as long as their fullest."""
    count = min(len(sizes), _BUCKETS)
    lines = []
    for at, size in enumerate(_thinned(sizes, _BUCKETS)):
        first, last = at * len(sizes) // count, (at + 1) * len(sizes) // count - 1
        name = f"bucket {first}" if first == last else f"fullest of {first} to {last}"
        lines.append(f"    {name:<25} {format_bytes(size):>9}  {bar(size, top)}")
    return lines


def _thinned(sizes: Sequence[int], most: int) -> list[int]:
    """Return at most this many numbers: the largest of each few."""
    count = min(len(sizes), most)
    return [max(sizes[at * len(sizes) // count : (at + 1) * len(sizes) // count]) for at in range(count)]


def _largest(one: RescaledPartition) -> int:
    return max(max(one.partition.bucket_bytes, default=0), one.after_bytes)


def svg_text(x: int, y: int, text: str, size: int) -> str:
    """Return a line of text of a picture."""
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="#808080">{escape(plain(text))}</text>'


def svg_picture(width: int, height: int, parts: Sequence[str]) -> str:
    """Return a picture of these parts."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" font-family="sans-serif">{"".join(parts)}</svg>'
    )


def link_to_page(link: str) -> list[str]:
    """Return the lines of Markdown that lead to a table's page; none without a link."""
    return ["", f"[The table's page]({link})"] if link else []
