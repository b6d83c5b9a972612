"""The running of queries: the tables that they name are read by their indexes, all else is Spark's.

Names of keyed tables and sources give way, in the text, to frames. In a classic session these are planned by the rule
in Spark's optimizer, with all filters that Spark finds; over Spark Connect, where no rule can run, each is read with
the filters and columns that the text tells of it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row

from spark_apps.mergetree.spark_utils import over_connect
from spark_apps.optimizer.session import indexes_in_use
from spark_apps.sources.registry import find_in_catalog
from spark_apps.sql import statements as s
from spark_apps.sql.references import Reference, columns_named, pushed_down, references, replaced
from spark_apps.sql.results import Result
from spark_apps.sql.session import Session
from spark_apps.storage.errors import InvalidInput, InvalidName, InvalidStatement, TableNotFound, UnsupportedSource
from spark_apps.storage.store import Store
from spark_apps.table import IndexedTable
from spark_apps.timeline.locations import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

Given = Mapping[str, DataFrame | IndexedTable]
"""Names of one part that a statement's own text uses, and what they stand for."""


def query_frame(
    spark: SparkSession, text: str, warehouse: str | None = None, options: Mapping[str, Any] | None = None
) -> DataFrame:
    """Return the answer of a query over tables of a warehouse and whatever the session knows.

    A text that only Spark itself can read is handed on to it as it is; what Spark then says is its own error.

    :param warehouse: and ``options``: as of :func:`spark_apps.sql.run`.
    """
    try:
        return Tables(Session(spark, Warehouse(warehouse, dict(options or {})))).query(text)
    except InvalidStatement as error:
        if isinstance(error.__cause__, PySparkException):
            raise error.__cause__ from None
        logger.warning("The query is left to Spark: %s", error.message)
        return spark.sql(text)


class Tables:
    """The tables of one statement, each of one version wherever it stands in it.

    :param shown: tables at the version that the statement works on, by their location.
    """

    def __init__(self, session: Session, shown: Sequence[IndexedTable] = ()) -> None:
        self._session = session
        self._by_location: dict[tuple[str, int | None, str | None], IndexedTable] = {
            (table.uri, None, None): table for table in shown
        }

    def query(self, text: str, given: Given | None = None) -> DataFrame:
        """Return the answer of a query, analyzed and not yet run.

        :raises InvalidStatement: if it cannot be read, or Spark refuses it.
        """
        spark, frames = self._session.spark, {}
        found: list[tuple[Reference, str]] = []
        for number, reference in enumerate(references(text)):
            meant = (given or {}).get(reference.name) or self._table(reference)
            if meant is None:
                continue
            frames[f"f{number}"] = meant if isinstance(meant, DataFrame) else self._frame(meant, reference, text)
            # A mark that no text of SQL holds, until what looks like a format in it is told apart.
            found.append((reference, f"\x00{number}\x00"))
        with refused_by_spark():
            if not frames:
                answer = spark.sql(text)
            else:
                parts = replaced(text, found).replace("{", "{{").replace("}", "}}").split("\x00")
                parts[1::2] = [f"{{f{number}}}" for number in parts[1::2]]
                answer = spark.sql("".join(parts), **frames)
            answer.schema  # noqa: B018 - Connect analyzes no earlier
        return answer

    def _frame(self, table: IndexedTable, reference: Reference, text: str) -> DataFrame:
        as_it_is = table.definition.source is not None and (reference.version, reference.as_of) != (None, None)
        if not over_connect(self._session.spark) and not as_it_is:
            return table.frame()
        columns = [field.name for field in table.definition.fields]
        where, named = pushed_down(text, reference, columns), columns_named(text, columns)
        logger.info("%s is read where %s, columns %s", table.uri, where or "true", ", ".join(named) or "none")
        return table.read(where, named or columns[:1])

    def _table(self, reference: Reference) -> IndexedTable | None:
        """Return the table that a reference means, ``None`` if it is not one of this package's."""
        location = self._locate(reference)
        if location is None:
            return None
        key = (location, reference.version, reference.as_of)
        if key not in self._by_location:
            try:
                self._by_location[key] = IndexedTable.load(
                    self._session.spark, location, reference.version, reference.as_of, self._session.warehouse.options
                )
            except TableNotFound:
                return None
        return self._by_location[key]

    def _locate(self, reference: Reference) -> str | None:
        warehouse, parts = self._session.warehouse, reference.parts
        if "/" in parts[-1]:
            ours = len(parts) == 1 or (len(parts) == 2 and parts[0].lower() == "indexed")
            return warehouse.locate(parts[-1]) if ours else None
        if len(parts) == 1 and _is_view(self._session.spark, parts[0]):
            return None
        try:
            location = warehouse.locate(reference.name)
            if warehouse.log_of(location) is not None:
                return location
        except InvalidName:
            pass
        if not over_connect(self._session.spark):
            return None  # the rule knows tables of Spark's catalog by where they lie
        try:
            in_catalog = find_in_catalog(self._session.spark, reference.name)
        except UnsupportedSource:
            return None
        registered = in_catalog is not None and warehouse.log_of(in_catalog.location) is not None
        return in_catalog.location if in_catalog is not None and registered else None


