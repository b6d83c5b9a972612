"""Covering indexes over expressions: their rows stand in for files where a query has the same expression, or one that
implies it, and are those of a scan."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import spark_apps
from spark_apps import IncludedColumns, IndexedTable, open_table, sql
from spark_apps.actions.indexing import verify
from spark_apps.query.arrow_verify import verify_entries
from spark_apps.storage import errors
from tests.spark.local import session_with
from tests.spark_apps.frames import frame
from tests.spark_apps.small_tables import in_order, rows_of
from tests.turns import of_this_turn

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(16)]

DDL = "id bigint, city string, ts timestamp, fare int, x float, p struct<u:string>, g int, note string"
CITIES = ("SFO", "sfo", "Oslo", "OSLO", "Straße", None, "")
NOON = dt.datetime(2024, 3, 1, 12, tzinfo=dt.UTC)
UTC = {"spark.sql.session.timeZone": "UTC"}
KEPT = {"hybrid_appended_ratio": "1", "hybrid_deleted_ratio": "1", "buckets": "4"}
PREDICATES = (
    "to_date(ts) = DATE'2024-03-03'", "to_date(ts) IN (DATE'2024-03-03', DATE'2024-03-09') AND fare > 3",
    "CAST(ts AS DATE) BETWEEN DATE'2024-03-02' AND DATE'2024-03-04'", "ts >= TIMESTAMP'2024-03-08 06:00:00Z'",
    "ts = TIMESTAMP'2024-03-02 12:00:00Z'", "to_date(ts) IS NULL", "to_date(ts) = DATE'1999-01-01'",
    "lower(city) = 'sfo'", "LOWER(city) IN ('oslo', 'straße')", "lower(city) IS NULL", "lower(city) <=> NULL",
    "lower(city) > 'o'", "lower(city) = 'sfo' OR to_date(ts) < DATE'2024-03-03'", "NOT (lower(city) <> 'oslo')",
    "city = 'SFO'", "p.u = 'u3'", "CAST(x AS double) = 0.0D", "CAST(x AS double) = double('NaN')", "fare = 3",
)  # fmt: skip


def made(ids: range, city: int | None = None) -> list[tuple[Any, ...]]:
    floats = (-0.0, 1.5, float("nan"), None)
    return [
        (i, CITIES[(i if city is None else city) % 7], None if i % 13 == 0 else NOON + dt.timedelta(days=i % 10),
         i % 5, floats[i % 4], (f"u{i % 5}",), i % 2, f"note {i} " * 60)
        for i in ids
    ]  # fmt: skip


def agree(table: IndexedTable, asked: Sequence[str] = PREDICATES, columns: tuple[str, ...] = ("id", "fare")) -> None:
    judged = table.read().selectExpr(*columns, *asked).collect()
    for number, where in enumerate(asked, len(columns)):
        scanned = sorted(tuple(row)[: len(columns)] for row in judged if row[number])
        assert rows_of(table, where, list(columns)) == scanned, where


def used(table: IndexedTable, name: str, where: str, columns: tuple[str, ...] = ("id", "fare")) -> bool:
    plan = table.explain(where, list(columns))
    return any(use.name == name and use.replaces for use in plan.indexes)


INDEXES: dict[str, tuple[list[str], list[str], dict[str, str], str]] = {
    "by_day": (["to_date(ts)"], ["fare", "id"], {"layout": "ranges"}, "to_date(ts) = DATE'2024-03-03'"),
    "by_both": (["to_date(ts)", "fare"], ["id"], {}, "to_date(ts) = DATE'2024-03-03' AND fare IN (2, 3)"),
    "by_city": (["LOWER(City)"], ["fare", "id"], {"lineage": "false"}, "lower(city) = 'sfo'"),
    "by_user": (["p.U", "cast(x AS double)"], ["fare", "id"], {}, "p.u = 'u3' AND CAST(x AS double) = 0.0D"),
}
"""Indexed columns, included ones, properties, and a predicate that an index serves."""


@pytest.mark.by_turn(16)
def test_given_a_source_then_its_rows_are_read_from_the_index_by_the_expression_and_what_implies_it(
    spark: Any, tmp_path: Path
) -> None:
    raw = str(tmp_path / "raw")
    frame(spark, made(range(2000)), DDL).repartition(3).write.parquet(raw)
    with session_with(spark, UTC):
        table = IndexedTable.register(spark, raw, format="parquet")
        for name, (columns, included, properties, where) in INDEXES.items():
            table.create_index(name, "covering", columns, included=included, properties={**KEPT, **properties})
            assert verify(table.snapshot, name).ok
            agree(table)
            assert used(table, name, where), table.explain(where, ["id", "fare"])
            if name == "by_day":
                assert used(table, name, "ts >= TIMESTAMP'2024-03-09 06:00:00Z'")
                spark_apps.enable(spark, sources=[raw])
                try:
                    query = spark.read.parquet(raw).where(where).select("id", "fare")
                    expected = [(row[0], row[3]) for row in made(range(2000)) if row[2] == NOON + dt.timedelta(2)]
                    assert in_order(query.collect()) == sorted(expected)
                finally:
                    spark_apps.disable(spark)
            if name != "by_user":
                table.drop_index(name)
        found = open_table(raw).read("fare = 3", ["id"]).column("id").to_pylist()
        assert sorted(found) == [i for i in range(2000) if i % 5 == 3]
        frame(spark, made(range(3000, 3020), 1), DDL).coalesce(1).write.parquet(raw, mode="append")
        table = IndexedTable.load(spark, raw)
        agree(table)
        table.refresh_index("by_user", included=IncludedColumns(include=["g"], exclude=["fare"]))
        table.compact("by_user", mode="full")
        assert verify(table.snapshot, "by_user").ok
        agree(table, columns=("id", "g"))
        with pytest.raises(errors.InvalidInput, match="by Spark alone"):
            verify_entries(table.snapshot, "by_user")


@pytest.mark.by_turn(4, first=1)
def test_given_a_keyed_table_then_every_change_is_followed_by_refreshes_and_another_session_is_kept_off(
    spark: Any, tmp_path: Path
) -> None:
    asked = of_this_turn(PREDICATES, 8, each=4)
    table = IndexedTable.create(spark, tmp_path / "t", DDL, ["id"], ["g"], buckets=2)
    with session_with(spark, UTC):
        table.upsert(frame(spark, made(range(1000)), DDL))
        table.compact(mode="full")
        create = f"CREATE INDEX by_day ON `{tmp_path}/t` (to_date(ts)) USING covering INCLUDE (fare)"
        kept = "'hybrid_appended_ratio' = 1, 'hybrid_deleted_ratio' = 1, 'buckets' = 4"
        sql.run(spark, f"{create} IDXPROPERTIES ({kept}, 'layout' = 'ranges')")
        table = IndexedTable.load(spark, tmp_path / "t")
        table.create_index("by_city", "covering", ["lower(city)"], included=["fare"], properties=KEPT, deferred=True)
        table.refresh_index("by_city")
        assert table.indexes["by_day"].columns == ("CAST(ts AS date)",)
        agree(table, asked)
        assert used(table, "by_day", "to_date(ts) = DATE'2024-03-03'") and used(table, "by_city", "lower(city) = 'sfo'")
        before = table.version
        table.upsert(frame(spark, made(range(900, 1040), 0), DDL))
        table.delete("id % 5 = 0")
        agree(table, asked)
        table.compact(mode="full")
        for name in ("by_day", "by_city"):
            table.refresh_index(name)
            table.compact(name, mode="full")
        agree(table, asked)
        table.insert_overwrite(frame(spark, [row for row in made(range(60, 290)) if row[6] == 1], DDL))
        table.refresh_index("by_day", mode="full", partitions=["g=1"])
        agree(table, asked)
        table.restore(before)
        agree(table, asked)
        table.drop_partition("g=0")
        table.alter_index("by_day", {"small_bytes": "1000"})
        table.refresh_index("by_day", mode="full")
        agree(table, asked)
        assert verify(table.snapshot, "by_day").ok and verify(table.snapshot, "by_city").ok
        for change in (lambda: table.rename_column("ts", "at"), lambda: table.drop_column("city")):
            with pytest.raises(errors.InvalidInput, match=r"'by_day'|'by_city'"):
                change()
    with session_with(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        where = "to_date(ts) = DATE'2024-03-09'"
        assert not used(table, "by_day", where)
        assert table.explain(where, ["id", "fare"]).not_used["by_day"].code == "session_differs"
        agree(table, asked)
        table.upsert(frame(spark, made(range(2000, 2020)), DDL))
        table.compact(mode="full")
        for refused in (table.refresh_index, lambda name: verify(table.snapshot, name)):
            with pytest.raises(errors.InvalidInput, match="timeZone is 'Asia/Tokyo', and was 'UTC'"):
                refused("by_day")
        table.compact("by_day", mode="full")
    with session_with(spark, UTC):
        table.refresh_index("by_day")
        assert not table.indexes["by_day"].lagging and verify(table.snapshot, "by_day").ok
        agree(table, asked)
        for columns, properties, says in (
            (["to_date(ts)"], {"layout": "buckets"}, "no column of the table"),
            (["to_date(ts)"], {"indexed_expressions": "{}", "bucket": "3"}, "bucket"),
            (["p"], {}, "cannot be used"), (["lower(p)"], {}, "cannot keep"), (["lower(nowhere)"], {}, "nowhere"),
            (["fare > 3"], {}, "fare > 3"), (["length(city) * 2", "(length(city)*2)"], {}, "twice"),
        ):  # fmt: skip
            with pytest.raises(errors.InvalidInput, match=says):
                table.create_index("i", "covering", columns, properties=properties)
