"""What indexes save, measured: three questions to ten million flights, with indexes and by Spark's own read.

``python -m dags_examples.demo.worth FOLDER`` measures in a Spark of its own, with its usual settings.

The table is Parquet that somebody else writes, a file a month over thirty years, registered and indexed in place. Its
rows are the real flights, shifted by years. Each question is asked through the table's indexes, and of
``spark.read.parquet`` of the same files, in one warm session and in turns; the answers must be the same, the medians
are shown. Spark's own read passes over what the files' own statistics and dictionaries rule out, as ever.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from dags_examples.demo import data
from dags_examples.demo.report import Verdicts
from spark_apps import IndexedTable
from spark_apps.jobs.environment import java_home

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

YEARS = range(1984, 2014)
WARM_UP, ROUNDS = 1, 5
LEAST_TIMES = 3
"""How many times as fast each question has to be. Measured were 11, 36 and 25 times; a busy machine may spoil a median,
but an index that saves little does not pass."""

SETTINGS = {
    "spark.driver.memory": "3g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
}
_MIXED = np.uint64(0x9E3779B97F4A7C15)


def rows_indexed(table: IndexedTable, where: str) -> pa.Table:
    """Return the rows that satisfy a predicate, as the indexes find them."""
    return table.read(where).toArrow()


def rows_scanned(plain: DataFrame, where: str) -> pa.Table:
    """Return the rows that satisfy a predicate, as Spark's own read finds them."""
    return plain.where(where).toArrow()


def files_indexed(table: IndexedTable, where: str) -> pa.Table:
    """Return the names of the files that hold such rows; no Spark job is needed for that."""
    return pa.table({"file": [Path(one.path).name for one in table.locate(where)]})


def files_scanned(plain: DataFrame, where: str) -> pa.Table:
    """Return the names of the files that hold such rows, as Spark tells them of the rows that it reads."""
    name = "substring_index(input_file_name(), '/', -1) AS file"
    return plain.where(where).selectExpr(name).distinct().toArrow()


@dataclass(frozen=True)
class Question:
    """What is asked, how with indexes and how without, and the index made for it."""

    name: str
    where: str
    indexed: Callable[[IndexedTable, str], pa.Table]
    scanned: Callable[[DataFrame, str], pa.Table]
    index: str
    kind: str
    columns: tuple[str, ...] = ()


QUESTIONS = (
    Question("the record of a key", "flight_id = {id}", rows_indexed, rows_scanned, "by_id", "record"),
    Question(
        "the files that hold a plane",
        f"tailnum = '{data.PLANE}'",
        files_indexed, files_scanned, "by_plane", "secondary", ("tailnum",),
    ),
    Question(
        "the files that hold a flight number",
        "carrier = 'B6' AND flight = 1211",
        files_indexed, files_scanned, "by_number", "compact", ("carrier", "flight"),
    ),
)  # fmt: skip
"""Which record somebody means; which files to rewrite, or to restore, where rows are to be erased or mended. ``{id}``
stands for the id of some flight of 1999."""


