"""Makes the lake that the pages of the documents speak of: ``lakeindex example FOLDER``; their blocks run on it.

A warehouse with the keyed tables ``db.trips``, ``db.rides`` and ``db.orders``, and beside them files of others:
``raw/trips`` and ``raw/riders`` in Parquet, and what has just landed. Starts Spark; nothing of Airflow.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spark_apps.cli.quickstart import session
from spark_apps.storage.errors import InvalidInput, LakeIndexError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIPS = "id string, city string, fare double, rider string, note string, ts timestamp, dt string"
ROWS = 20_000
RIDERS = 5_000
_CITIES = "'sfo', 'nyc', 'rio', 'ber', 'osl', 'lis', 'rom', 'ams'"

# A rider's four trips are of one of the four days; every thousandth note has the rare word.
_TRIP = f"""
    concat('k', id) AS id, element_at(array({_CITIES}), cast(id % 8 + 1 AS int)) AS city, id % 80 / 2.0D AS fare,
    concat('r-', id % {RIDERS}) AS rider, if(id % 997 = 0, 'an umbrella was left', 'nothing was left') AS note,
    timestamp'2026-11-10 00:00:00Z' + make_interval(0, 0, 0, cast(id % 4 AS int), cast(id % 24 AS int)) AS ts,
    concat('2026-11-1', id % 4) AS dt
"""
_RIDE = "concat('r', id) AS id, timestamp'2026-11-10 20:00:00Z' + make_interval(0, 0, 0, 0, cast(id AS int)) AS ts"


def make(spark: SparkSession, folder: Path) -> None:
    """Make the tables and the files below a folder.

    :raises InvalidInput: if the folder is there already.
    """
    from spark_apps import IndexedTable

    if folder.exists():
        raise InvalidInput(f"{folder} is there already.", hint="Remove it, or name another folder.")
    trips = spark.sql(f"SELECT {_TRIP} FROM range({ROWS})")
    trips.write.parquet(str(folder / "raw" / "trips"))
    riders = f"concat('r-', id) AS id, concat('n', id) AS name, if(id < 3, 'sfo', 'nyc') AS city FROM range({RIDERS})"
    spark.sql(f"SELECT {riders}").write.parquet(str(folder / "raw" / "riders"))
    landed = spark.sql(f"SELECT {_TRIP} FROM range({ROWS}, {ROWS + 60})").coalesce(1)
    landed.write.parquet(str(folder / "landing" / "trips"))
    (folder / "landing" / "orders").mkdir(parents=True)
    (folder / "landing" / "orders" / "1.json").write_text('{"id": 1, "state": "new", "total": 2.5}\n', encoding="utf-8")

    table = IndexedTable.create(spark, folder / "db" / "trips", TRIPS, ["id"], partition_by=["dt"], buckets=4)
    table.upsert(trips)
    rides = IndexedTable.create(spark, folder / "db" / "rides", "id string, ts timestamp", ["id"], buckets=1)
    rides.upsert(spark.sql(f"SELECT {_RIDE} FROM range(3)"))
    orders = "id bigint, state string, total double"
    IndexedTable.create(spark, folder / "db" / "orders", orders, ["id"], buckets=1)


def main(arguments: Sequence[str] = ()) -> int:
    """Make it; return 0, or 1 with the reason on the error output."""
    parser = argparse.ArgumentParser(prog="lakeindex example", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the lake is to be; it must not exist")
    folder = parser.parse_args(arguments).folder.absolute()
    with tempfile.TemporaryDirectory(prefix="example-") as temporary:
        log = Path(temporary) / "spark.log"
        try:
            with session(log) as spark:
                make(spark, folder)
        except LakeIndexError as error:
            sys.stderr.write(f"{error}\n")
            return 1
    tables = ", ".join(sorted(path.name for path in (folder / "db").iterdir()))
    sys.stdout.write(f"{folder}: the tables {tables} below db, files of others below raw and landing\n")
    return 0
