"""What other engines find in raw rows: DuckDB, or plain Spark where DuckDB reads a predicate otherwise than Spark."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import duckdb
from pyspark.errors import PySparkException

from spark_apps.engine.spark_versions import to_arrow
from tests.differential.predicates import Predicate
from tests.differential.values import arrow
from tests.spark_apps.frames import of_arrow

Row = tuple[Any, ...]
_ROW = "__row"


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """The DuckDB of this process: to start one for each question takes longer than the question."""
    return duckdb.connect(config={"threads": 1})


@contextlib.contextmanager
def connected() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to DuckDB whose views are its own, by times in UTC."""
    with _database().cursor() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


class Oracle:
    """Rows of no table, asked by their place in the list."""

    def __init__(self, spark: Any, rows: Sequence[Row], types: Mapping[str, str]) -> None:
        self.spark, self.rows, self.types = spark, rows, types
        self._raw = arrow([(number, *row) for number, row in enumerate(rows)], {_ROW: "bigint", **types})

    def matching(self, predicate: Predicate) -> list[int] | None:
        """Places of the rows that satisfy a predicate; ``None`` if plain Spark refuses it on these rows."""
        if predicate.duck is None:
            return self._by_spark(predicate.spark)
        with connected() as connection:
            connection.register("raw", self._raw)
            numbers = connection.execute(f"SELECT {_ROW} FROM raw WHERE {predicate.duck}").fetchall()
        return sorted(number for (number,) in numbers)

    def _by_spark(self, text: str) -> list[int] | None:
        try:
            numbers = of_arrow(self.spark, self._raw).where(text).select(_ROW).collect()
        except PySparkException:
            return None
        return sorted(number for (number,) in numbers)


def rows_of(frame: Any) -> Counter[tuple[str, ...]]:
    """The rows of a DataFrame as a multiset, value by value and bit by bit."""
    table = to_arrow(frame)
    return shown(zip(*(column.to_pylist() for column in table.columns), strict=True)) if table.num_rows else Counter()


def shown(rows: Iterable[Sequence[Any]]) -> Counter[tuple[str, ...]]:
    """Rows as a multiset, so that NaN equals NaN and -0.0 does not equal 0.0."""
    return Counter(tuple(map(_text, row)) for row in rows)


def _text(value: Any) -> str:
    if hasattr(value, "tzinfo") and value.tzinfo is not None:
        return value.isoformat().replace("+00:00", "Z")
    return repr(bytes(value)) if isinstance(value, (bytes, bytearray, memoryview)) else repr(value)
