"""Answers of the command line: tables for people, JSON for programs, and a line of progress on a terminal.

Answers go to the standard output, all else to the error output. Colours and progress are for terminals: a pipe gets
plain text whose lines are as long as they have to be.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import click
import msgspec

from spark_apps.storage.printing import Figure, Grid, View, as_text, exact

ALL = 1_000_000_000
"""More rows than any answer has."""

_PATIENCE_SECONDS = 0.4
_TICK_SECONDS = 0.1
_WHEEL = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_RULE = re.compile(r"─[─ ]*")
_BAD = re.compile(r"\b(DIFFERS|FAILED|dropped|disabled)\b|\b\d[\d,]* file groups? behind\b")
_GOOD = re.compile(r"\b(agrees with the rows|ok)\b")


class Output:
    """The place where a command's answer goes.

    :param as_json: whether programs read it.
    :param colour: whether it is coloured; only on a terminal if ``None``.
    """

    def __init__(self, as_json: bool = False, colour: bool | None = None) -> None:
        self.as_json = as_json
        self.colour = False if colour is None and os.environ.get("NO_COLOR") else colour

    def view(self, view: View, most: int = ALL) -> None:
        """Print a view as a table.

        :param most: rows of each of its tables that are printed.
        """
        self.text(_coloured(as_text(view, most=most)))

    def text(self, text: str) -> None:
        """Print a text; its colours are left out where they are not wanted."""
        click.echo(text, color=self.colour)

    def json(self, value: Any) -> None:
        """Print a value as JSON."""
        click.echo(msgspec.json.format(encode(value), indent=1).decode())

    def rows(self, names: Sequence[str], batches: Iterable[Any], most: int | None = 100) -> int:
        """Print rows, and return how many there are as far as they were read.

        :param names: of the columns.
        :param batches: Arrow record batches; no more are asked for than are printed.
        :param most: rows that are printed as a table; JSON has all, each as an object in a line of its own.
        """
        rows = _rows(batches)
        if self.as_json:
            count = 0
            click.echo("[", nl=False)
            for count, row in enumerate(rows, 1):
                click.echo(
                    ("\n" if count == 1 else ",\n") + encode(dict(zip(names, row, strict=True))).decode(), nl=False
                )
            click.echo("\n]")
            return count
        shown: list[list[Any]] = []
        more = False
        for row in rows:
            if most is not None and len(shown) == most:
                more = True
                break
            shown.append([_cell(value) for value in row])
        heading = f"{len(shown):,} row{'' if len(shown) == 1 else 's'}"
        remarks = ["--rows says how many; --rows 0 shows all."] if more else []
        heading = f"the first {heading}; there are more" if more else heading
        self.view(View(heading, grids=[Grid(tuple(names), shown)], remarks=remarks))
        if not shown:
            self.text("  columns: " + ", ".join(names))
        return len(shown)

    @contextmanager
    def progress(self, what: str) -> Iterator[Progress]:
        """Show on a terminal what is being done and for how long, if it takes a moment."""
        progress = Progress(what, sys.stderr.isatty())
        try:
            yield progress
        finally:
            progress.end()


class Progress:
    """A line on the error output that shows how far a command is."""

    def __init__(self, what: str, shown: bool) -> None:
        self._text = what
        self._begun = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._show, name="progress", daemon=True) if shown else None
        if self._thread is not None:
            self._thread.start()

    def tell(self, what: str) -> None:
        """Change what is shown."""
        self._text = what

    def end(self) -> None:
        """Take the line away."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _show(self) -> None:
        if self._ended.wait(_PATIENCE_SECONDS):
            return
        turn = 0
        while not self._ended.wait(_TICK_SECONDS):
            seconds = time.monotonic() - self._begun
            line = f"{_WHEEL[turn % len(_WHEEL)]} {self._text}, {seconds:.0f} s"
            width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
            click.echo(f"\r\x1b[K{line[: width - 1]}", nl=False, err=True)
            turn += 1
        click.echo("\r\x1b[K", nl=False, err=True)


# --- values -----------------------------------------------------------------------------------------------------------


def encode(value: Any) -> bytes:
    """Return a value as JSON; of what JSON has no form for, its text."""
    return msgspec.json.encode(value, enc_hook=str)


def iso(instant: str | None) -> str | None:
    """Return an instant of a log as ISO 8601 in UTC, ``None`` for none."""
    if not instant:
        return None
    return datetime.strptime(instant[:14], "%Y%m%d%H%M%S").isoformat() + f".{instant[14:17]}Z"


def iso_of_seconds(seconds: float) -> str:
    """Return seconds since 1970 as ISO 8601 in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _rows(batches: Iterable[Any]) -> Iterator[list[Any]]:
    for batch in batches:
        yield from map(list, zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _cell(value: Any) -> Any:
    """Return a value as a table shows it: numbers unchanged, and null apart from an empty text."""
    if value is None:
        return "null"
    if isinstance(value, Mapping | list):
        return encode(value).decode()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return Figure(repr(value))
    return exact(value)


def _coloured(text: str) -> str:
    """Return a printed view with its heading, the heads of its tables and what is amiss set apart by colour."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if _RULE.fullmatch(line):
            lines[number] = click.style(line, dim=True)
            lines[number - 1] = click.style(lines[number - 1], bold=True)
        elif number == 0:
            lines[0] = click.style(line, bold=True)
        else:
            line = _BAD.sub(lambda found: click.style(found[0], fg="red"), line)
            lines[number] = _GOOD.sub(lambda found: click.style(found[0], fg="green"), line)
    return "\n".join(lines)
