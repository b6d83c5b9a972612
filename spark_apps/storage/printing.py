"""Results as tables for people: aligned text for a terminal, HTML for a notebook; names and texts in Markdown.

A result describes itself by a :class:`View`: a heading, facts, tables and remarks. Names and values in a log are input:
what a terminal would obey is shown as an escape (``\\x1b``), and what a browser would obey is escaped.
"""

from __future__ import annotations

import html
import re
import shutil
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, SupportsIndex, TypeVar, overload

from spark_apps.storage.units import format_bytes, format_seconds

T = TypeVar("T")

MAX_ROWS = 20
"""Rows of a table that are shown; of the others their number is."""

ALL_ROWS = "(all rows)"
"""The name of the one partition of a table without partition columns, whose path is empty."""

_MAX_CHARACTERS = 2000
_MAX_WIDTH = 60
_MIN_WIDTH = 12
_GAP = 2
ANY_WIDTH = 1_000_000


class Figure(str):
    """A number as text, which is aligned to the right of its column."""

    __slots__ = ()


@dataclass(frozen=True)
class Grid:
    """A table of rows.

    :param newest_last: whether the last rows are the ones to show where there are too many.
    """

    columns: tuple[str, ...]
    rows: Sequence[Sequence[Any]]
    title: str = ""
    newest_last: bool = False


@dataclass(frozen=True)
class View:
    """The description of a result for people; facts that are ``None`` or empty are left out.

    :param statements: each in a line of its own, neither cut nor broken, so that it can be copied and run.
    """

    heading: str
    facts: Sequence[tuple[str, Any]] = ()
    grids: Sequence[Grid] = ()
    remarks: Sequence[str] = ()
    statements: Sequence[str] = ()


class Printed:
    """A result that ``print`` and a notebook show as a table, and ``repr`` in a line."""

    __slots__ = ()

    def view(self) -> View:
        """Return the description of the result."""
        raise NotImplementedError

    def __str__(self) -> str:
        return as_text(self.view())

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {plain(self.view().heading)}>"

    def _repr_html_(self) -> str:
        return as_html(self.view())


# --- values ---------------------------------------------------------------------------------------------------------