def show(console: Console, spark: SparkSession, flights: pd.DataFrame, folder: Path) -> bool:
    """Make the table, build the indexes, ask, and print it all; return whether every answer is right and fast."""
    # Log and indexes of an earlier run lie beside its files.
    shutil.rmtree(folder, ignore_errors=True)
    folder = folder / "flights"
    seconds, rows = _clock(lambda: write(flights, folder))
    files = list(folder.glob("*.parquet"))
    size = sum(file.stat().st_size for file in files)
    console.print(f"  {rows:,} rows in {len(files)} files, {size / 1e6:,.0f} MB of Parquet: written in {seconds:.1f} s")
    table = IndexedTable.register(spark, folder, "parquet", record_key=["flight_id"])
    costs = {}
    for one in QUESTIONS:
        seconds, _ = _clock(lambda one=one: table.create_index(one.index, one.kind, list(one.columns)))
        costs[one.index] = f"{seconds:.1f} s, {table.index_status(one.index).bytes / 1e6:,.1f} MB"
        console.print(f"  {one.index} ({one.kind}) built: {costs[one.index]}")

    plain = spark.read.parquet(str(folder))
    [[known]] = plain.where("time_hour = TIMESTAMP '1999-11-17T14:00:00Z'").selectExpr("min(flight_id)").collect()
    verdicts = Verdicts()
    grid = Table("", "where", "found", "index", "its cost", "files read", "s with", "s without", "times", "")
    for one in QUESTIONS:
        where = one.where.format(id=known)
        plan = table.explain(where)
        indexed, scanned, found = compare(
            lambda one=one, where=where: one.indexed(table, where),
            lambda one=one, where=where: one.scanned(plain, where),
        )
        good = found > 0 and plan.index_used == one.index and scanned >= LEAST_TIMES * indexed
        read = plan.files_read if one.indexed is rows_indexed else 0
        grid.add_row(
            one.name, where, f"{found:,}", f"{one.index} ({one.kind})", costs[one.index], f"{read} of {len(files)}",
            f"{indexed:.3f}", f"{scanned:.3f}", f"{scanned / indexed:.0f}", verdicts.mark(good),
        )  # fmt: skip
    grid.caption = (
        f"Medians of {ROUNDS} in one warm session, in turns. With: table.read(where), table.locate(where); without: "
        "Spark's own read of the same files, spark.read.parquet(…).where(…). Both gave the same answers."
    )
    console.print(grid)
    return bool(verdicts)


def compare(indexed: Callable[[], pa.Table], scanned: Callable[[], pa.Table]) -> tuple[float, float, int]:
    """Ask both in turns; return the median seconds of each, and how much was found. :raises SystemExit: they differ."""
    times: tuple[list[float], list[float]] = ([], [])
    answers: list[pa.Table] = []
    for _ in range(WARM_UP + ROUNDS):
        for spent, ask in zip(times, (indexed, scanned), strict=True):
            seconds, answer = _clock(ask)
            spent.append(seconds)
            answers.append(answer.sort_by(answer.column_names[0]))
    if any(answer.to_pylist() != answers[0].to_pylist() for answer in answers):
        raise SystemExit("What is found with an index is not what is found without.")
    with_index, without = (statistics.median(spent[WARM_UP:]) for spent in times)
    return with_index, without, answers[0].num_rows


def write(flights: pd.DataFrame, folder: Path) -> int:
    """Write the flights of thirty years, a file a month in order of time; return how many rows they are.

    A year has the flights of 2013 on days of its own, each with an id. Ids are in no order of time, as where several
    systems hand them out.
    """
    folder.mkdir(parents=True)
    ordered = flights.sort_values(data.KEY)
    months = [pa.Table.from_pandas(ordered[ordered["month"] == month], preserve_index=False) for month in range(1, 13)]
    before = np.cumsum([0, *(len(month) for month in months)])

    def one(year: int, month: int) -> None:
        rows = months[month - 1]
        moved = np.datetime64(f"{year}-{month:02d}", "D") - np.datetime64(f"2013-{month:02d}", "D")
        first = (year - YEARS.start) * int(before[-1]) + int(before[month - 1])
        changed = {
            "time_hour": pc.add(rows["time_hour"], pa.scalar(moved.astype("timedelta64[us]"))),
            # An odd factor makes no number of two: ids are unique.
            "flight_id": (np.arange(first, first + len(rows), dtype=np.uint64) * _MIXED).view(np.int64),
        }
        columns = {name: rows[name] for name in rows.column_names} | changed
        pq.write_table(pa.table(columns), folder / f"flights-{year}-{month:02d}.parquet")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda both: one(*both), [(year, month) for year in YEARS for month in range(1, 13)]))
    return len(YEARS) * int(before[-1])


def _clock(call: Callable[[], Any]) -> tuple[float, Any]:
    started = time.monotonic()
    result = call()
    return time.monotonic() - started, result


def main() -> int:
    """Measure in a session of its own; return 0 if every answer is right and fast, else 1."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("JAVA_HOME", str(java_home()))
    builder = SparkSession.builder.master("local[2]").appName("demo")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
        return 0 if show(console, spark, data.raw(), Path(sys.argv[1])) else 1
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
