"""Secondary indexes over expressions: kept and found through the same expression, and equal to a scan."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path
from typing import Any

import pytest

import spark_apps
from spark_apps import IndexedTable, open_table, sql
from spark_apps.actions.indexing import verify
from spark_apps.indexes.stamps import stamp
from spark_apps.storage import errors
from tests.spark.local import session_with
from tests.spark_apps.frames import frame

pytestmark = pytest.mark.spark

DDL = "id bigint, city string, n int, p struct<u:string>, g int"
CITIES = ("SFO", "sfo", "Oslo", "OSLO", "Straße", "İstanbul", None, "")


def _rows(first: int, last: int, step: int = 1) -> list[tuple[Any, ...]]:
    return [
        (i, CITIES[(i * step) % 8], None if i % 7 == 0 else i % 11, (f"u{i % 5}",), i % 2) for i in range(first, last)
    ]


def _ids(table: IndexedTable, where: str) -> list[int]:
    return sorted(row.id for row in table.read(where, ["id"]).collect())


PREDICATES = (
    "lower(city) = 'sfo'", "LOWER(city) IN ('oslo', 'straße') AND n > 3", "lower(city) IS NULL",
    "lower(city) <=> NULL", "lower(city) = 'nowhere'", "lower(city) = 'sfo' OR lower(city) = ''", "lower(city) = 'İ'",
    "p.u = 'u3'", "n + 1 = 4", "NOT (lower(city) <> 'oslo')", "city = 'SFO'", "lower(city) > 'o'", "n + 1 = 4.5",
)  # fmt: skip


def _agree(table: IndexedTable, used: bool = True, opened: bool = False) -> None:
    judged = table.read().selectExpr("id", *PREDICATES).collect()
    for number, where in enumerate(PREDICATES):
        scanned = sorted(row.id for row in judged if row[number + 1])
        assert _ids(table, where) == scanned, where
        if not opened:
            continue
        if where.startswith("city"):
            assert sorted(open_table(table.uri).read(where, ["id"]).column("id").to_pylist()) == scanned, where
        else:
            with pytest.raises(errors.InvalidPredicate):
                open_table(table.uri).read(where)
    for name, where in (("by_city", "lower(city) = 'sfo'"), ("by_user", "p.u = 'u3'"), ("by_next", "n + 1 = 4")):
        if name in table.indexes:
            plan = table.explain(where)
            assert (name in [use.name for use in plan.indexes]) == used, plan
            assert verify(table.snapshot, name).ok


@pytest.mark.by_turn(16)
def test_given_expressions_then_entries_follow_every_change_and_the_same_expression_finds_them(
    spark: Any, tmp_path: Path
) -> None:
    table = IndexedTable.create(spark, tmp_path / "t", DDL, ["id"], ["g"], buckets=2)
    table.upsert(frame(spark, _rows(0, 40), DDL))
    uri = f"`{tmp_path}/t`"
    sql.run(spark, f"CREATE INDEX by_city ON {uri} USING secondary (LOWER(City))")
    lazy = "IDXPROPERTIES ('tombstones' = 'lazy', 'shards' = '2')"
    sql.run(spark, f"CREATE INDEX by_next ON {uri} ((n + 1)) {lazy}")
    sql.run(spark, f"CREATE INDEX by_user ON {uri} (p.U) USING secondary WITH DEFERRED REBUILD")
    table = IndexedTable.load(spark, tmp_path / "t")
    table.refresh_index("by_user")
    assert table.indexes["by_city"].columns == ("lower(city)",)
    assert "lower(city)" in str(sql.run(spark, f"SHOW INDEXES ON {uri}")) and "lower(city)" in str(
        table.explain("lower(city) = 'sfo'")
    )
    _agree(table, opened=True)

    table.upsert(frame(spark, _rows(30, 50, 3), DDL))
    table.delete("id % 5 = 0")
    assert not table.indexes["by_city"].lagging and table.indexes["by_user"].lagging
    table.refresh_index("by_user")
    _agree(table)
    before = table.version
    table.insert_overwrite(frame(spark, [row for row in _rows(100, 120, 5) if row[4] == 1], DDL))
    table.compact(mode="full")
    for name in ("by_city", "by_next"):
        table.compact(name, mode="full")
    table.rescale(buckets=3)
    table.refresh_index("by_user")
    _agree(table)
    table.restore(before)
    table.refresh_index("by_user", mode="full")
    _agree(table)
    table.drop_partition("g=0")
    assert not table.indexes["by_city"].lagging
    _agree(table)
    for change in (
        lambda: table.rename_column("city", "town"), lambda: table.drop_column("city"),
        lambda: table.widen_column("n", "bigint"),
    ):  # fmt: skip
        with pytest.raises(errors.InvalidInput, match=r"by_city|by_next"):
            change()
    log = [json.loads(path.read_text()) for path in sorted((tmp_path / "t/_index/timeline").glob("*.json"))]
    assert log[-1]["writer_features"] == ["indexed-expressions"] and "writer_features" not in log[1]


@pytest.mark.by_turn(16)
def test_given_a_source_then_the_rule_and_reads_find_files_by_an_expression(spark: Any, tmp_path: Path) -> None:
    for number in range(4):
        rows = [(number * 10 + i, f"City{number}", i, (f"u{i % 5}",), 0) for i in range(10)]
        frame(spark, rows, DDL).coalesce(1).write.parquet(str(tmp_path / "raw"), mode="append")
    table = IndexedTable.register(spark, tmp_path / "raw", format="parquet")
    table.create_index("by_city", "secondary", ["lower(city)"])
    where = "lower(city) = 'city2'"
    assert table.explain(where).groups_read == 1 and _ids(table, where) == list(range(20, 30))
    table.create_index("by_start", "secondary", ["left(city, 5)"])
    implied = table.explain("city = 'City2'")
    assert "by_start" in [use.name for use in implied.indexes] and implied.groups_read == 1
    assert _ids(table, "city = 'City2'") == list(range(20, 30))
    table.drop_index("by_start")
    spark_apps.enable(spark, sources=[str(tmp_path / "raw")])
    try:
        query = spark.read.parquet(str(tmp_path / "raw")).where(where)
        assert sorted(row.id for row in query.collect()) == list(range(20, 30))
        assert "by_city" in str(spark_apps.explain(query))
    finally:
        spark_apps.disable(spark)
    frame(spark, [(99, "CITY2", 1, ("u",), 0)], DDL).write.parquet(str(tmp_path / "raw"), mode="append")
    table = IndexedTable.load(spark, tmp_path / "raw")
    assert _ids(table, where) == [*range(20, 30), 99]
    table.refresh_index("by_city")
    assert _ids(table, where) == [*range(20, 30), 99] and table.verify("by_city").ok


@pytest.mark.by_turn(4)
def test_given_another_time_zone_then_its_session_neither_uses_nor_keeps_the_entries(
    spark: Any, tmp_path: Path
) -> None:
    ddl = "id bigint, ts timestamp"
    moment = dt.datetime(2024, 3, 1, 20, tzinfo=dt.UTC)
    table = IndexedTable.create(spark, tmp_path / "t", ddl, ["id"], buckets=1)
    with session_with(spark, {"spark.sql.session.timeZone": "UTC"}):
        table.upsert(frame(spark, [(1, moment), (2, moment - dt.timedelta(days=9))], ddl))
        table.create_index("i", "secondary", ["to_date(ts)"])
        assert table.explain("to_date(ts) = DATE'2024-03-01'").indexes
    with session_with(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        assert _ids(table, "to_date(ts) = DATE'2024-03-02'") == [1]
        assert table.explain("to_date(ts) = DATE'2024-03-02'").not_used["i"].code == "session_differs"
        table.upsert(frame(spark, [(3, moment)], ddl))
        assert table.indexes["i"].lagging == 1
        for refused in (table.refresh_index, lambda name: verify(table.snapshot, name)):
            with pytest.raises(errors.InvalidInput, match="timeZone is 'Asia/Tokyo', and was 'UTC'"):
                refused("i")
        table.compact("i", mode="full")
    with session_with(spark, {"spark.sql.session.timeZone": "UTC"}):
        spark.conf.unset("spark.sql.session.timeZone")  # then it is the machine's
        assert stamp(spark)["spark.sql.session.timeZone"] == spark.sql("SELECT current_timezone()").collect()[0][0]
    with session_with(spark, {"spark.sql.session.timeZone": "UTC"}):
        assert _ids(table, "to_date(ts) = DATE'2024-03-01'") == [1, 3]
        table.refresh_index("i")
        assert not table.indexes["i"].lagging and verify(table.snapshot, "i").ok
        assert _ids(table, "to_date(ts) = DATE'2024-03-01'") == [1, 3]


@pytest.mark.by_turn(16)
def test_given_an_expression_that_fails_for_a_row_then_the_row_is_written_and_the_index_lags(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = IndexedTable.create(spark, tmp_path / "t", DDL, ["id"], buckets=2)
    table.upsert(frame(spark, _rows(0, 20), DDL))
    with session_with(spark, {"spark.sql.ansi.enabled": "true"}):
        table.create_index("i", "secondary", ["n * n"])
        assert table.explain("n * n = 9").indexes
        table.upsert(frame(spark, [(1, "x", 2**31 - 1, ("u",), 1)], DDL))
        assert table.indexes["i"].lagging == 1 and _ids(table, "city = 'x'") == [1]
        lags = "'i' lags behind this commit.*over .*n \\* n.* cannot be computed for a row: ARITHMETIC_OVERFLOW"
        assert re.search(lags, caplog.text)
        with pytest.raises(errors.InvalidInput, match=r"The index 'i' over .*: ARITHMETIC_OVERFLOW"):
            table.refresh_index("i")
        table.upsert(frame(spark, [(1, "x", 3, ("u",), 1)], DDL))
        table.refresh_index("i")
        assert not table.indexes["i"].lagging


@pytest.mark.by_turn(8)
def test_given_a_column_named_as_an_expression_then_each_is_indexed_as_what_it_is(spark: Any, tmp_path: Path) -> None:
    ddl = "id bigint, t string"
    table = IndexedTable.create(spark, tmp_path / "t", ddl, ["id"], buckets=1)
    table.upsert(frame(spark, [(1, "A"), (2, "b")], ddl))
    table.create_index("e", "secondary", ["lower(t)"])
    table.add_columns("`lower(t)` string")
    table.upsert(frame(spark, [(3, "b", "a"), (4, "A", "b")], f"{ddl}, `lower(t)` string"))
    table.alter_index("e", {"tombstones": "lazy"})
    table.create_index("c", "secondary", ["lower(t)"])
    table.create_index("f", "covering", ["LOWER(t)"], included=["id"])
    for where, ids, name in (("lower(t) = 'a'", [1, 4], "e"), ("`lower(t)` = 'a'", [3], "c")):
        assert _ids(table, where) == ids and name in [use.name for use in table.explain(where).indexes]
    for name in ("e", "c", "f"):
        table.refresh_index(name, mode="full")
        assert verify(table.snapshot, name).ok
    with pytest.raises(errors.InvalidInput, match="twice"):
        table.create_index("both", "secondary", ["lower(t)", "lower( t)"])


@pytest.mark.parametrize(
    ("columns", "error", "says"),
    [
        (["lower(nowhere)"], errors.InvalidInput, "no column 'nowhere'"),
        (["rand()"], errors.InvalidInput, "another value each time"),
        (["current_date()"], errors.InvalidInput, "depends on the time"),
        (["(SELECT 1)"], errors.InvalidInput, "subquery"),
        (["my_own(city)"], errors.InvalidInput, "my_own"),
        (["lower(city)", "LOWER(`city`)"], errors.InvalidInput, "twice"),
        (["lower(p)"], errors.InvalidInput, "cannot keep"),
        (["cast(n AS double)"], errors.InvalidSchema, "double"),
        (["nowhere"], errors.UnknownColumn, "nowhere"),
        (["n / 2"], errors.InvalidInput, "none of those that always give the same"),
        (["coalesce(" + "n, " * 100_000 + "n)"], errors.InvalidInput, "longer than 4,096"),
    ],
)
def test_given_what_is_no_indexable_expression_then_it_is_refused(
    spark: Any, tmp_path: Path, columns: list[str], error: type[Exception], says: str
) -> None:
    table = IndexedTable.create(spark, tmp_path / "t", DDL, ["id"], buckets=1)
    with pytest.raises(error, match=says):
        table.create_index("i", "secondary", columns)
