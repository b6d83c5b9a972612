"""The answers of statements, a small table each, and the receipt of the commit where there was one.

Beside them is the state that the statements of a script share, from which the answers to those that change
something are made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, overload

import msgspec

from spark_apps.actions.indexing import home_of
from spark_apps.engine.hadoop_store import reach
from spark_apps.indexes.registry import available
from spark_apps.layout.partitions import canonical_string, parse_partition_path, value_of
from spark_apps.layout.types import parse_type
from spark_apps.optimizer.session import usable
from spark_apps.sources.registry import find_in_catalog, iceberg_by_name
from spark_apps.sql.statements import PartitionSpec, Statement, Value
from spark_apps.storage.errors import InvalidInput, InvalidName
from spark_apps.storage.printing import Grid, Printed, View, counted, exact, instant_text
from spark_apps.storage.units import format_bytes
from spark_apps.table import IndexedTable
from spark_apps.timeline.locations import Warehouse
from spark_apps.timeline.model import IndexDefinition, Receipt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# --- the state that statements share ----------------------------------------------------------------------------------


MAX_ROWS = 1000
"""Rows of a query's answer that are handed on by default."""


@dataclass(frozen=True)
class Session:
    """The state that all statements of a script share."""

    spark: SparkSession
    warehouse: Warehouse
    window: int | None = None
    max_rows: int = MAX_ROWS
    output_path: str | None = None

    def __post_init__(self) -> None:
        reach(self.spark, self.warehouse.root)

    def load(self, table: str) -> IndexedTable:
        """Return a table by name or location.

        :raises TableNotFound: if there is no table.
        :raises InvalidName: if the name is not one of a table.
        """
        return IndexedTable.load(self.spark, self.locate(table), options=self.warehouse.reader_options)

    def locate(self, table: str) -> str:
        """Return where a table is: below the warehouse, or else where Spark's catalog has one of that name.

        :raises InvalidName: if the name is not one of a table.
        """
        reach(self.spark, table)
        plain = "/" not in table
        try:
            location = self.warehouse.locate(table)
            if not plain or self.warehouse.log_of(location) is not None:
                return location
        except InvalidName:
            if not plain or self.warehouse.root is not None:
                raise
            location = None
        of_iceberg = iceberg_by_name(self.spark, table)
        if of_iceberg is not None:
            registered = self.warehouse.registered(of_iceberg.name)
            return of_iceberg.location if registered is None else registered.log
        in_catalog = find_in_catalog(self.spark, table)
        if in_catalog is not None:
            registered = None if in_catalog.name is None else self.warehouse.registered(in_catalog.name)
            return in_catalog.location if registered is None else registered.log
        return location if location is not None else self.warehouse.locate(table)

    def log_locations(self, table: str | None) -> list[str]:
        """Return where the log of a table may be; without a table, those of the whole warehouse."""
        if table is not None:
            return [self.locate(table)]
        return [table.location for table in self.warehouse.known_tables()]

    def commit_arguments(self, txn_id: str | None) -> dict[str, Any]:
        """Return the transaction and the window in which an action commits."""
        return {"txn_id": txn_id, "window": self.window}


def change_result(statement: Any, receipt: Receipt, location: str, note: str = "") -> Result:
    """Return the answer of a statement that changes something."""
    if not note and receipt.version is None:
        note = "nothing to do"
    name = getattr(statement, "index", None)
    row = (receipt.operation, statement.table or location, name, receipt.version, note or None)
    return Result(statement, CHANGE_COLUMNS, (row,), receipt, location)


def unchanged_result(statement: Any, location: str, operation: str, note: str, txn_id: str | None) -> Result:
    return change_result(statement, Receipt(None, txn_id or "", operation), location, note)


def partition_texts(table: IndexedTable, spec: PartitionSpec) -> dict[int, str | None]:
    """Return the values of a ``PARTITION (…)`` clause, as paths have them, by the position of their column in paths.

    :raises InvalidInput: if a column is none that the table is partitioned by, or a value is not of its type.
    """
    definition = table.definition
    types = {field.name: field.type for field in definition.fields}
    columns = [(partition_column(table, name), value) for name, value in spec]
    return {
        definition.partition_by.index(column): _partition_text(value, types[column], column)
        for column, value in columns
    }


def partition_column(table: IndexedTable, name: str) -> str:
    """Return a column that the table is partitioned by, by its name in any case. :raises InvalidInput: for others."""
    partition_by = table.definition.partition_by
    for column in partition_by:
        if column.lower() == name.lower():
            return column
    known = ", ".join(partition_by) or "no column"
    raise InvalidInput(f"The table is not partitioned by {name!r}.", hint=f"It is partitioned by {known}.")


def _partition_text(value: Value, type_name: str, column: str) -> str | None:
    """Return the canonical text of a value, as the log keeps those of a partition."""
    if value is None:
        return None
    kind = parse_type(type_name)
    text = ("true" if value else "false") if isinstance(value, bool) else str(value)
    return canonical_string(value_of(text, kind, column), kind)


def paths_with(paths: Iterable[str], texts: Mapping[int, str | None]) -> list[str]:
    """Return the partitions whose columns, by their position, have these values."""
    matching = []
    for path in paths:
        values = list(parse_partition_path(path).values())
        if all(values[position] == text for position, text in texts.items()):
            matching.append(path)
    return matching


# --- answers ----------------------------------------------------------------------------------------------------------


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


