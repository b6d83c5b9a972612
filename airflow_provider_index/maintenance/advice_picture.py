"""Advice on indexes drawn before it is followed: what each index would save, and what is read a day now and then.

As text, for an approval form (whose Markdown shows no embedded pictures), and as an SVG for wherever one can be shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_index.maintenance.rescale_picture import bar, link_to_page, svg_picture, svg_text
from spark_apps.storage.printing import code, fence, markdown_text, plain
from spark_apps.storage.units import format_bytes

SHOWN = 30
"""How many indexes are drawn, those that are created and dropped first."""

_WIDTH, _MARGIN, _ROW = 760, 250, 26
_COLOURS = {"create": "#3d7ac2", "keep": "#808080", "drop": "#c2703d"}
_ORDER = ("create", "drop", "keep")


def markdown(table: str, advice: Mapping[str, Any], waiting: Sequence[str] = (), link: str = "") -> str:
    """Return what a person decides on: which indexes, what they save and cost, and the statements.

    :param advice: as :meth:`spark_apps.advisor.advice.Advice.to_dict` gives it.
    :param waiting: indexes that may be dropped once they have been there long enough.
    """
    now, then = advice["read_a_day_now"], advice["read_a_day_then"]
    lines = [
        f"{code(table)}: {round(advice['queries']):,} queries in {round(advice['days'], 1):g} days read "
        f"{_bytes(now)} a day, and about {_bytes(then)} when the advice is followed.",
        "",
    ]
    drawn = _drawn(advice)
    if drawn:
        top = max(one["spared_a_day"] for one in drawn) or 1
        width = max(len(plain(one["index"])) for one in drawn)
        bars = (
            f"{one['action']:6} {plain(one['index']):{width}} {_bytes(one['spared_a_day']):>9} "
            f"{bar(one['spared_a_day'], top)}"
            for one in drawn
        )
        lines += ["Bytes that each index saves a day:", "", *fence(bars), ""]
        lines += [
            f"- {one['action']} {code(one['index'])} ({markdown_text(one['kind'])}): {markdown_text(one['reason'])}"
            for one in drawn
        ]
    if len(advice["proposals"]) > len(drawn):
        lines.append(f"- … and {len(advice['proposals']) - len(drawn)} more.")
    if waiting:
        names = ", ".join(map(code, waiting))
        lines += ["", f"Left alone, as they have not been there long enough to be judged: {names}."]
    if advice["statements"]:
        lines += ["", *fence((f"{statement};" for statement in advice["statements"]), "sql")]
    return "\n".join([*lines, *link_to_page(link)])


def measured_markdown(table: str, judged: Sequence[Mapping[str, Any]], link: str = "") -> str:
    """Return what became of advice that was followed: what each index was to save, what it did, whether it stays.

    :param judged: as ``MeasureAdviceOperator`` returns them.
    """
    top = max((max(one["promised_a_day"], one["measured_a_day"] or 0) for one in judged), default=1) or 1
    bars: list[str] = []
    for one in judged:
        measured = one["measured_a_day"]
        bars += [
            f"{one['index']}: {one['verdict']}",
            f"  promised {_bytes(one['promised_a_day']):>9} a day  {bar(one['promised_a_day'], top)}",
            "  measured   unknown"
            if measured is None
            else f"  measured {_bytes(measured):>9} a day  {bar(measured, top)}",
        ]
    lines = [f"{code(table)}: indexes that advice made, as measured since", "", *fence(bars), ""]
    lines += [f"- {code(one['index'])}: {markdown_text(one['reason'])}" for one in judged]
    return "\n".join([*lines, *link_to_page(link)])


def svg(table: str, advice: Mapping[str, Any]) -> str:
    """Return the same bars as a picture; legible on light and dark ground."""
    drawn = _drawn(advice)
    rows = [
        ("read a day now", advice["read_a_day_now"], "#808080"),
        ("read a day then", advice["read_a_day_then"], "#808080"),
        *((f"{one['action']} {one['index']}", one["spared_a_day"], _COLOURS[one["action"]]) for one in drawn),
    ]
    top = max(size for _, size, _ in rows) or 1
    parts = [svg_text(10, 22, f"Bytes a day that queries of {table} read, and that indexes save", 15)]
    for number, (label, size, colour) in enumerate(rows):
        y, width = 40 + number * _ROW, round((_WIDTH - _MARGIN - 100) * size / top, 1)
        parts += [
            svg_text(10, y + 14, label, 12),
            f'<rect x="{_MARGIN}" y="{y + 2}" width="{max(width, 0.6)}" height="15" fill="{colour}"/>',
            svg_text(_MARGIN + round(width) + 6, y + 14, _bytes(size), 11),
        ]
    return svg_picture(_WIDTH, 50 + len(rows) * _ROW, parts)


def _drawn(advice: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    ordered = sorted(advice["proposals"], key=lambda one: (_ORDER.index(one["action"]), -one["spared_a_day"]))
    return ordered[:SHOWN]


def _bytes(size: float) -> str:
    return format_bytes(round(size))
