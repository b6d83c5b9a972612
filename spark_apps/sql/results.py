"""What statements answer: a small table each, and the receipt of the commit where there was one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import msgspec

from spark_apps.sql.statements import Statement
from spark_apps.timeline.model import Receipt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHANGE_COLUMNS = ("operation", "table", "index", "version", "note")
"""Columns of the answer to a statement that changes something; ``version`` is null where there was nothing to do."""

_TYPES = {
    "version": "bigint",
    "deferred": "boolean",
    "rules_change": "boolean",
    "default": "bigint",
    "from_buckets": "bigint",
    "to_buckets": "bigint",
    "properties": "map<string,string>",
    "columns": "array<string>",
    "included": "array<string>",
    "partitioned_by": "array<string>",
}


@dataclass(frozen=True)
class Result:
    """The answer to one statement.

    :param columns: names of the answer's columns; :param rows: a tuple a row, in plain Python types.
    :param receipt: of the commit, or of having nothing to do; ``None`` for what only reads.
    :param location: URI of the table.
    """

    statement: Statement
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    receipt: Receipt | None = None
    location: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain types, for JSON and XCom."""
        return {
            "statement": self.statement.words,
            "table": self.statement_table,
            "location": self.location,
            "receipt": None if self.receipt is None else self.receipt.to_dict(),
            "columns": list(self.columns),
            "rows": msgspec.to_builtins(self.rows, str_keys=True),
        }

    @property
    def statement_table(self) -> str | None:
        """The table as the statement calls it."""
        return getattr(self.statement, "table", None)

    def to_df(self, spark: SparkSession) -> DataFrame:
        """The rows as a DataFrame."""
        return spark.createDataFrame([tuple(row) for row in self.rows], self._schema())

    def _schema(self) -> str:
        return ", ".join(f"`{name}` {self._type(place, name)}" for place, name in enumerate(self.columns))

    def _type(self, place: int, name: str) -> str:
        values = [row[place] for row in self.rows if row[place] is not None]
        if values and all(isinstance(value, str) for value in values):
            return "string"
        known = _TYPES.get(name)
        if known is not None:
            return known
        if values and all(isinstance(value, bool) for value in values):
            return "boolean"
        return "bigint" if values and all(isinstance(value, int) for value in values) else "string"


class Results(Sequence[Result]):
    """The answers to the statements of a script, in order. What stands beside them is that of the last."""

    def __init__(self, results: Sequence[Result], spark: SparkSession) -> None:
        self._results = tuple(results)
        self._spark = spark

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Result]: ...
    def __getitem__(self, index: int | slice) -> Result | Sequence[Result]:
        return self._results[index]

    def __len__(self) -> int:
        return len(self._results)

    def __repr__(self) -> str:
        return f"Results({', '.join(result.statement.words for result in self._results)})"

    @property
    def columns(self) -> tuple[str, ...]:
        return self._results[-1].columns

    @property
    def rows(self) -> tuple[tuple[Any, ...], ...]:
        return self._results[-1].rows

    @property
    def receipts(self) -> list[Receipt]:
        """Those of all statements that can commit; ``version`` is ``None`` where there was nothing to do."""
        return [result.receipt for result in self._results if result.receipt is not None]

    def to_df(self) -> DataFrame:
        """The last answer as a DataFrame."""
        return self._results[-1].to_df(self._spark)