@dataclass(frozen=True, repr=False)
class Result(Printed):
    """The answer to one statement.

    :param columns: names of the answer's columns; :param rows: a tuple a row, in plain Python types.
    :param receipt: of the commit, or of having nothing to do; ``None`` for what only reads.
    :param location: URI of the table, or of the folder that a query's answer was written into.
    :param frame: the answer of a query, of the versions that there were when it was run.
    """

    statement: Statement
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    receipt: Receipt | None = None
    location: str | None = None
    frame: DataFrame | None = field(default=None, compare=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, for JSON and XCom."""
        return {
            "statement": self.statement.words,
            "table": self.statement_table,
            "location": self.location,
            "receipt": None if self.receipt is None else self.receipt.to_dict(),
            "columns": list(self.columns),
            "rows": msgspec.to_builtins(self.rows, str_keys=True, enc_hook=str),
        }

    def view(self) -> View:
        grid = Grid(self.columns, [tuple(map(exact, row)) for row in self.rows])
        if self.columns == CHANGE_COLUMNS:
            return View(self.statement.words, grids=[grid])
        count = "to_df() has the rows" if self.frame is not None and not self.rows else counted(len(self.rows), "row")
        return View(f"{self.statement.words}: {count}", [("at", self.location)], [grid])

    @property
    def statement_table(self) -> str | None:
        """The table as the statement calls it."""
        return getattr(self.statement, "table", None)

    def to_df(self, spark: SparkSession) -> DataFrame:
        """Return the rows as a DataFrame; those of a query with their types, and however many they are.

        :param spark: the session.
        """
        if self.frame is not None:
            return usable(self.frame)
        return spark.createDataFrame([tuple(row) for row in self.rows], self._schema())

    def _schema(self) -> str:
        return ", ".join(f"`{name}` {self._type(position, name)}" for position, name in enumerate(self.columns))

    def _type(self, position: int, name: str) -> str:
        values = [row[position] for row in self.rows if row[position] is not None]
        if values and all(isinstance(value, str) for value in values):
            return "string"
        known = _TYPES.get(name)
        if known is not None:
            return known
        if values and all(isinstance(value, bool) for value in values):
            return "boolean"
        return "bigint" if values and all(isinstance(value, int) for value in values) else "string"


class Results(Sequence[Result], Printed):
    """The answers to the statements of a script, in order. ``rows`` and ``columns`` are those of the last.

    :param results: one a statement. :param spark: the session that they came from.
    """

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

    def view(self) -> View:
        views = [result.view() for result in self._results]
        if len(views) == 1:
            return views[0]
        grids = [replace(grid, title=view.heading) for view in views for grid in view.grids]
        return View(counted(len(views), "statement"), grids=grids)

    @property
    def columns(self) -> tuple[str, ...]:
        return self._results[-1].columns

    @property
    def rows(self) -> tuple[tuple[Any, ...], ...]:
        return self._results[-1].rows

    @property
    def receipts(self) -> list[Receipt]:
        """The receipts of all statements that can commit; ``version`` is ``None`` where there was nothing to do."""
        return [result.receipt for result in self._results if result.receipt is not None]

    def to_df(self) -> DataFrame:
        """Return the last answer as a DataFrame."""
        return self._results[-1].to_df(self._spark)


# --- ``SHOW INDEXES`` and ``DESCRIBE INDEX`` ------------------------------------------------------------------------


COLUMNS = (
    "index", "table", "kind", "state", "columns", "included", "deferred",
    "covered_files", "covered_bytes", "lagging_files", "lagging_bytes", "index_files", "index_bytes",
    "created", "last_refresh", "refreshed_version",
    "properties", "partitioned_by", "index_table", "location", "comment",
)  # fmt: skip

Answer = tuple[tuple[str, ...], tuple[tuple[Any, ...], ...]]


def show_indexes(table: IndexedTable, called: str, formatted: bool = False) -> Answer:
    """Return a row for each index, by name.

    :param formatted: as text for people: units, no brackets.
    """
    rows = [_fields(table, called, name) for name in table.indexes]
    return COLUMNS, tuple(tuple(_formatted(fields, formatted).values()) for fields in rows)


def describe_index(table: IndexedTable, called: str, name: str, formatted: bool = False) -> Answer:
    """Return a row for each field of one index: its name and its value, as text."""
    fields = _formatted(_fields(table, called, name), True) if formatted else _fields(table, called, name)
    return ("field", "value"), tuple((field, _text(value)) for field, value in fields.items())


def _fields(table: IndexedTable, called: str, name: str) -> dict[str, Any]:
    info, status = table.indexes[name], table.index_status(name)
    values = (
        name, called, info.kind, info.state, list(info.columns), list(info.included), info.deferred,
        status.covered_files, status.covered_bytes, status.lagging_files, status.lagging_bytes,
        status.files, status.bytes,
        instant_text(status.created_at), instant_text(status.refreshed_at), status.refreshed,
        dict(info.properties), _partitioned(info.definition),
        index_table_of(called, info.definition), _location(table, info.definition), info.definition.comment,
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def _partitioned(definition: IndexDefinition) -> list[str] | None:
    return None if definition.partition_by is None else list(definition.partition_by)


def index_table_of(called: str, definition: IndexDefinition) -> str | None:
    """Return the name of what stores an index: the one given, else the one that Hive would make of table and index."""
    if definition.index_table is not None:
        return definition.index_table
    handler = available(definition.kind)
    if handler is None or not handler.own_storage:
        return None
    *database, name = called.rstrip("/").rpartition("/")[2].split(".")
    return f"{'_'.join(database) or 'default'}__{name}_{definition.name}__"


def _location(table: IndexedTable, definition: IndexDefinition) -> str | None:
    return definition.location or home_of(table.snapshot, definition.name)


def _formatted(fields: dict[str, Any], formatted: bool) -> dict[str, Any]:
    if not formatted:
        return fields
    return {
        name: format_bytes(value, binary=True) if name.endswith("_bytes") else _text(value)
        for name, value in fields.items()
    }


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={item}" for key, item in sorted(value.items()))
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
