"""Spellings of an address that some reader may take for that of a file beside a table's folder."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

SCHEMES = ("", "file:", "file://", "FILE:", "FiLe://", "file://localhost", "fi\tle://", "file:\\\\", "//", "s3://",
           "file://user:word@host", "hdfs://", "file:/")  # fmt: skip
DOTS = ("..", "%2e%2e", ".%2E", "%252e%252e", ".\t.", "..\n", ".. ", "..\r")
SLASHES = ("/", "\\", "%2f", "%5C", "//", "/./", "\\\\")
BEFORE = (" ", "\t", "\n", "\x00", "\x1f", "./", "x/../", "%20", "\u00a0")
BEHIND = (" ", "?x", "#x", "\t", "%20", "/", ";x")


def spellings(die: random.Random, table: Path, secret: Path, count: int) -> Iterator[str]:
    """Yield paths: the plain ones first, then changed at one to three places."""
    above = f"../{secret.parent.name}/{secret.name}"
    plain = [above, str(secret), *(f"{scheme}{secret}" for scheme in SCHEMES[1:]),
             f"file://{table}/{above}", f"x/../{above}", f"{{{above},x}}"]  # fmt: skip
    plain += [above.replace("../", dots) for dots in ("..\\", "%2e%2e/", "..\t/", ".\n./")]
    yield from plain
    for _ in range(count - len(plain)):
        text = die.choice([*plain, above, above, f"file://{table}/{above}"])
        for _ in range(die.randint(1, 3)):
            text = _changed(die, text)
        yield text


def _changed(die: random.Random, text: str) -> str:
    kind = die.randrange(5)
    if kind == 0 and ".." in text:
        return text.replace("..", die.choice(DOTS), 1)
    if kind == 1:
        at = die.choice([n for n, char in enumerate(text) if char == "/"] or [0])
        return text[:at] + die.choice(SLASHES) + text[at + 1 :]
    if kind == 2:
        at = die.randrange(len(text) + 1)
        return text[:at] + die.choice("\t\n\r ") + text[at:]
    if kind == 3:
        return die.choice(BEFORE) + text
    return text + die.choice(BEHIND)
