"""What one Spark does to a table that several share: ``python -m tests.matrix.crossing (write|continue) FOLDER NAME``.

``write`` makes the table ``NAME`` with all types that keys, order and indexes are made of. ``continue`` reads each
table in the folder, compares it with what has been written down beside it, verifies its indexes, writes rows of its own
and writes those down, and compacts.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

from spark_apps import IndexedTable
from spark_apps.engine.spark_versions import release, to_arrow
from spark_apps.layout.hashing import bucket_id
from spark_apps.mergetree.buckets import bucket_column
from spark_apps.storage.errors import InvalidSchema
from tests.spark.local import local_session
from tests.spark_apps.frames import frame

DDL = (
    "k decimal(20,4), s string, p date, n int, x double, f float, at timestamp, local timestamp_ntz, b binary, "
    "t boolean, many array<int>, named struct<a: int, at: timestamp>"
)
COLLATED = "n bigint, town string collate UNICODE_CI"
HASHED = ("k", "s")
INDEXES = {
    "rec": ("record", []),
    "by_at": ("secondary", ["at"]),
    "by_b": ("secondary", ["b", "n"]),
    "blocks": ("compact", ["n"]),
    "cov": ("covering", ["local"]),
}
TIME = dt.datetime(2024, 10, 27, 1, 30, 0, 123456)
QUESTIONS = (
    "at = TIMESTAMP '1850-01-01T00:00:01Z'", "local = TIMESTAMP_NTZ '2024-10-27 01:30:03.123456'", "n = 4", "n IS NULL",
    "x = -0.0", "isnan(x)", "x = double('NaN') AND k < 0", "k = -1.5000", "s = ''", "s > 'b'", "f = float('Infinity')",
    "p = DATE '2024-10-27'", "t AND at > TIMESTAMP '2024-10-27T00:00:00Z'",
)  # fmt: skip


def row(number: int, batch: int) -> tuple[Any, ...]:
    """A row of a batch; keys of two batches that follow each other meet in part."""
    empty = number % 7 == 6
    doubles = (-0.0, 0.0, float("nan"), float("inf"), 1e-300, number / 3)
    begun = dt.datetime(1850, 1, 1) if number % 3 == 1 else TIME
    at = begun + dt.timedelta(seconds=number)
    return (
        Decimal(number - 4) * Decimal("0.5"), ("", "ä", "b\U0001f642", "c" * 40)[number % 4],
        dt.date(2024, 10, 27) if number % 2 else dt.date(1582, 10, 4), None if empty else number % 5 + batch,
        None if empty else doubles[number % 6], None if empty else doubles[(number + batch) % 4],
        None if empty else at.replace(tzinfo=dt.UTC), None if empty else TIME + dt.timedelta(seconds=number),
        None if empty else bytes([number, 255]), None if empty else bool(number % 2),
        None if empty else [number, None][: number % 3],
        None if empty else {"a": None, "at": TIME.replace(tzinfo=dt.UTC)},
    )  # fmt: skip


def batch(number: int) -> list[tuple[Any, ...]]:
    return [row(at, number) for at in range(5 * number, 5 * number + 30)]


def written(folder: Path) -> list[int]:
    """The batches that a table was given, in order."""
    path = beside(folder)
    return list(json.loads(path.read_text())) if path.exists() else []


def beside(folder: Path) -> Path:
    """Where a table's batches are written down; the name is kept whole, as ``.0`` is no suffix of ``spark-4.0``."""
    return folder.with_name(f"{folder.name}.json")


def write(spark: Any, folder: Path, number: int) -> None:
    """Give a table a batch, the second time as a row lives on in it, and write the batch down."""
    table = IndexedTable.load(spark, folder)
    table.upsert(frame(spark, batch(number), DDL))
    beside(folder).write_text(json.dumps([*written(folder), number]))