def exact(value: Any) -> Any:
    """Return a value without thousands set apart: versions, years, keys."""
    return Figure(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def size(count: float | None) -> Figure:
    """Return a number of bytes as a table shows it."""
    return Figure("" if count is None else format_bytes(count))


def metric_facts(metrics: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the metrics of a commit as facts: bytes and seconds with their units, by their names."""
    return [(name.replace("_", " "), _with_unit(name, value)) for name, value in metrics.items()]


def _with_unit(name: str, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return size(value) if name.endswith("bytes") else span(value) if name.endswith("seconds") else value


def span(seconds: float | None) -> Figure:
    """Return a length of time as a table shows it."""
    return Figure("" if seconds is None else format_seconds(seconds))


def instant_text(instant: str | None) -> str | None:
    """Return ``20261121165000123`` as ``2026-11-21 16:50:00.123``, in UTC."""
    if not instant:
        return None
    day, clock = f"{instant[:4]}-{instant[4:6]}-{instant[6:8]}", f"{instant[8:10]}:{instant[10:12]}:{instant[12:14]}"
    return f"{day} {clock}.{instant[14:]}"


def moment_text(seconds: float) -> str:
    """Return seconds since 1970 as ``2026-11-21 16:50:00 UTC``."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return ``1 file``, ``2,000 files``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def plain(value: Any) -> str:
    """Return a value as text of one line, with an escape for each character that cannot be printed."""
    if value is None:
        text = ""
    elif isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, int):
        text = f"{value:,}"
    elif isinstance(value, float):
        text = f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
    elif isinstance(value, Mapping):
        text = ", ".join(f"{plain(name)}={plain(exact(one))}" for name, one in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        text = ", ".join(plain(exact(one)) for one in value)
    else:
        text = str(value)
    return printable(text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…")


def printable(text: str) -> str:
    """Return a text with an escape for each character that cannot be printed."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float | Figure) and not isinstance(value, bool)


def _chosen(grid: Grid, most: int) -> tuple[Sequence[Sequence[Any]], str]:
    """Return the rows that are shown, and what is said of the others."""
    left = len(grid.rows) - most
    if left <= 0:
        return grid.rows, ""
    return (
        (grid.rows[-most:], f"… and {left:,} before")
        if grid.newest_last
        else (grid.rows[:most], f"… and {left:,} more")
    )


# --- as text --------------------------------------------------------------------------------------------------------


def as_text(view: View, width: int | None = None, most: int = MAX_ROWS) -> str:
    """Return a view as text.

    :param width: of a line, in characters; that of the terminal if not given, and any where there is no terminal.
    """
    width = max(width or shutil.get_terminal_size((0, 0)).columns or ANY_WIDTH, 2 * _MIN_WIDTH)
    lines = _wrapped(plain(view.heading), width)
    facts = [(name, value) for name, value in view.facts if plain(value)]
    lines += _pairs(facts, width, "  ")
    for grid in view.grids:
        if grid.rows and grid.columns:
            lines += ["", *(_wrapped(plain(grid.title), width) if grid.title else ()), *_grid(grid, width, most)]
    for remark in view.remarks:
        lines += _wrapped(plain(remark), width, "  ")
    lines += map(printable, view.statements)
    return "\n".join(line.rstrip() for line in (lines if lines[0] else lines[1:])).strip("\n")


def _pairs(pairs: Sequence[tuple[str, Any]], width: int, indent: str = "") -> Iterator[str]:
    """Yield a line a name and its value; long values go on below themselves."""
    names = max((_width(plain(name)) for name, _ in pairs), default=0) + _GAP
    for name, value in pairs:
        label = f"{indent}{_padded(plain(name), names)}"
        for number, line in enumerate(_wrapped(plain(value), max(width - len(indent) - names, _MIN_WIDTH))):
            yield f"{' ' * _width(label) if number else label}{line}"


def _grid(grid: Grid, width: int, most: int) -> list[str]:
    shown, more = _chosen(grid, most)
    ending = [more] if more else []
    names, *cells = [[plain(value) for value in row] for row in (grid.columns, *shown)]
    right = [all(_is_figure(row[n]) or row[n] is None for row in shown) for n in range(len(grid.columns))]
    widths = _column_widths([names, *cells], right, width)
    if widths is None:
        records = (_pairs(list(zip(names, row, strict=True)), width) for row in cells)
        return [line for record in records for line in ("", *record)][1:] + ending
    last, space = len(widths) - 1, " " * _GAP
    lines = []
    for row in [names, *cells]:
        parts = [_padded(_cut(cell, widths[n]), widths[n], right[n]) for n, cell in enumerate(row[:last])]
        # Sentences are in the last column, where they are continued on the lines below.
        first, *others = _wrapped(row[last], widths[last]) if " " in row[last] else [_cut(row[last], widths[last])]
        lines.append(space.join([*parts, _padded(first, widths[last], right[last])]))
        lines.extend(" " * (sum(widths[:last]) + _GAP * last) + line for line in others)
    rule = space.join("─" * min(w, _MAX_WIDTH) for w in widths)
    return [lines[0], rule, *lines[1:], *ending]


def _column_widths(rows: Sequence[Sequence[str]], right: Sequence[bool], width: int) -> list[int] | None:
    """Return the widths of columns that fit into a line, ``None`` if they do not: the widest text gives way first."""
    last = len(right) - 1
    widths = [max(_width(row[n]) for row in rows) for n in range(last + 1)]
    widths = [w if right[n] or n == last else min(w, _MAX_WIDTH) for n, w in enumerate(widths)]
    least = [w if right[n] else min(w, _MIN_WIDTH) for n, w in enumerate(widths)]
    room = width - _GAP * last
    if sum(least) > room:
        return None
    while sum(widths) > room:
        widest = max((n for n in range(last + 1) if widths[n] > least[n]), key=lambda n: widths[n])
        widths[widest] -= 1 if widths[widest] <= width else widths[widest] - width
    return widths


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum((unicodedata.east_asian_width(c) in "WF") + (not unicodedata.combining(c)) for c in text)


def _padded(text: str, width: int, right: bool = False) -> str:
    space = " " * (width - _width(text))
    return space + text if right else text + space


def _cut(text: str, width: int) -> str:
    """Return a text of at most a width: the end goes of words, the middle of what has none, as paths and ids."""
    if _width(text) <= width:
        return text
    head = width - 1 if " " in text else (width - 1) * 2 // 3
    first = _fitting(text, head)
    rest = _fitting(text[::-1], width - 1 - _width(first))[::-1] if " " not in text else ""
    return f"{first}…{rest}"


def _fitting(text: str, width: int) -> str:
    end = min(len(text), width)
    while _width(text[:end]) > width:
        end -= 1
    return text[:end]


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Return the lines of a text; those after the first are indented."""
    lines, line = [], ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line.strip() else f"{line}{word}"
        if _width(longer) > width and line.strip():
            lines.append(line)
            longer = indent + word
        while _width(longer) > width:
            head = _fitting(longer, width)
            lines.append(head)
            longer = indent + longer[len(head) :]
        line = longer
    return [*lines, line]


# --- as HTML --------------------------------------------------------------------------------------------------------


def as_html(view: View, most: int = MAX_ROWS) -> str:
    """Return a view as HTML, everything escaped; it brings no colours, so that it fits light and dark notebooks."""
    parts = [f"<div><strong>{_escaped(view.heading)}</strong>"] if view.heading else ["<div>"]
    facts = [(name, value) for name, value in view.facts if plain(value)]
    if facts:
        left = 'style="text-align:left"'
        rows = (f"<tr><th {left}>{_escaped(name)}</th><td {left}>{_escaped(value)}</td></tr>" for name, value in facts)
        parts.append(f"<table>{''.join(rows)}</table>")
    for grid in view.grids:
        if grid.rows and grid.columns:
            parts.append(_html_grid(grid, most))
    parts.extend(f"<p>{_escaped(remark)}</p>" for remark in view.remarks)
    parts.extend(f"<pre>{html.escape(printable(statement))}</pre>" for statement in view.statements)
    return "".join([*parts, "</div>"])


def _html_grid(grid: Grid, most: int) -> str:
    shown, more = _chosen(grid, most)
    head = "".join(f"<th>{_escaped(name)}</th>" for name in grid.columns)
    body = "".join(f"<tr>{''.join(map(_html_cell, row))}</tr>" for row in shown)
    title = f"<p>{_escaped(grid.title)}</p>" if grid.title else ""
    return (
        f"{title}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{f'<p>{more}</p>' if more else ''}"
    )


def _html_cell(value: Any) -> str:
    return f'<td style="text-align:{"right" if _is_figure(value) else "left"}">{_escaped(value)}</td>'


def _escaped(value: Any) -> str:
    return html.escape(plain(value))


# --- lists and mappings of results ----------------------------------------------------------------------------------


class ResultList(list[T], Printed):
    """A list that is printed as a table.

    :param view: makes the view of some of the items.
    """

    __slots__ = ("_make_view",)

    def __init__(self, items: Iterable[T], view: Callable[[Sequence[T]], View]) -> None:
        super().__init__(items)
        self._make_view = view

    def view(self) -> View:
        return self._make_view(self)

    @overload
    def __getitem__(self, index: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> ResultList[T]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> T | ResultList[T]:
        item = super().__getitem__(index)
        return ResultList(item, self._make_view) if isinstance(index, slice) else item  # type: ignore[arg-type,return-value]

    def __reduce__(self) -> Any:
        return ResultList, (list(self), self._make_view)

    __str__ = Printed.__str__
    __repr__ = Printed.__repr__


class ResultMap(Mapping[str, T], Printed, Generic[T]):
    """A mapping that cannot be changed, equals a dict of the same items, and is printed as a table.

    :param view: makes the view of the items.
    """

    __slots__ = ("_items", "_make_view")

    def __init__(self, items: Mapping[str, T], view: Callable[[Mapping[str, T]], View]) -> None:
        self._items = dict(items)
        self._make_view = view

    def view(self) -> View:
        return self._make_view(self._items)

    def __getitem__(self, name: str) -> T:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


# --- Markdown, as Airflow's forms and pages show it -------------------------------------------------------------------

_MARKDOWN = re.compile(r"[\\`*_\[\]<>&|~#!@:$^=+\-]|(?<=[wW])\.")


def markdown_text(value: Any) -> str:
    """Return a value as words of a paragraph or of a list in Markdown, which Markdown and HTML in it leave as they are.

    It is one line; characters that cannot be seen, or that turn the direction of what follows, are escapes.
    """
    text = plain(value)
    return _MARKDOWN.sub(r"\\\g<0>", text)


def code(value: Any) -> str:
    """Return a value as code within a line of Markdown, which no back-tick in it ends."""
    text = plain(value) or " "
    ticks = "`" * (_longest_run(text) + 1)
    blank = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{ticks}{blank}{text}{blank}{ticks}"


def fence(lines: Iterable[str], language: str = "text") -> list[str]:
    """Return lines as a block of code of Markdown, which no line in it ends.

    A line end or an unprintable character within a line becomes an escape.
    """
    shown = [printable(line) for line in lines]
    ticks = "`" * max(3, *(_longest_run(line) + 1 for line in shown), 3)
    return [f"{ticks}{language}", *shown, ticks]


def _longest_run(text: str) -> int:
    """Return how many back-ticks follow one another at most."""
    return max((len(run) for run in re.findall("`+", text)), default=0)
