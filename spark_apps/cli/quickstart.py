"""Shows five million rows, an index, and the same SQL before and after: ``lakeindex quickstart``.

Needs Spark and no Airflow. The rows are plain Parquet that Spark writes by itself; what reads them faster afterwards is
an index beside them. The exit status is 0 if both answers are the same, the index was used, and it holds every row.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import spark_apps
from spark_apps.jobs.environment import java_home
from spark_apps.storage.errors import InvalidInput, LakeIndexError, SparkMissing
from spark_apps.storage.units import format_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 5_000_000

TRIPS = """
    SELECT id,
           concat('r', lpad(cast(pmod(hash(id), 1000000) AS string), 6, '0')) AS rider,
           element_at(array('sfo', 'nyc', 'rio', 'ber'), cast(id % 4 + 1 AS int)) AS city,
           cast(5 + pmod(xxhash64(id), 4000) / 100 AS decimal(6, 2)) AS fare,
           date_add(DATE '2026-11-01', cast(id * 30 div {rows} AS int)) AS day
    FROM range(0, {rows}, 1, 30)
"""
"""A file a day, as they come in; a rider's trips are in the files of several days."""

QUERY = "SELECT day, city, fare FROM trips WHERE rider = 'r075805' ORDER BY day, fare"


def run(spark: SparkSession, folder: Path, rows: int = ROWS) -> bool:
    """Write the table below a folder, ask, index, ask again, verify; return whether all is as it should be."""
    trips = folder / "trips"
    seconds, _ = timed(lambda: write(spark, trips, rows))
    files = list(trips.rglob("*.parquet"))
    size = format_bytes(sum(file.stat().st_size for file in files))
    say("A table", f"{rows:,} trips, written by Spark as {len(files)} Parquet files, {size}", seconds)

    say("The query", QUERY)
    spark.read.parquet(str(trips)).createOrReplaceTempView("trips")
    before, scanned = asked(spark)
    say("Before", f"{count(len(scanned), 'row')}, out of {count(len(files), 'file')}", before)

    table = spark_apps.IndexedTable.register(spark, trips)
    included = ["day", "city", "fare"]
    seconds, _ = timed(lambda: table.create_index("by_rider", "covering", ["rider"], included=included))
    status = table.index_status("by_rider")
    say("An index", f"by_rider, {count(status.files, 'file')}, {format_bytes(status.bytes)}", seconds)

    spark_apps.enable(spark)
    after, by_index = asked(spark)
    [scan] = spark_apps.explain(QUERY, spark).scans
    read = scan.explanation
    used = [use for use in read.indexes if use.name == "by_rider"] if read is not None and scan.replaced else []
    opened = (read.files_read if used and read is not None else len(files)) + sum(use.files for use in used)
    say("After", f"{count(len(by_index), 'row')}, out of {count(opened, 'file')}", after)

    seconds, report = timed(lambda: table.verify("by_rider"))
    agree = "agree" if report.ok else "DIFFER"
    say("Verify", f"{report.rows:,} rows and {report.entries:,} entries of the index {agree}", seconds)

    if by_index != scanned or not by_index:
        say("Failed", "the answers differ")
    elif not used:
        say("Failed", "the index was not used")
    elif report.ok:
        say("", f"The same text, the same answer, {before / after:.1f} times as fast.")
    return bool(by_index) and by_index == scanned and bool(used) and report.ok


def write(spark: SparkSession, folder: Path, rows: int) -> None:
    """Write the trips as Spark does without this package."""
    spark.sql(TRIPS.format(rows=rows)).write.parquet(str(folder))


def asked(spark: SparkSession) -> tuple[float, list[Any]]:
    """Return the seconds that the query takes once Spark is warm, the best of three, and its answer."""
    answers = [timed(lambda: spark.sql(QUERY).collect()) for _ in range(4)][1:]
    return min(seconds for seconds, _ in answers), answers[-1][1]


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds that a call takes, and what it returns."""
    started = time.monotonic()
    result = call()
    return time.monotonic() - started, result


def count(number: int, what: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def say(what: str, text: str, seconds: float | None = None) -> None:
    """Write one line."""
    line = f"{what:<10} {text}"
    sys.stdout.write(f"{line if seconds is None else f'{line:<88} {seconds:6.2f} s'}\n")
    sys.stdout.flush()


@contextlib.contextmanager
def session(log: Path) -> Iterator[SparkSession]:
    """Start a Spark of two cores on this machine. What it writes by itself goes into a file."""
    os.environ.setdefault("JAVA_HOME", str(java_home()))
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise SparkMissing(
            "Spark is not installed.", hint="pip install 'lakeindex[spark,jdk]' brings it, and a Java."
        ) from None
    settings = {
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
    }
    builder = SparkSession.builder.master("local[2]").appName("quickstart")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with errors_into(log):
        spark = builder.getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()


@contextlib.contextmanager
def errors_into(log: Path) -> Iterator[None]:
    """Write what this process and those that it starts report as errors into a file; show it for an unforeseen one."""
    sys.stderr.flush()
    before = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    unforeseen = False
    try:
        yield
    except LakeIndexError:
        raise
    except Exception:
        unforeseen = True
        raise
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)
        if unforeseen:
            sys.stderr.write(log.read_text(errors="replace"))


def main(arguments: Sequence[str] = ()) -> int:
    """Run it; return 0 if all is as it should be, else 1."""
    parser = argparse.ArgumentParser(prog="lakeindex quickstart", description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=ROWS, help="how many (default: %(default)s)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave table and index there; it must not exist")
    chosen = parser.parse_args(arguments)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="quickstart-") as temporary:
        folder, log = chosen.keep or Path(temporary), Path(temporary) / "spark.log"
        try:
            if chosen.keep is not None and chosen.keep.exists():
                raise InvalidInput(f"{chosen.keep} is there already.", hint="Name another folder.")
            with session(log) as spark:
                good = run(spark, folder.absolute(), chosen.rows)
        except LakeIndexError as error:
            sys.stderr.write(f"{error}\n")
            return 1
    kept = "" if chosen.keep is None else f" Table and index are in {chosen.keep}."
    say("", f"{time.monotonic() - started:.0f} s in all.{kept}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
