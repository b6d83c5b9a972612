"""Compact indexes over expressions: entries of each file, and queries with the same expression, equal to a scan."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import spark_apps
from spark_apps import IndexedTable, open_table, sql
from spark_apps.actions.indexing import verify
from spark_apps.advisor.hypothetical import definition_of
from spark_apps.indexes.lineage import entry_files
from spark_apps.query.arrow_verify import verify_entries
from spark_apps.storage import errors
from tests.spark.local import session_with
from tests.spark_apps.frames import frame
from tests.spark_apps.indexes.support import index_files
from tests.turns import of_this_turn

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(16)]

DDL = "id bigint, city string, ts timestamp, x float, p struct<u:string>, g int"
CITIES = ("SFO", "sfo", "Oslo", "OSLO", "Straße", None, "")
NOON = dt.datetime(2024, 3, 1, 12, tzinfo=dt.UTC)
PREDICATES = (
    "lower(city) = 'sfo'", "LOWER(city) IN ('oslo', 'straße') AND g = 0", "lower(city) IS NULL", "lower(city) > 'o'",
    "lower(city) <=> NULL", "lower(city) = 'nowhere'", "lower(city) = 'sfo' OR to_date(ts) < DATE'2024-03-03'",
    "CAST(ts AS DATE) BETWEEN DATE'2024-03-02' AND DATE'2024-03-04'", "ts >= TIMESTAMP'2024-03-08 06:00:00Z'",
    "ts = TIMESTAMP'2024-03-02 12:00:00Z'", "p.u = 'u3'", "NOT (p.u <> 'u1')", "CAST(x AS double) = 0.0D",
    "CAST(x AS double) = double('NaN')", "city = 'SFO'", "to_date(ts) = DATE'1999-01-01'",
)  # fmt: skip


def rows_of(ids: range, city: int | None = None) -> list[tuple[Any, ...]]:
    """Rows of which each file has some of the values only, if it is made of ten ids in a row."""
    floats = (-0.0, 1.5, float("nan"), None)
    return [
        (i, CITIES[(i // 10 if city is None else city) % 7], NOON + dt.timedelta(days=i // 10), floats[i // 10 % 4],
         (f"u{i // 10 % 5}",), i % 2)
        for i in ids
    ]  # fmt: skip


def agree(table: IndexedTable, asked: Sequence[str] = PREDICATES) -> None:
    judged = table.read().selectExpr("id", *asked).collect()
    for number, where in enumerate(asked):
        scanned = sorted(row.id for row in judged if row[number + 1])
        assert sorted(row.id for row in table.read(where, ["id"]).collect()) == scanned, where


@pytest.mark.by_turn(16)
def test_given_files_of_a_source_then_those_with_the_value_are_found_by_the_expression_and_what_implies_it(
    spark: Any, tmp_path: Path
) -> None:
    raw = str(tmp_path / "raw")
    for number in range(10):
        rows = rows_of(range(number * 10, number * 10 + 10))
        frame(spark, rows, DDL).coalesce(1).write.parquet(raw, mode="append")
    with session_with(spark, {"spark.sql.session.timeZone": "UTC"}):
        table = IndexedTable.register(spark, raw, format="parquet")
        sql.run(spark, f"CREATE INDEX by_city ON `{raw}` USING compact (LOWER(City))")
        table = IndexedTable.load(spark, raw)
        table.create_index("by_day", "compact", ["to_date(ts)"])
        table.create_index("by_user", "compact", ["p.U", "cast(x AS double)"])
        assert [table.indexes[name].columns for name in ("by_city", "by_day", "by_user")] == [
            ("lower(city)",), ("CAST(ts AS date)",), ("p.u", "CAST(x AS double)")
        ]  # fmt: skip
        agree(table)
        for where, name, left in (
            ("lower(city) = 'sfo'", "by_city", 4), ("to_date(ts) = DATE'2024-03-03'", "by_day", 1),
            ("ts >= TIMESTAMP'2024-03-08 06:00:00Z'", "by_day", 3), ("p.u = 'u3'", "by_user", 2),
            ("CAST(x AS double) = 0.0D", "by_user", 3),
        ):  # fmt: skip
            plan = table.explain(where)
            assert name in [use.name for use in plan.indexes] and plan.groups_read == left, plan
        spark_apps.enable(spark, sources=[raw])
        try:
            query = spark.read.parquet(raw).where("to_date(ts) = DATE'2024-03-03'")
            assert sorted(row.id for row in query.collect()) == list(range(20, 30))
            assert "by_day" in str(spark_apps.explain(query))
        finally:
            spark_apps.disable(spark)
        frame(spark, rows_of(range(200, 210), 1), DDL).coalesce(1).write.parquet(raw, mode="append")
        table = IndexedTable.load(spark, raw)
        agree(table)
        for name in ("by_city", "by_day", "by_user"):
            table.refresh_index(name)
            table.compact(name, mode="full")
            assert verify(table.snapshot, name).ok and len(entry_files(index_files(table, name))) == 1
        agree(table)
        with pytest.raises(errors.InvalidInput, match="by Spark alone"):
            verify_entries(table.snapshot, "by_city")
        with pytest.raises(errors.InvalidInput, match="is not known before it is built"):
            definition_of(table.snapshot, {"kind": "compact", "columns": ["lower(city)"]})
        found = open_table(raw).read("city = 'SFO'", ["id"]).column("id").to_pylist()
        assert sorted(found) == [*range(10), *range(70, 80)]
    for column in ("my_own(x)", "p", "lower(p)", "lower(nowhere)", "rand()"):
        with pytest.raises(errors.InvalidInput):
            table.create_index("i", "compact", [column])


@pytest.mark.by_turn(4, first=3)
def test_given_a_keyed_table_then_every_change_is_followed_by_refreshes_and_another_session_is_kept_off(
    spark: Any, tmp_path: Path
) -> None:
    asked = of_this_turn(PREDICATES, 8, each=4)
    table = IndexedTable.create(spark, tmp_path / "t", DDL, ["id"], ["g"], buckets=2)
    with session_with(spark, {"spark.sql.session.timeZone": "UTC"}):
        table.upsert(frame(spark, rows_of(range(40)), DDL))
        table.compact(mode="full")
        table.create_index("i", "compact", ["to_date(ts)", "lower(city)"])
        agree(table, asked)
        assert table.explain("to_date(ts) = DATE'1999-01-01'").groups_read == 0
        before = table.version
        table.upsert(frame(spark, rows_of(range(30, 50), 0), DDL))
        table.delete("id % 5 = 0")
        agree(table, asked)
        table.compact(mode="full")
        table.refresh_index("i")
        agree(table, asked)
        table.insert_overwrite(frame(spark, [row for row in rows_of(range(60, 70)) if row[5] == 1], DDL))
        table.refresh_index("i", mode="full", partitions=["g=1"])
        agree(table, asked)
        table.restore(before)
        agree(table, asked)
        table.drop_partition("g=0")
        agree(table, asked)
        assert verify(table.snapshot, "i").ok
        for change in (lambda: table.rename_column("ts", "at"), lambda: table.drop_column("city")):
            with pytest.raises(errors.InvalidInput, match="'i'"):
                change()
    with session_with(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        table.upsert(frame(spark, rows_of(range(80, 90)), DDL))
        table.compact(mode="full")
        where = "to_date(ts) = DATE'2024-03-09'"
        assert sorted(row.id for row in table.read(where).collect()) == list(range(80, 90))
        assert table.explain(where).not_used["i"].code == "session_differs"
        for refused in (table.refresh_index, lambda name: verify(table.snapshot, name)):
            with pytest.raises(errors.InvalidInput, match="timeZone is 'Asia/Tokyo', and was 'UTC'"):
                refused("i")
        table.compact("i", mode="full")
    with session_with(spark, {"spark.sql.session.timeZone": "UTC"}):
        table.refresh_index("i")
        assert not table.indexes["i"].lagging and verify(table.snapshot, "i").ok
        agree(table, asked)


@pytest.mark.by_turn(16)
def test_given_another_session_then_columns_beside_expressions_are_compared_and_the_expressions_are_not(
    spark: Any, tmp_path: Path
) -> None:
    raw, moment = str(tmp_path / "raw"), dt.datetime(2024, 3, 1, 20, tzinfo=dt.UTC)
    for n in range(4):
        rows = [(n, 10 * n + i, moment, f"text {n} {i} " * 500) for i in range(10)]
        frame(spark, rows, "n int, id int, ts timestamp, s string").coalesce(1).write.parquet(raw, mode="append")
    properties = {"buckets": "2", "layout": "ranges"}
    held: dict[str, Any] = {"included": ["id"], "properties": properties}
    indexes: dict[str, tuple[str, list[str], dict[str, Any]]] = {
        "blocks": ("compact", ["n", "to_date(ts)"], {}),
        "day": ("compact", ["to_date(ts)"], {}),
        "rows": ("covering", ["n", "to_date(ts)"], held),
        "of_day": ("covering", ["to_date(ts)", "n"], held),
    }
    with session_with(spark, {"spark.sql.session.timeZone": "UTC"}):
        table = IndexedTable.register(spark, raw, format="parquet")
    for name, unused in (("blocks", "day"), ("rows", "of_day")):
        with session_with(spark, {"spark.sql.session.timeZone": "UTC"}):
            for each in (name, unused):
                kind, columns, more = indexes[each]
                table.create_index(each, kind, columns, **more)
        with session_with(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
            for where, ids in (
                ("n = 2", range(20, 30)),
                ("n = 2 AND to_date(ts) = DATE'2024-03-02'", range(20, 30)),
                ("n = 2 AND to_date(ts) = DATE'2024-03-01'", ()),
            ):
                plan = table.explain(where, ["id"])
                assert sorted(row.id for row in table.read(where, ["id"]).collect()) == list(ids), plan
                assert [use.name for use in plan.indexes] == [name], plan
            not_used = table.explain("to_date(ts) = DATE'2024-03-02'", ["id"]).not_used
            assert not_used[unused].code == "session_differs" and (name == "rows" or name in not_used)
        assert open_table(raw).read("n = 3", ["id"]).num_rows == 10
        table.drop_index(name)
        table.drop_index(unused)
