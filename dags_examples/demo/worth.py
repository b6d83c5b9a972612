"""What indexes save, measured: two queries of over a million flights, the same SQL without indexes and with them.

``python -m dags_examples.demo.worth FOLDER`` measures in a Spark of its own. ``--lake`` and others say where the Delta
table of the demo's end is, which is asked last.

The table is Parquet that another writer owns, a file a week over four years, registered and indexed in place. Its
rows are the real flights, shifted by years. Two sessions of one warm Spark ask the same text in turns; in one of them
indexes are enabled. The answers must be the same, the medians are shown. Spark's own read passes over what the files'
own statistics and dictionaries rule out, as ever.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Sequence
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
from spark_apps import IndexedTable, enable, explain
from spark_apps.jobs.environment import class_sharing, java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

YEARS = range(2010, 2014)
WARM_UP, ROUNDS = 1, 3
LEAST_TIMES = 3
"""How many times as fast each question has to be. Measured were 8 and 8 times on a busy machine, which may spoil a
median; but an index that saves little does not pass."""

JVM = f"-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC {class_sharing()}"
"""Options of a Spark that lives for minutes, on two cores: Java's second compiler and a collector with threads of its
own cost more than they give."""

SETTINGS = {
    "spark.driver.memory": "3g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": JVM,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
}
_MIXED = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Question:
    """What is asked, and the index made for it."""

    name: str
    sql: str
    index: str
    kind: str
    columns: tuple[str, ...] = ()
    included: tuple[str, ...] = ()


QUESTIONS = (
    Question("the record of a key", "SELECT * FROM flights WHERE flight_id = {id}", "by_id", "record"),
    Question(
        "a flight number's worst delays",
        "SELECT time_hour, tailnum, origin, dest, dep_delay FROM flights WHERE carrier = 'B6' AND flight = 1211 "
        "ORDER BY dep_delay DESC, time_hour LIMIT 10",
        "by_number", "covering", ("carrier", "flight"), ("time_hour", "tailnum", "origin", "dest", "dep_delay"),
    ),
)  # fmt: skip
"""``{id}`` is replaced by the id of some flight of 2010."""


def show(console: Console, spark: SparkSession, flights: pd.DataFrame, folder: Path) -> bool:
    """Make the table, build the indexes, ask, and print it all; return whether every answer is right and fast."""
    # Log and indexes of an earlier run are beside its files.
    shutil.rmtree(folder, ignore_errors=True)
    folder = folder / "flights"
    seconds, rows = _clock(lambda: write(flights, folder))
    files = list(folder.glob("*.parquet"))
    size = sum(file.stat().st_size for file in files)
    console.print(f"  {rows:,} rows in {len(files)} files, {size / 1e6:,.0f} MB of Parquet: written in {seconds:.1f} s")
    table = IndexedTable.register(spark, folder, "parquet", record_key=["flight_id"])
    costs = {}
    for one in QUESTIONS:
        seconds, _ = _clock(
            lambda one=one: table.create_index(one.index, one.kind, list(one.columns), included=list(one.included))
        )
        costs[one.index] = f"{seconds:.1f} s, {table.index_status(one.index).bytes / 1e6:,.1f} MB"
        console.print(f"  {one.index} ({one.kind}) built: {costs[one.index]}")

    with_indexes = spark.newSession()
    for session in (spark, with_indexes):
        session.read.parquet(str(folder)).createOrReplaceTempView("flights")
    enable(with_indexes)
    [[known]] = spark.sql(
        "SELECT min(flight_id) FROM flights WHERE time_hour = TIMESTAMP '2010-11-17T14:00:00Z'"
    ).collect()
    verdicts = Verdicts()
    grid = Table("", "SQL", "rows", "index", "its cost", "files read", "s without", "s with", "times", "")
    texts = [one.sql.format(id=known) for one in QUESTIONS]
    for one, sql, compared in zip(QUESTIONS, texts, compare(texts, spark, with_indexes), strict=True):
        scanned, indexed, answered = compared
        [scan] = explain(sql, with_indexes).scans
        read = scan.explanation
        used = None if read is None else read.index_used
        good = answered > 0 and scan.replaced and used == one.index and scanned >= LEAST_TIMES * indexed
        grid.add_row(
            one.name, sql, f"{answered:,}", f"{used} ({one.kind})", costs[one.index],
            f"{len(files)} → {'?' if read is None else read.files_read}", f"{scanned:.2f}", f"{indexed:.2f}",
            f"{scanned / indexed:.0f}", verdicts.mark(good),
        )  # fmt: skip
    grid.caption = (
        f"Medians of {ROUNDS} in one warm Spark, in turns: the same text in a session as it is, and in one after "
        "spark_apps.enable(spark). Both gave the same answers."
    )
    console.print(grid)
    return bool(verdicts)


def compare(texts: Sequence[str], *sessions: SparkSession, rounds: int = ROUNDS) -> list[tuple[float, float, int]]:
    """Ask two sessions in turns, all questions in each round; return for each the median seconds and the rows answered.

    :raises SystemExit: if the answers differ.
    """
    times: list[list[list[float]]] = [[[] for _ in sessions] for _ in texts]
    answers: list[list[list[Any]]] = [[] for _ in texts]
    for _ in range(WARM_UP + rounds):
        for number, sql in enumerate(texts):
            for spent, session in zip(times[number], sessions, strict=True):
                seconds, answer = _clock(lambda session=session, sql=sql: session.sql(sql).collect())
                spent.append(seconds)
                answers[number].append(answer)
    compared = []
    for spent, given in zip(times, answers, strict=True):
        if any(answer != given[0] for answer in given):
            raise SystemExit("The answer with indexes is not the answer without.")
        without, with_indexes = (statistics.median(each[WARM_UP:]) for each in spent)
        compared.append((without, with_indexes, len(given[0])))
    return compared


def write(flights: pd.DataFrame, folder: Path, years: range = YEARS) -> int:
    """Write the flights of some years, a file a week in order of time; return how many rows they are.

    A year has the flights of 2013 on days of its own, each with an id. Ids are in no order of time, as where several
    systems hand them out.
    """
    folder.mkdir(parents=True)
    ordered = flights.sort_values(data.KEY)
    of_week = (ordered["time_hour"].dt.dayofyear - 1) // 7
    weeks = [pa.Table.from_pandas(rows, preserve_index=False) for _, rows in ordered.groupby(of_week)]
    before = np.cumsum([0, *(len(week) for week in weeks)])

    def one(year: int, week: int) -> None:
        rows = weeks[week]
        moved = np.datetime64(str(year), "D") - np.datetime64("2013", "D")
        first = (year - years.start) * int(before[-1]) + int(before[week])
        changed = {
            "time_hour": pc.add(rows["time_hour"], pa.scalar(moved.astype("timedelta64[us]"))),
            # An odd factor makes no number of two: ids are unique.
            "flight_id": (np.arange(first, first + len(rows), dtype=np.uint64) * _MIXED).view(np.int64),
        }
        columns = {name: rows[name] for name in rows.column_names} | changed
        pq.write_table(pa.table(columns), folder / f"flights-{year}-{week + 1:02d}.parquet")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda both: one(*both), [(year, week) for year in years for week in range(len(weeks))]))
    return len(years) * int(before[-1])


def _clock(call: Callable[[], Any]) -> tuple[float, Any]:
    started = time.monotonic()
    result = call()
    return time.monotonic() - started, result


def main() -> int:
    """Measure in a session of its own; return 0 if every answer is right and fast, else 1."""
    from pyspark.sql import SparkSession

    from dags_examples.demo import lake
    from dags_examples.demo.story import timed

    parser = argparse.ArgumentParser(prog="python -m dags_examples.demo.worth", description=__doc__)
    parser.add_argument("folder", type=Path, help="for the table of over a million flights")
    parser.add_argument("--lake", type=Path, help="folder of the Delta table")
    parser.add_argument("--warehouse", type=Path, help="where the log of its index is")
    parser.add_argument("--conf", action="append", default=[], help="a setting of Spark, name=value")
    options = parser.parse_args()
    os.environ.setdefault("JAVA_HOME", str(java_home()))
    builder = SparkSession.builder.master("local[2]").appName("demo")
    for key, value in {**SETTINGS, **dict(each.split("=", 1) for each in options.conf)}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
        good = show(console, spark, data.raw(), options.folder)
        if options.lake is not None:
            with timed(console, "Delta's own connector, in plain SQL and in a MERGE, with that index and without"):
                good = lake.show(console, spark, options.warehouse, options.lake) and good
        return 0 if good else 1
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
