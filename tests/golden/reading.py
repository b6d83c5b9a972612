"""Tables that nobody here wrote, asked with every kind of index: the answers are those of Spark alone.

Each Parquet file of a folder becomes a source of its own, with the columns that Spark reads of it; a folder with a log
of Delta or Iceberg is registered as that. What is asked of each column comes from its own values. Answers are compared
with Spark's own reading of the file, and without Spark with these; what is refused must say the column and why. In a
session with Delta's connector plain SQL is asked too, with the indexes, and compared with what the connector reads
alone.
"""

from __future__ import annotations

import datetime as dt
import logging
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

from pyspark.sql import types as T

import spark_apps
from spark_apps import IncludedColumns, IndexedTable, open_table
from spark_apps.engine.pyspark_names import spark_errors
from spark_apps.mergetree.schema import quote
from spark_apps.sources.delta_spark import has_delta
from spark_apps.storage.errors import InvalidInput, LakeIndexError, StorageError, UnsupportedSource
from spark_apps.storage.file_faults import fault_of
from tests.differential.plain import decisions_of
from tests.spark.local import session_with

logger = logging.getLogger(__name__)

_MOST_COLUMNS = 4
"""Of more columns of a file only so many get indexes and are asked about; all are read."""
_KEYS = (T.StringType, T.IntegralType, T.DateType, T.TimestampType, T.TimestampNTZType, T.DecimalType, T.BooleanType,
         T.BinaryType)  # fmt: skip
_TIMES = (T.DateType, T.TimestampType, T.TimestampNTZType)
_MOST_ROWS = 2_000
"""Of a file of more rows the numbers of rows are compared."""
_ALL_ROWS = {"spark.sql.parquet.filterPushdown": "false"}
"""Settings by which Spark holds each row against a predicate, and leaves none out by statistics of its file."""
_ALL_FILES = {**_ALL_ROWS, "spark.databricks.delta.stats.skipping": "false"}
"""Settings by which Delta leaves out no file by those of its log either: they say 3.4 of a column that was made a
double, in which 3.4000000953674316 is."""


@dataclass
class Counts:
    """What was asked, and what came of it."""

    tables: int = 0
    columns: int = 0
    columns_in_process: int = 0
    indexes: Counter[str] = field(default_factory=Counter)
    asked: int = 0
    by_index: int = 0
    in_process: int = 0
    by_connector: int = 0
    pruned: int = 0
    held: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    differ: list[str] = field(default_factory=list)
    said: IO[str] | None = None

    def __str__(self) -> str:
        kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(self.indexes.items()))
        lines = [
            f"{self.tables} tables; {self.columns} columns that Spark reads, {self.columns_in_process} in process;",
            f"{sum(self.indexes.values())} indexes ({kinds});",
            f"{self.asked} predicates, {self.by_index} answered by an index, {self.in_process} in process too;",
            f"{self.by_connector} by the table's connector in plain SQL, {self.pruned} of them of fewer files, "
            f"{self.held} with rows of an index;",
            f"{len(self.differ)} differ.",
        ]
        refused = [f"  {number} refused: {why}" for why, number in self.refused.most_common()]
        return "\n".join([*lines, *refused, *(f"  DIFFERS {one}" for one in self.differ)])


def read_all(spark: Any, folder: Path, scratch: Path, counts: Counts | None = None) -> Counts:
    """Ask every table below a folder, and return the counts.

    :param scratch: a folder for copies, and for the logs beside them.
    """
    counts = Counts() if counts is None else counts
    tables = sorted({path.parent for path in folder.rglob("_delta_log")} | {
        path.parent.parent for path in folder.rglob("*.metadata.json") if path.parent.name == "metadata"})  # fmt: skip
    for number, path in enumerate(sorted(folder.rglob("*.parquet"))):
        if not any(path.is_relative_to(table) for table in tables) and path.is_file():
            copy = scratch / f"f{number}" / "source"
            copy.mkdir(parents=True)
            shutil.copy(path, copy / "file.parquet")
            _one(spark, str(path.relative_to(folder)), copy, "parquet", counts)
    for number, table in enumerate(tables):
        copy = Path(shutil.copytree(table, scratch / f"t{number}" / "source"))
        _one(
            spark,
            str(table.relative_to(folder)),
            copy,
            "delta" if (copy / "_delta_log").is_dir() else "iceberg",
            counts,
        )
    return counts


