"""Few rows that the driver writes by itself are written as Spark writes them, and mean the same to every index."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark_apps import IndexedTable
from spark_apps.mergetree.write_on_driver import can_stage_on_driver
from spark_apps.timeline.model import REPLACED, AddFile
from tests.spark_apps.frames import frame
from tests.spark_apps.small_tables import in_order, rows_of, within

pytestmark = [pytest.mark.spark]

DDL = (
    "id string, p date, s string, raw binary, t tinyint, sm smallint, i int, b bigint, f float, d double, d1 "
    "decimal(5,2), d2 decimal(18,3), d3 decimal(38,10), day date, at timestamp, local timestamp_ntz, flag boolean"
)
ROWS = """
    SELECT concat('k', id) id, if(id % 4 = 0, NULL, date_add(DATE'1960-01-01', cast(id % 3 AS int))) p,
           if(id % 5 = 0, NULL, concat('ö', id % 7)) s, encode(cast(id AS string), 'utf-8') raw,
           cast(id % 100 - 50 AS tinyint) t, cast(-id AS smallint) sm, if(id % 7 = 0, NULL, cast(id AS int)) i,
           id * 10000000000 b,
           cast(element_at(array('-0.0', 'NaN', 'Infinity', '0.1'), cast(id % 4 + 1 AS int)) AS float) f,
           cast(element_at(array('-0.0', 'NaN', '-Infinity', '0.1'), cast(id % 4 + 1 AS int)) AS double) d,
           cast(id / 100 - 1 AS decimal(5,2)) d1, cast(-id / 8 AS decimal(18,3)) d2,
           cast(cast(id AS decimal(18,0)) * -123456789012345678 AS decimal(38,10)) d3,
           element_at(array(DATE'0001-01-01', DATE'1500-02-28', DATE'9999-12-31', NULL), cast(id % 4 + 1 AS int)) day,
           element_at(array(TIMESTAMP'0001-01-01 00:00:00', TIMESTAMP'1500-02-28 11:12:13.123456', NULL,
                            TIMESTAMP'9999-12-31 23:59:59.999999', TIMESTAMP'1969-12-31 23:59:59.999999'),
                      cast(id % 5 + 1 AS int)) at,
           element_at(array(TIMESTAMP_NTZ'0001-01-01 00:00:00', NULL, TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'),
                      cast(id % 3 + 1 AS int)) local,
           id % 3 = 0 flag
    FROM range({}, {})"""


def table(spark: SparkSession, place: Path, rows: int, ddl: str = DDL, **options: Any) -> IndexedTable:
    made = IndexedTable.create(spark, place, ddl, ["id"], **{"partition_by": ["p"], "buckets": 3, **options})
    return within(made, staged_rows=rows)


def local(of: IndexedTable, file: Any) -> str:
    return of.snapshot.store.spark_path(file.path).removeprefix("file://")


def exact(spark: SparkSession, paths: list[str]) -> dict[str, list[str]]:
    """All values of files, in their order, bit by bit: a hash tells -0.0 from 0.0. By one job, for there are many."""
    rows = (
        spark.read.parquet(*paths)
        .selectExpr("_metadata.file_path", "*", "hash(f, d, day, at, local)")
        .drop("day", "at", "local")
    )
    values: dict[str, list[str]] = {path: [] for path in paths}
    for path, *row in rows.collect():
        values[urlsplit(path).path].append(repr(row))
    return values


def told(metadata: Any, n: int) -> tuple[Any, ...]:
    """What a file says of a column, by which readers pass over rows; of one that holds a NaN nothing."""
    column, chunk = metadata.schema.column(n), metadata.row_group(0).column(n)
    known = chunk.statistics
    try:
        span = (known.min, known.max) if known is not None and known.has_min_max and known.max == known.max else None
    except pa.ArrowNotImplementedError:
        span = None  # before pyarrow 22 it could not say that of decimals
    return column.name, column.physical_type, str(column.logical_type), column.length, span


@pytest.mark.by_turn(2)
@pytest.mark.parametrize("timestamps", ["INT96", "TIMESTAMP_MICROS"])
def test_given_every_plain_type_then_files_hold_what_sparks_hold(
    spark: SparkSession, tmp_path: Path, timestamps: str
) -> None:
    spark.conf.set("spark.sql.parquet.outputTimestampType", timestamps)
    try:
        both = {way: table(spark, tmp_path / way, rows) for way, rows in (("here", 1000), ("spark", 0))}
        for one in both.values():
            one.upsert(spark.sql(ROWS.format(0, 60)))
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    files = {way: {file.group_key: file for file in one.snapshot.state.files("data")} for way, one in both.items()}

    assert files["here"].keys() == files["spark"].keys()
    values = {way: exact(spark, [local(both[way], file) for file in files[way].values()]) for way in both}
    for group, here in files["here"].items():
        theirs = files["spark"][group]
        paths = [local(both[way], file) for way, file in (("here", here), ("spark", theirs))]
        assert (here.rows, here.tombstones) == (theirs.rows, theirs.tombstones)
        assert [Path(path).with_name(f".{Path(path).name}.crc").stat().st_size > 8 for path in paths] == [True, True]
        assert values["here"][paths[0]] == values["spark"][paths[1]] != []
        ours, spark_s = map(pq.read_metadata, paths)
        for n in range(ours.num_columns):
            assert told(ours, n) == told(spark_s, n)
        assert ours.metadata[b"org.apache.spark.version"] == spark_s.metadata[b"org.apache.spark.version"]
        assert not pq.read_schema(paths[0]).field("id").nullable
    assert not list(Path(both["here"].uri).rglob("_SUCCESS"))  # which a job of Spark's leaves


KEYED = "p string, city string, n int, amount decimal(9,2)"


def upserted(table: IndexedTable) -> list[AddFile]:
    [commit] = table._handle.timeline.commits(after=table.version - 1)
    return [action for action in commit.actions if isinstance(action, AddFile)]


@pytest.mark.by_turn(12)
@pytest.mark.parametrize("id_type", ["string", "timestamp", "timestamp_ntz"])
@pytest.mark.parametrize("options", [{"positions": True}, {"write_mode": "copy_on_write"}], ids=repr)
def test_given_rows_that_stay_move_come_and_go_then_both_ways_leave_the_same_table(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any], id_type: str
) -> None:
    ddl = f"id {id_type}, {KEYED}"

    def id_of(n: int) -> Any:
        if id_type == "string":
            return f"k{n}"
        return datetime(1600 if n % 2 else 2024, 1, 1, microsecond=n)

    def rows(first: int, last: int, step: int, city: str) -> list[tuple[Any, ...]]:
        return [(id_of(n), None if n % 5 == 0 else f"p{(n + step) % 3}", f"{city}{n % 4}" if n % 3 else None, n, None,
                 bool(step) and n % 11 == 0) for n in range(first, last)]  # fmt: skip

    both = {way: table(spark, tmp_path / way, few, ddl, **options) for way, few in (("here", 1000), ("spark", 0))}
    batches = [rows(0, 60, 0, "c"), rows(20, 80, 1, "d"), rows(70, 75, 1, "d"), rows(30, 35, 2, "e") * 2]
    found: dict[str, Any] = {}
    for way, one in both.items():
        written = []
        for number, batch in enumerate(batches):
            receipt = one.upsert(frame(spark, batch, f"{ddl}, gone boolean"), deleted="gone")
            if number == 0:
                one.create_index("key", kind="record")
                one.create_index("city", kind="secondary", columns=["city", "n"])
                one.create_index("lazy", kind="secondary", columns=["n"], properties={"tombstones": "lazy"})
                if not options.get("positions"):
                    # Whose values Arrow does not compare as Spark does: such an index gets frames.
                    one.create_index("amount", kind="secondary", columns=["amount"])
                continue
            written.append((
                {name: value for name, value in receipt.metrics.items() if "bytes" not in name},
                sorted((file.tree.partition("@")[0], file.group_key, file.kind, file.rows, file.tombstones,
                        (file.extra or {}).get(REPLACED)) for file in upserted(one)),
            ))  # fmt: skip
        assert all(one.verify(name).ok for name in one.indexes)
        found[way] = written, rows_of(one), one.read("city = 'd1'").count()
    assert found["here"] == found["spark"]
    assert "amount" in one.indexes or any(file[-1] for file in found["here"][0][0][1])  # replaced rows are counted
    last = {row[0]: row for batch in batches for row in batch}
    assert found["here"][1] == in_order(row[:5] for row in last.values() if not row[5])


YEARS = [-200_000, -60_000, -5_000, -4_711, 0, 1, 1600, 2024, 9_999, 10_000, 250_000]


@pytest.mark.by_turn(16)
def test_given_times_of_far_years_then_rows_are_found_whoever_wrote_them(spark: SparkSession, tmp_path: Path) -> None:
    """Arrow takes days before the year -4712 of Spark's older physical type for days that are far ahead."""
    ddl = "id timestamp, p string, seen timestamp, n int"
    years = frame(spark, [(year,) for year in YEARS], "year int")

    def batch(step: int, where: str) -> Any:
        id, seen = (f"timestamp_micros(({year} - 1970) * 31556952000000L)" for year in ("year", "-year"))
        path = f"concat('p', pmod(year + {step}, 3))"
        return years.where(where).selectExpr(f"{id} id", f"{path} p", f"{seen} seen", f"{step} n")

    both = {way: table(spark, tmp_path / way, few, ddl) for way, few in (("here", 1000), ("spark", 0))}
    found = {}
    for way, one in both.items():
        one.upsert(batch(0, "true"))
        one.create_index("key", kind="record")
        one.create_index("seen", kind="secondary", columns=["seen", "n"])
        for step, where in enumerate(("year BETWEEN 1 AND 9998", "true"), start=1):
            one.upsert(batch(step, where))
        assert all(one.verify(name).ok for name in one.indexes), way
        found[way] = sorted(one.read().selectExpr("unix_micros(id)", "p", "unix_micros(seen)", "n").collect())
    assert found["here"] == found["spark"]
    assert len(found["here"]) == len(YEARS) and {row[3] for row in found["here"]} == {2}


@pytest.mark.by_turn(4)
def test_given_what_is_not_known_here_then_spark_writes(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="spark_apps.actions.upsert_plan")
    ddl = {"nested": "id string, p string, n array<int>", "zones": "id string, p string, a timestamp, b timestamp_ntz"}
    batches: dict[str, list[tuple[Any, ...]]] = {
        "nested": [("k1", "a", [1])],
        "zones": [("k1", "a", None, None)],
        "many": [(f"k{n}", "a") for n in range(11)],
        "twice": [("k1", "a"), ("k1", "a")],
        "plain": [("k1", "a")],
    }
    for name, rows in batches.items():
        one = table(spark, tmp_path / name, 10, ddl.get(name, "id string, p string"))
        caplog.clear()
        one.upsert(frame(spark, rows, ddl.get(name, "id string, p string")))
        assert ("written by the driver" in caplog.text) == (name in ("plain", "zones")), name
        assert sorted(row.id for row in one.read().collect()) == sorted({row[0] for row in rows})

    for setting, value in {
        "spark.sql.parquet.compression.codec": "lz4",
        "parquet.crypto.factory.class": "org.example.Factory",
        "spark.sql.parquet.writeLegacyFormat": "true",
    }.items():
        assert can_stage_on_driver(spark, one.snapshot.store, one.snapshot.data)
        spark.conf.set(setting, value)
        try:
            assert not can_stage_on_driver(spark, one.snapshot.store, one.snapshot.data), setting
        finally:
            spark.conf.unset(setting)
