"""The end of the demo: a Delta table in Spark's catalog, which its own connector reads by an index in plain SQL.

The table is a year of flights, a file a week. A DAG has built the index by the table's name; now the same query and
the same ``MERGE`` are run in a session as it is, and in one in which indexes are enabled.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from dags_examples.demo import worth
from dags_examples.demo.report import Verdicts
from spark_apps import enable, explain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "lake.flights"
YEARS = range(2013, 2014)
CORRECTED, NEW = 9, 1
"""Rows of the ``MERGE`` that the table has, in three of its files, and rows that it has not."""

QUERY = f"SELECT * FROM {NAME} WHERE flight_id = {{id}}"
MERGE = (
    f"MERGE INTO {NAME} t USING corrections s ON t.flight_id = s.flight_id "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)
_JOIN = f"SELECT 1 FROM {NAME} VERSION AS OF 0 t JOIN corrections s ON t.flight_id = s.flight_id"
"""The join of the ``MERGE``, with the table as it was: EXPLAIN of a command shows no scan."""

_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Compiling a MERGE takes longer than running it on a table of this size."""


@dataclass(frozen=True)
class Merged:
    """What the ``MERGE`` took and did: seconds, the rows updated and inserted, and a digest of the table after it."""

    seconds: float
    touched: tuple[int, int]
    left: Any


def make(spark: SparkSession, flights: pd.DataFrame, folder: Path) -> str:
    """Make the table as its owner would, and return what it is.

    :param spark: a session that has delta-spark. :param folder: of the table.
    """
    import deltalake

    rows = worth.write(flights, folder, YEARS)
    deltalake.convert_to_deltalake(str(folder))
    name(spark, folder)
    return f"{NAME}: {rows:,} rows in {len(list(folder.glob('*.parquet')))} files, a Delta table of Spark's catalog."


def name(spark: SparkSession, folder: Path) -> None:
    """Name the table in the catalog of a session: without a metastore it ends with its Spark."""
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {NAME.partition('.')[0]}").collect()
    spark.sql(f"CREATE TABLE IF NOT EXISTS {NAME} USING delta LOCATION '{folder}'").collect()


def corrections(folder: Path) -> tuple[pa.Table, int]:
    """Return the rows of the ``MERGE``, and the id of a flight that is none of them.

    They are some rows of three files, with a minute more of delay, and some whose ids the table has not.
    """
    files = sorted(folder.glob("*.parquet"))
    weeks = [pq.read_table(file) for file in (files[9], files[26], files[41])]
    rows = pa.concat_tables([week.slice(100, CORRECTED // len(weeks)) for week in weeks])
    rows = _with(rows, "arr_delay", pc.add(rows["arr_delay"], pa.scalar(1, pa.int32())))
    new = _with(rows.slice(0, NEW), "flight_id", pa.array(range(-NEW, 0), pa.int64()))
    return pa.concat_tables([rows, new]), int(weeks[0]["flight_id"][0].as_py())


def _with(rows: pa.Table, name: str, values: Any) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), name, values)


def show(console: Console, spark: SparkSession, warehouse: Path, folder: Path) -> bool:
    """Run the query and the ``MERGE`` with the index and without, and print what they took.

    :param warehouse: where the log of the index is. :param folder: of the table.
    :return: whether both did the same, and fewer files were read with the index.
    """
    name(spark, folder)
    corrected, known = corrections(folder)
    question = QUERY.format(id=known)
    with_index = spark.newSession()
    for session in (spark, with_index):
        for setting, value in _INTERPRETED.items():
            session.conf.set(setting, value)
        session.createDataFrame(corrected).createOrReplaceTempView("corrections")
    enable(with_index, warehouse=warehouse)

    verdicts = Verdicts()
    grid = Table("", "SQL", "rows", "index", "files read", "s without", "s with", "")

    def add(what: tuple[str, ...], scanned: str, seconds: tuple[float, float], same: bool) -> None:
        files, kept, used = _read(scanned, with_index)
        good = same and 0 < kept < files and used == "by_id"
        times = (f"{each:.2f}" for each in seconds)
        grid.add_row(*what, used or "none", f"{files} → {kept}", *times, verdicts.mark(good))

    [(scanned, indexed, rows)] = worth.compare([question], spark, with_index, rounds=1)
    add(("the record of a key", question, f"{rows:,}"), question, (scanned, indexed), rows == 1)
    without = _merge(spark)
    spark.sql(f"RESTORE TABLE {NAME} TO VERSION AS OF 0").collect()
    merged = _merge(with_index)
    same = without.left == merged.left and without.touched == merged.touched == (CORRECTED, NEW)
    seconds = (without.seconds, merged.seconds)
    add(("corrections and new flights", MERGE, f"{CORRECTED} + {NEW}"), _JOIN, seconds, same)
    grid.caption = (
        "Delta's own connector reads and commits as ever, in a session without indexes and in one after "
        "spark_apps.enable(spark, warehouse=…); both did the same. Files read: of the connector's own plan, and of "
        "those the ones that the index leaves; of the MERGE those of its join, asked as a query. Seconds: of the "
        "query after a run that does not count, of the MERGE at once, first without the index; no session compiles its "
        "queries."
    )
    console.print(grid)
    return bool(verdicts)


def _read(sql: str, spark: SparkSession) -> tuple[int, int, str | None]:
    """Return the files of the connector's own plan for the table, those that are read of them, and the index."""
    for scan in explain(sql, spark).scans:
        if scan.scanned is not None and scan.explanation is not None:
            return *scan.scanned, scan.explanation.index_used
    return 0, 0, None


def _merge(spark: SparkSession) -> Merged:
    started = time.monotonic()
    [done] = spark.sql(MERGE).collect()
    seconds = time.monotonic() - started
    # Exact whatever the order of the rows.
    left = spark.sql(f"SELECT count(*), sum(CAST(xxhash64(*) AS DECIMAL(38, 0))) FROM {NAME}").collect()
    return Merged(seconds, (done.num_updated_rows, done.num_inserted_rows), left)
