"""Buckets by ranges of the first field, for range reads.

``ranges:["10", "20"]`` puts values below 10 into bucket 0, from 10 to below 20 into 1, all else into 2, and a null into
0. The bounds are written as partition values are, so that they mean the same in every session.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Collection, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from spark_apps.layout.partitions import canonical_string, value_of
from spark_apps.layout.types import ColumnType, normalize, parse_type
from spark_apps.storage.errors import InvalidRule

PREFIX = "ranges:"

_KINDS = ("string", "date", "timestamp", "timestamp_ntz", "decimal")
_MOST = 1_000
"""So many ranges at most: each is a comparison in the code that Spark makes."""

_LONGEST = 64
"""A bound need not be a value: so many characters of a long one tell ranges apart as well."""


def can_bound(column: ColumnType) -> bool:
    """Test whether values of a type can be told apart by ranges."""
    return column.is_integer or column.kind in _KINDS


def bounds_of(function: str, kind: str) -> tuple[Any, ...]:
    """Return the bounds that a function's text names, lowest first.

    :raises InvalidRule: if it names none such.
    """
    return _bounds(function, parse_type(kind))


@lru_cache(maxsize=256)
def _bounds(function: str, column: ColumnType) -> tuple[Any, ...]:
    try:
        if not function.startswith(PREFIX):
            raise ValueError(function)
        bounds = tuple(value_of(text, column) for text in json.loads(function.removeprefix(PREFIX)))
        fits = len(bounds) < _MOST and None not in bounds and all(one < other for one, other in pairwise(bounds))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise _unreadable(function, column) from error
    if not fits:
        raise _unreadable(function, column)
    return bounds


def _unreadable(function: str, column: ColumnType) -> InvalidRule:
    return InvalidRule(
        f"{function!r} is not a list of values of type {column.text!r} that rise.",
        hint="Leave the bounds out: they are found in the rows when an index is built.",
    )


def between(values: Collection[Any], column: ColumnType, count: int) -> str:
    """Return the function that deals values among buckets in like numbers.

    :param values: a random sample of them; nulls do not count.
    :param count: buckets. Fewer are used where values repeat a great deal, and never more than 1,000.
    """
    count = min(count, _MOST)
    known = sorted(value for value in (normalize(each, column) for each in values) if value is not None)
    cuts = [known[number * len(known) // count] for number in range(1, count)] if known else []
    bounds = sorted({cut[:_LONGEST] if isinstance(cut, str) else cut for cut in cuts})
    return PREFIX + json.dumps([canonical_string(bound, column) for bound in bounds])


def bucket(function: str, values: Sequence[Any], columns: Sequence[ColumnType], count: int) -> int:
    """Return the bucket of normalized values.

    :raises InvalidRule: as :func:`bounds_of` does.
    """
    if values[0] is None:
        return 0
    return min(bisect_right(_bounds(function, columns[0]), values[0]), count - 1)