def _one(spark: Any, name: str, folder: Path, form: str, counts: Counts) -> None:
    if counts.said is not None:
        counts.said.write(f"{name}: {counts.asked} predicates asked before, {len(counts.differ)} differ\n")
    try:
        if form == "parquet":
            schema = _readable(spark, folder)
            table = IndexedTable.register(spark, folder, schema=schema)
            plain = spark.read.schema(table.schema).parquet(str(folder))
        else:
            table = IndexedTable.register(spark, folder, format=form)
            plain = spark.read.format(form).load(str(folder)) if _connected(spark, form) else table.read()
        rows, in_python = _collected(plain)
    except (LakeIndexError, *spark_errors()) as error:
        who = f", which its connector {_alone(spark, folder, form)}" if _connected(spark, form) else ""
        why = str(error).strip().splitlines()[0][:170] if str(error).strip() else f"{error!r}"
        counts.refused[f"{name}{who}: {why}"] += 1
        return
    counts.tables += 1
    counts.columns += len(table.schema.names)
    small = in_python and len(rows) <= _MOST_ROWS
    total = len(rows) if small else plain.count()
    types = _KEYS if in_python else tuple(kind for kind in _KEYS if kind not in _TIMES)
    chosen = [one for one in table.schema.fields if isinstance(one.dataType, (*types, T.FractionalType))][
        :_MOST_COLUMNS
    ]
    _index(table, [one.name for one in chosen if isinstance(one.dataType, _KEYS)], [one.name for one in chosen], counts)
    opened = open_table(folder)
    for one in table.schema.names:
        try:
            found = opened.read(columns=[one]).num_rows
        except (UnsupportedSource, StorageError) as error:
            counts.refused[f"{name} in process: {error.message.partition(' cannot be read')[2].lstrip(' :')[:90]}"] += 1
            continue
        counts.columns_in_process += 1
        if found != total:
            counts.differ.append(f"{name}: column {one!r} has {found} rows in process")
    for where in _asked(chosen, rows[:_MOST_ROWS]):
        try:
            _ask(table, plain, opened, name, where, small, counts)
            if _connected(spark, form):
                _ask_plainly(spark, folder, form, name, where, small, counts)
        except (LakeIndexError, *spark_errors()) as error:
            if fault_of(str(error)).sort == "checksum":  # which Spark looks at where a table of ours is read
                counts.refused[f"{name}: bytes without their checksum"] += 1
                continue
            counts.differ.append(f"{name}: {where}: {type(error).__name__}: {str(error).strip()[:200]}")


def _connected(spark: Any, form: str) -> bool:
    """Tell whether a session has the connector of a format whose tables are known by their folders."""
    return form == "delta" and has_delta(spark)


def _alone(spark: Any, folder: Path, form: str) -> str:
    """Return whether a connector reads a table without this package."""
    try:
        spark.read.format(form).load(str(folder)).write.format("noop").mode("overwrite").save()
    except spark_errors():
        return "refuses too"
    return "reads"


def _ask_plainly(spark: Any, folder: Path, form: str, name: str, where: str, small: bool, counts: Counts) -> None:
    """Ask by SQL with the indexes, and compare with what the connector reads without."""
    query = f"SELECT * FROM {form}.{quote(str(folder))} WHERE {where}"
    expected = _answer(spark.sql(query), small)
    spark_apps.enable(spark, sources=[str(folder)])
    try:
        found, scans = decisions_of(spark, lambda: _answer(spark.sql(query), small))
    finally:
        spark_apps.disable(spark)
    counts.by_connector += 1
    counts.pruned += any(scan.scanned and scan.scanned[1] < scan.scanned[0] for scan in scans)
    counts.held += any(scan.held for scan in scans)
    failed = [scan.reason for scan in scans if scan.failed]
    if found != expected or failed:
        counts.differ.append(
            f"{name}: {query}: {expected!r:.200} by its connector, {found!r:.200} by an index {failed}"
        )


def _collected(plain: Any) -> tuple[list[Any], bool]:
    """Return some rows, and whether Python has all of their values: else they come without times, which may be later
    than its last year."""
    try:
        return plain.limit(_MOST_ROWS + 1).collect(), True
    except (ValueError, OverflowError):
        others = [quote(one.name) for one in plain.schema.fields if isinstance(one.dataType, (*_KEYS, T.FractionalType))
                  and not isinstance(one.dataType, _TIMES)]  # fmt: skip
        return plain.select(*others).limit(_MOST_ROWS + 1).collect(), False


