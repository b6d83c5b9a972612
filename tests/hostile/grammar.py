"""Values that nobody of us writes, and the places in a document where they can stand."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

Place = tuple[str | int, ...]
"""Keys and numbers that lead to a value in a document."""

PATHS = (
    "/etc/passwd", "file:///etc/passwd", "../../outside/rows", "data/../../outside/rows", "data/a/./b", "data//b",
    "s3://outside/rows", "http://169.254.169.254/latest", "C:\\outside", "~root/x", "data/%2e%2e/%2e%2e/outside",
    "_index/timeline/00000000000000000000.json", "data/linked/rows", "\\\\host\\share", "data/a\x00.parquet",
)  # fmt: skip
NUMBERS = (-1, -2, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30, -(2**63) - 1, 1.5, -0.0, 1e308, 1e-320, True)
TEXTS = (
    "", " ", "x", "²²²", "٣", "a\nb", "a\x00b", "\u202e", "\ufeff", "é" * 10, "a/b", "..", ".", "<script>", "${jndi:x}",
    "os.system", "tests.hostile.planted.Handler", "tests.hostile.planted", "java.lang.Runtime", "{{ 1 }}",
    "'; --", "%s%n", "NaN", "null", "javascript:x", "A" * 20_000,
    "array<" * 2_000, "20260230000000000", "99999999999999999",
)  # fmt: skip
SHAPES = (None, [], {}, [[]], {"": None}, [None], {"action": "none"}, [{"action": "add"}])


def _deep(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


VALUES: tuple[Any, ...] = (*PATHS, *NUMBERS, *TEXTS, *SHAPES, _deep(200))


def places(document: Any, at: Place = ()) -> Iterator[Place]:
    """All places of a document, its own first."""
    yield at
    if isinstance(document, dict):
        for key, value in document.items():
            yield from places(value, (*at, key))
    elif isinstance(document, list):
        for number, value in enumerate(document):
            yield from places(value, (*at, number))


def planted(document: Any, place: Place, value: Any) -> Any:
    """The document with a value at a place."""
    if not place:
        return value
    changed = copy.deepcopy(document)
    there = changed
    for key in place[:-1]:
        there = there[key]
    there[place[-1]] = value
    return changed
