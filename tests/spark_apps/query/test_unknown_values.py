"""Values that Spark knows and Python does not: days and times outside of the years 1 to 9999, strings of no UTF-8.
One of them hinders no query: the same rows as a scan by Spark gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import spark_apps
from spark_apps import IncludedColumns, IndexedTable
from spark_apps.indexes.ranges import python_values
from spark_apps.layout.types import parse_type
from spark_apps.query.parsing import parse_predicate
from spark_apps.query.predicates import may_match
from spark_apps.storage.errors import LakeIndexError

pytestmark = pytest.mark.by_turn(24, together=4)

FAR = 4_000_000  # the year 12921, in days since 1970
DAYS = [19723, FAR, -FAR, None, 0, 2932896, -719162, FAR]
STRINGS = [b"a", b"\xff", b"a\xff", None, "ü".encode(), b"\xed\xa0\x80", b"", b"b"]


def strings(values: list[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary()).view(pa.string())


def days(values: list[int | None]) -> pa.Array:
    return pa.array(values, pa.int32()).view(pa.date32())


def moments(values: list[int | None], zone: str | None) -> pa.Array:
    of_day = pa.array([None if day is None else day * 86_400_000_000 for day in values], pa.int64())
    return of_day.view(pa.timestamp("us", zone))


@pytest.mark.parametrize(
    ("array", "type", "literal", "raw"),
    [
        (days(DAYS), "date", "DATE '1970-01-01'", DAYS),
        (moments(DAYS, "UTC"), "timestamp", "TIMESTAMP '1970-01-01 00:00:00Z'", DAYS),
        (moments(DAYS, None), "timestamp_ntz", "TIMESTAMP_NTZ '1970-01-01 00:00:00'", DAYS),
        (strings(STRINGS), "string", "'b'", STRINGS),
    ],
)
def test_given_values_that_python_does_not_know_then_they_compare_as_spark_compares_them(
    array: Any, type: str, literal: str, raw: list[Any]
) -> None:
    limit: Any = b"b" if type == "string" else 0
    tests: dict[str, Any] = {
        "=": lambda v: v == limit, "<": lambda v: v < limit, ">": lambda v: v > limit, "<=": lambda v: v <= limit,
        ">=": lambda v: v >= limit, "<>": lambda v: v != limit, "<=>": lambda v: v == limit,
        "IS DISTINCT FROM": lambda v: v != limit,
    }  # fmt: skip
    for chunked in (array, pa.chunked_array([array.slice(0, 3), array.slice(3)])):
        values = python_values(chunked)
        for op, test in tests.items():
            predicate = parse_predicate(f"c {op} {literal}", {"c": type}, time_zone="UTC", timestamps="timestamp")
            ours = [may_match(predicate, {"c": _zoned(value, type)}) for value in values]
            assert ours == [op == "IS DISTINCT FROM" if v is None else test(v) for v in raw], op


def _zoned(value: Any, type: str) -> Any:
    from spark_apps.indexes.ranges import value_of

    return value_of(value, parse_type(type))


@pytest.fixture(scope="module")
def table(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> IndexedTable:
    folder = tmp_path_factory.mktemp("unknown") / "source"
    folder.mkdir()
    for n in range(2):
        rows = pa.table({"id": pa.array(range(n * 8, n * 8 + 8), pa.int32()), "s": strings(STRINGS), "d": days(DAYS),
                         "ts": moments(DAYS, "UTC"), "f": pa.array([n] * 8, pa.int32())})  # fmt: skip
        pq.write_table(rows, folder / f"{n}.parquet")
    with_old = {"datetimeRebaseMode": "CORRECTED"}
    made = IndexedTable.register(spark, folder, options=with_old)
    for name in ("s", "d", "ts"):
        made.create_index(f"com_{name}", "compact", [name])
        made.create_index(f"sec_{name}", "secondary", [name])
    made.create_index("cov", "covering", ["d", "s"], included=IncludedColumns(include=["id"]))
    return made


ASKED = [
    "s > 'a'", "s <> 'a'", "s < 'b'", "s = 'a'", "s IN ('a', 'b')", "s <=> NULL", "s >= 'ü'", "d > DATE '2024-01-01'",
    "d <> DATE '2024-01-01'", "d < DATE '1970-01-01'", "d = DATE '9999-12-31'", "d IS NULL", "d >= DATE '0001-01-01'",
    "ts > TIMESTAMP '2024-01-01 00:00:00Z'", "ts <> TIMESTAMP '2024-01-01 00:00:00Z'",
    "d > DATE '+10000-01-01'", "ts < TIMESTAMP '-0001-01-01 00:00:00Z'", "s > cast(X'FF' AS string)",
    "s = cast(X'FF' AS string) AND f >= 0", "d = DATE '+12921-08-10'",
]  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize("where", ASKED)
def test_given_rows_with_such_values_then_every_comparison_finds_what_a_scan_does(
    spark: Any, table: IndexedTable, where: str
) -> None:
    plain = spark.read.option("datetimeRebaseMode", "CORRECTED").parquet(table.definition.source.location)
    expected = sorted(row.id for row in plain.where(where).select("id").collect())
    assert sorted(row.id for row in table.read(where, ["id"]).collect()) == expected


@pytest.mark.spark
def test_given_rows_with_such_values_then_indexes_verify(table: IndexedTable) -> None:
    assert set(table.indexes) == {*(f"{kind}_{name}" for kind in ("com", "sec") for name in ("s", "d", "ts")), "cov"}
    for name in table.indexes:
        report = table.verify(name)
        assert report.ok and report.uncovered == 0 and report.rows >= 2 * len(set(DAYS)), name


@pytest.mark.spark
def test_given_rows_with_such_values_then_the_data_source_reads_them(spark: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyspark.sql.datasource")
    spark_apps.register_data_source(spark)
    rows = pa.table({"id": pa.array(range(8), pa.int32()), "s": strings(STRINGS), "d": days(DAYS)})
    made = IndexedTable.create(spark, tmp_path / "t", "id int, s string, d date", ["id"], buckets=1)
    pq.write_table(rows, tmp_path / "rows.parquet")
    plain = spark.read.option("datetimeRebaseMode", "CORRECTED").parquet(str(tmp_path / "rows.parquet"))
    made.upsert(plain)
    made.create_index("com", "compact", ["s"])
    for where in ("s <> 'a'", "s > 'a'", "d < DATE '1970-01-01'", "d <> DATE '1970-01-01'"):
        frame = spark.read.format("indexed").option("where", where).load(str(tmp_path / "t")).select("id")
        expected = sorted(row.id for row in plain.where(where).select("id").collect())
        assert sorted(row.id for row in frame.collect()) == expected, where


@pytest.mark.spark
def test_given_keys_and_partitions_of_such_values_then_rows_are_written_found_and_deleted(
    spark: Any, tmp_path: Path
) -> None:
    ddl = "s string, d date, city string, n int"
    made = IndexedTable.create(spark, tmp_path / "t", ddl, ["s", "d"], partition_by=["city"], buckets=2)
    keys = "(values (cast(X'FF' AS string), DATE '+12000-01-01', 'x', 1), ('a', DATE '-0005-01-01', 'y', 2), "
    keys += "('b', DATE '2024-01-01', 'x', 3)) AS t(s, d, city, n)"
    made.upsert(spark.sql(f"SELECT * FROM {keys}"))
    made.create_index("rec", "record")
    made.create_index("by_n", "secondary", ["n"])
    made.upsert(spark.sql(f"SELECT s, d, 'z' city, n + 10 n FROM {keys} WHERE n < 3"))
    assert sorted((row.city, row.n) for row in made.read(columns=["city", "n"]).collect()) == [
        ("x", 3), ("z", 11), ("z", 12)
    ]  # fmt: skip
    for where, expected in (("n = 11", [11]), ("s = 'b' AND d = DATE '2024-01-01'", [3]), ("n IN (3, 12)", [3, 12])):
        assert sorted(row.n for row in made.read(where, ["n"]).collect()) == expected, where
    made.create_index("com", "compact", ["n"])
    assert [row.n for row in made.read("n = 12", ["n"]).collect()] == [12]
    made.delete("n = 11")
    assert sorted(row.n for row in made.read(columns=["n"]).collect()) == [3, 12]
    assert made.verify("rec").ok and made.verify("by_n").ok


@pytest.mark.spark
def test_given_partitions_of_such_days_then_they_are_refused_or_read_as_any_other(spark: Any, tmp_path: Path) -> None:
    ddl = "id int, d date"
    made = IndexedTable.create(spark, tmp_path / "t", ddl, ["id"], partition_by=["d"], buckets=1)
    rows = "SELECT 1 id, DATE '2024-01-01' d UNION ALL SELECT 2, DATE '+10000-01-01'"
    try:
        made.upsert(spark.sql(rows))
    except LakeIndexError as refused:
        assert "10000" in str(refused)
        made.upsert(spark.sql(rows).where("id = 1"))
    made.create_index("com", "compact", ["id"])
    made.create_index("sec", "secondary", ["id"])
    held = {row.id for row in made.read(columns=["id"]).collect()}
    for where, expected in (
        ("id = 2", {2}),
        ("d > DATE '2024-01-01'", {2}),
        ("d = DATE '2024-01-01'", {1}),
        ("id = 1", {1}),
    ):
        assert {row.id for row in made.read(where, ["id"]).collect()} == expected & held, where