def _readable(spark: Any, folder: Path) -> T.StructType:
    """Return the columns of a file that Spark reads, one by one."""
    plain = spark.read.parquet(str(folder))
    try:
        plain.write.format("noop").mode("overwrite").save()
    except spark_errors():
        pass
    else:
        return plain.schema
    kept = []
    for one in plain.schema.fields:
        try:
            plain.select(quote(one.name)).write.format("noop").mode("overwrite").save()
        except spark_errors():
            continue
        kept.append(one)
    return T.StructType(kept)


def _index(table: IndexedTable, keys: list[str], columns: list[str], counts: Counts) -> None:
    wanted: list[tuple[str, list[str], dict[str, Any]]] = [("secondary", [name], {}) for name in keys[:1]]
    wanted += [("compact", keys[:1], {})] if keys else []
    if keys:
        others = IncludedColumns(include=[name for name in table.schema.names if name != keys[0]])
        wanted.append(("covering", keys[:1], {"included": others, "properties": {"hybrid_appended_ratio": "1"}}))
    names = [name if name.isidentifier() else quote(name) for name in columns[:3]]
    wanted += [("skipping", [f"minmax({name})" for name in names], {})] if names else []
    wanted += [("skipping", [f"bloom({name})" for name in names], {})] if names else []
    for number, (kind, names, more) in enumerate(wanted):
        try:
            table.create_index(f"i{number}", kind, names, **more)
        except LakeIndexError as error:
            counts.refused[f"index: {error.message[:90]}"] += 1
            continue
        counts.indexes[kind] += 1


def _asked(fields: list[T.StructField], rows: list[Any]) -> Iterator[str]:
    """Yield what is asked of columns: some of their values, what is above them, nulls, and others than those."""
    for one in fields:
        name = quote(one.name)
        yield f"{name} IS NULL"
        values = list({repr(row[one.name]): row[one.name] for row in rows if row[one.name] is not None}.values())
        text = _literal(values[len(values) // 2], one.dataType) if values else None
        if text is not None:
            yield f"{name} = {text}"
            yield f"NOT ({name} > {text})"


def _literal(value: Any, kind: T.DataType) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"cast(X'{value.encode().hex()}' AS string)"
    if isinstance(value, bytes | bytearray):
        return f"X'{value.hex()}'"
    if isinstance(value, dt.datetime):
        return f"{'TIMESTAMP' if isinstance(kind, T.TimestampType) else 'TIMESTAMP_NTZ'} '{value.isoformat(' ')}'"
    if isinstance(value, dt.date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, int | Decimal):
        return f"CAST('{value}' AS {kind.simpleString()})"
    return f"CAST('{value!r}' AS {kind.simpleString()})" if isinstance(value, float) else None


def _ask(table: IndexedTable, plain: Any, opened: Any, name: str, where: str, small: bool, counts: Counts) -> None:
    try:
        expected = _of_every_row(plain, where, small)
        # Of a file whose statistics are not those of its values Spark leaves out rows by these, as it does for us.
        alone = _answer(plain.where(where), small)
    except spark_errors() as error:
        counts.refused[f"{name} by Spark: {str(error).strip()[:90]}"] += 1
        return
    counts.asked += 1
    counts.by_index += bool(table.explain(where).indexes)
    found = _answer(table.read(where), small)
    if found not in (expected, alone):
        counts.differ.append(f"{name}: {where}: {expected!r:.200} by Spark, {found!r:.200} by an index")
    if alone != expected:
        counts.refused[f"{name}: Spark answers otherwise by the file's statistics"] += 1
        return
    number = len(expected) if isinstance(expected, list) else expected
    try:
        read = opened.read(where, columns=table.schema.names[:1]).num_rows
    except (UnsupportedSource, InvalidInput, StorageError) as error:
        counts.refused[f"asked in process: {type(error).__name__}"] += 1
        return
    counts.in_process += 1
    if read != number:
        counts.differ.append(f"{name}: {where}: {number} rows by Spark, {read} in process")


def _of_every_row(plain: Any, where: str, small: bool) -> list[str] | int:
    try:
        with session_with(plain.sparkSession, _ALL_FILES):
            return _answer(plain.where(where), small)
    except spark_errors():  # Delta reads deletion vectors by its statistics alone
        with session_with(plain.sparkSession, _ALL_ROWS):
            return _answer(plain.where(where), small)


def _answer(frame: Any, small: bool) -> list[str] | int:
    return sorted(map(str, frame.collect())) if small else frame.count()