def _is_view(spark: SparkSession, name: str) -> bool:
    """Tell whether a name is that of a temporary view, which hides tables of that name as in Spark."""
    try:
        return bool(spark.catalog.tableExists(name)) and spark.catalog.getTable(name).isTemporary
    except PySparkException:
        return False


@contextmanager
def refused_by_spark() -> Iterator[None]:
    """Turn what Spark says of a text that it cannot use into an error of this package.

    :raises InvalidStatement: with Spark's own words.
    """
    try:
        yield
    except PySparkException as error:
        message = (error.getMessage() or str(error)).strip().split("\n== SQL")[0].splitlines()[0]
        raise InvalidStatement(f"Spark refuses the statement: {message}", hint="Correct it.") from error


# --- SELECT -----------------------------------------------------------------------------------------------------------


def check_output(statements: Sequence[s.Statement], output_path: str | None) -> None:
    """Check that an output is that of one query.

    :raises InvalidInput: if there is none, or there are several.
    """
    count = sum(isinstance(statement, s.Query) for statement in statements)
    if output_path is not None and count != 1:
        raise InvalidInput(
            f"An output_path is given, and the script holds {count} queries.", hint="Give a query a script of its own."
        )


def select(session: Session, statement: s.Query, _txn_id: str | None) -> Result:
    """Return a query's answer: its rows, or the folder that they were written into."""
    with indexes_in_use(session.spark, session.warehouse.options):
        frame = Tables(session).query(statement.query)
        columns = tuple(frame.columns)
        if session.output_path is not None:
            location = _write(session, frame, session.output_path)
            return Result(statement, columns, (), location=location, frame=session.spark.read.parquet(location))
        if session.max_rows <= 0:
            return Result(statement, columns, (), frame=frame)
        rows = frame.limit(session.max_rows + 1).collect()
    if len(rows) > session.max_rows:
        raise InvalidInput(
            f"The query answers with more than {session.max_rows:,} rows, which is what may be handed on (max_rows).",
            hint="Give it a LIMIT, or an output_path, a folder that the answer is written into.",
        )
    return Result(statement, columns, tuple(tuple(map(_plain, row)) for row in rows), frame=frame)


def _write(session: Session, frame: DataFrame, output: str) -> str:
    """Write an answer as Parquet, in the place of an earlier one.

    :raises InvalidInput: if the folder holds anything else.
    """
    store = Store(output, session.warehouse.options)
    others = [entry.key for entry in store.list("") if not _of_an_answer(entry.key)]
    if others:
        raise InvalidInput(
            f"The output {store.uri} holds {others[0]}, which is no part of an answer, so it is not replaced.",
            hint="Give a folder of its own.",
        )
    frame.write.mode("overwrite").parquet(store.spark_path(""))
    return store.uri


def _of_an_answer(key: str) -> bool:
    name = key.rpartition("/")[2].removeprefix(".")
    return key.startswith("_temporary/") or name.startswith(("part-", "_SUCCESS", "_committed_", "_started_"))


def _plain(value: Any) -> Any:
    """Return a value of a row in plain Python types."""
    if isinstance(value, Row):
        return {name: _plain(item) for name, item in value.asDict().items()}
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return bytes(value) if isinstance(value, bytearray) else value