def check(spark: Any, folder: Path) -> None:
    """Compare a table with the rows that it was given, by every way of asking, and its hash with the driver's."""
    rows = {(each[0], each[1], each[2]): each for number in written(folder) for each in batch(number)}
    plain = frame(spark, list(rows.values()), DDL)
    table = IndexedTable.load(spark, folder)
    assert bits(table.read()) == bits(plain)
    for where in QUESTIONS:
        expected = bits(plain.where(where))
        assert bits(table.read(where)) == expected, where
    assert any(bits(plain.where(where)) for where in QUESTIONS)
    for name in table.indexes:
        report = table.verify(name)
        assert report.ok, report.differences
    types = ["decimal(20,4)", *(part.split()[1] for part in DDL.split(", ")[1:10])]
    for function in ("xxhash64", "java"):
        fields = HASHED if function == "java" else ("k", "s", "p", "n", "x", "f", "at", "b", "t")
        kinds = [dict(zip([part.split()[0] for part in DDL.split(", ")[:10]], types, strict=True))[f] for f in fields]
        names = [part.split()[0] for part in DDL.split(", ")]
        by_spark = plain.select(*HASHED, "p", bucket_column(fields, 7, function, kinds).alias("bucket")).collect()
        for k, s, p, bucket in by_spark:
            values = [rows[k, s, p][names.index(field)] for field in fields]
            assert bucket == bucket_id(values, 7, function, kinds), (function, k, s)


def bits(frame: Any) -> list[str]:
    return sorted(repr(each) for each in to_arrow(frame).to_pylist())


def write_collated(spark: Any, folder: Path) -> None:
    """Refuse a collation in a key and in an index, and make a table that has one in a column of its own."""
    refused(IndexedTable.create, spark, folder, "town string collate UNICODE_CI, n bigint", ["town"])
    assert not folder.exists()
    if release(spark) < (4, 0):
        return
    table = IndexedTable.create(spark, folder, COLLATED, ["n"], buckets=2)
    table.upsert(spark.sql("SELECT id AS n, if(id % 2 = 0, 'Ulm', 'ULM') COLLATE UNICODE_CI AS town FROM range(6)"))
    for kind in ("secondary", "compact", "covering"):
        refused(table.create_index, "i", kind, ["town"])


def check_collated(spark: Any, folder: Path) -> None:
    """Read a table with a collated column by its collation, or refuse it where there are none."""
    if not folder.exists():
        return
    if release(spark) < (4, 0):
        refused(IndexedTable.load(spark, folder).read)
        return
    table = IndexedTable.load(spark, folder)
    assert table.read("town = 'ulm'").count() == table.read().count() == 6
    assert table.read("town = 'ulm' AND n = 3").count() == 1


def refused(action: Any, *arguments: Any) -> None:
    """Expect an error that names the collated column."""
    try:
        action(*arguments)
    except InvalidSchema as error:
        assert "town" in str(error), error
    else:
        raise AssertionError(f"{action} took a collated string.")


def main() -> int:
    what, place, name = sys.argv[1:]
    home = Path(place)
    spark = local_session()
    numbers = {other: position for position, other in enumerate(sorted(json.loads((home / "names").read_text())))}
    if what == "write":
        table = IndexedTable.create(spark, home / name, DDL, ["k", "s"], partition_by=["p"], buckets=3)
        write(spark, home / name, numbers[name])
        for index, (kind, columns) in INDEXES.items():
            table = IndexedTable.load(spark, home / name)
            table.create_index(index, kind, columns)
        write_collated(spark, home / f"collated-{name}")
    else:
        for other in numbers:
            check_collated(spark, home / f"collated-{other}")
            check(spark, home / other)
            write(spark, home / other, len(numbers) + numbers[name])
            check(spark, home / other)
            if numbers[name] % 2:
                table = IndexedTable.load(spark, home / other)
                table.compact()
                check(spark, home / other)
    spark.stop()
    sys.stdout.write(f"Spark {what} {name}: done\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
