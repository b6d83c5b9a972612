"""Lines that queries leave in a table's log, by each way to ask, beside what ``explain`` says of the same queries."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest

import spark_apps
from spark_apps import IndexedTable, open_table
from spark_apps.datasource import IndexedDataSource
from spark_apps.query import logged
from spark_apps.query.logged import Asked, note_query
from spark_apps.query.planning import filter_of, plan_read
from spark_apps.storage.errors import InvalidInput
from spark_apps.workload.query_log import FOLDER, QUERY_LOG

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(8)]

DDL = "id bigint, day int, rider bigint, city string, fare double, at timestamp, dt date"


def build(spark: Any, folder: Path) -> None:
    """A table of eight file groups, with an index of each of two kinds, and a query log."""
    table = IndexedTable.create(
        spark, folder, DDL, ["id"], partition_by=["day"], buckets=2, properties={"query_log": "on"}
    )
    table.upsert(
        spark.range(2_000).selectExpr(
            "id", "cast(id % 4 as int) AS day", "id div 2 AS rider", "concat('city ', id % 8) AS city",
            "id / 2d AS fare",
            "timestamp'2026-01-01 00:00:00Z' + make_dt_interval(0, 0, cast(id as int)) AS at",
            "date'2026-01-01' + cast(id % 50 as int) AS dt",
        )
    )  # fmt: skip
    table.create_index("by_rider", "secondary", ["rider"])
    table.create_index("cov", "covering", ["city"], included=["fare"])


@pytest.fixture
def table(prepared: Any) -> IndexedTable:
    return prepared(build)


def lines(table: IndexedTable) -> list[dict[str, Any]]:
    """All lines of the table's log that are there by now, oldest first."""
    QUERY_LOG.flush()
    found = [json.loads(line) for path in Path(table.uri, FOLDER).glob("*") for line in path.read_bytes().splitlines()]
    return sorted(found, key=lambda line: line["asked"])


def test_given_a_log_when_queries_come_each_way_then_each_leaves_a_line_that_explain_agrees_with(
    table: IndexedTable, spark: Any
) -> None:
    import duckdb

    opened = open_table(table.uri, time_zone="UTC")
    ways: list[tuple[str, str | None, Any]] = [
        ("read", "rider = 17", lambda where: table.read(where).count()),
        ("read", "city = 'city 3'", lambda where: table.read(where, ["city", "fare"]).count()),
        ("read", "day = 1 AND rider IN (1, 2, 3)", lambda where: table.read(where, ["id"]).count()),
        ("read", None, lambda where: table.read(where).count()),
        ("opened", "rider = 17", lambda where: opened.read(where)),
        ("batches", "rider > 5 OR day = 2", lambda where: opened.batches(where).read_all()),
    ]
    for number, (_, where, ask) in enumerate(ways, 1):
        ask(where)
        said, truth = lines(table), table.explain(where, ["city", "fare"] if where and "city" in where else None)
        assert len(said) == number
        line = said[-1]
        assert (line["predicate"], line["table"], line["weight"]) == (where, table.uri, 1.0)
        figures = ("files_read", "files_skipped", "bytes_read", "bytes_skipped")
        assert {name: line[name] for name in figures} == {name: getattr(truth, name) for name in figures}, where
        assert [name for name, _ in line["used"]] == [one.name for one in truth.indexes if one.name != "bucket layout"]
        assert {name: code for name, _, code in line["unused"]} == {n: one.code for n, one in truth.not_used.items()}
    assert [line["spared"].get("by_rider", 0) > 0 for line in lines(table)] == [True, False, False, False, True, False]

    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    opened.duckdb(connection, "trips")
    connection.execute("SELECT id FROM trips WHERE rider = 5 AND city <> 'x' AND dt = DATE '2026-01-12' AND day = 3 "
                       "AND \"at\" > TIMESTAMPTZ '2026-01-01 00:00:03Z'").fetchall()  # fmt: skip
    opened.lookup([4, 5])
    *_, by_duckdb, looked_up = lines(table)
    assert looked_up["shape"] == "id IN (?)"
    for line in (by_duckdb, looked_up):  # what was no SQL reads as SQL, and means the same
        found = sorted(row.id for row in table.read(line["predicate"]).collect())
        assert found == ([11] if line is by_duckdb else [4, 5])


def test_given_the_rule_and_the_data_source_when_queries_come_in_sql_then_they_leave_lines(
    table: IndexedTable, spark: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spark_apps.enable(spark)
    try:
        table.frame().createOrReplaceTempView("trips_logged")
        spark.createDataFrame([(1,), (2,)], "rider bigint").createOrReplaceTempView("riders_logged")
        spark_apps.explain("SELECT * FROM trips_logged WHERE rider = 99", spark)
        assert lines(table) == []
        spark.sql("SELECT id FROM trips_logged WHERE rider = 5 AND fare > 0.5").collect()
        spark.sql("SELECT city, sum(fare) FROM trips_logged WHERE city = 'city 1' GROUP BY city").collect()
        spark.sql("SELECT count(*) FROM trips_logged JOIN riders_logged USING (rider)").collect()
    finally:
        spark_apps.disable(spark)
    plain, grouped, joined = lines(table)
    monkeypatch.setattr("spark_apps.optimizer.rewriting._asked_text", lambda _: 1 / 0)
    table.frame().createOrReplaceTempView("trips_logged")
    assert spark.sql("SELECT id FROM trips_logged WHERE rider = 5").count() == 2 and len(lines(table)) == 3
    assert "leaves no line" in caplog.text
    spark_apps.disable(spark)
    assert plain["shape"] == "rider = ? AND fare > ?" and plain["used"] == [["by_rider", "secondary"]]
    assert set(plain["columns"]) == {"id", "rider", "fare"}
    assert grouped["shape"] == "city = ?" and grouped["used"] == [["cov", "covering"]]
    assert grouped["group_keys"] == ["city"] and joined["join_keys"] == ["rider"]
    source = IndexedDataSource({"path": table.uri, "where": "rider = 17"})  # as Spark does in a process of its own
    source.reader(source.schema()).partitions()
    assert lines(table)[-1]["predicate"] == "rider = 17"
    table.read("rider = 3").count()
    asked = table.asked()  # with what was asked just now
    assert asked.lines == len(lines(table)) == 5 and "by_rider" in str(asked)
    assert table.advise().queries == asked.weight


def test_given_properties_when_they_change_then_so_does_what_is_written(table: IndexedTable, spark: Any) -> None:
    table.set_properties({"query_log.literals": "false"})
    table.read("city = 'nobodys business'").count()
    [line] = lines(table)
    assert (line["predicate"], line["shape"]) == (None, "city = ?")
    assert all(b"nobodys" not in path.read_bytes() for path in Path(table.uri, FOLDER).glob("*"))
    assert table.advise().left_out == {"without literals": 1.0}

    table.set_properties({"query_log": "off"})
    table.read("rider = 1").count()
    assert len(lines(table)) == 1 and "query log" not in str(table.advise())
    version = table.version
    for wrong in ({"query_log": "loud"}, {"group_rows": "7"}, {"query_log.smaple": "1"}):
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            table.set_properties(wrong)
    assert table.version == version and dict(table.definition.properties)["query_log"] == "off"


def test_given_a_log_that_cannot_be_kept_when_queried_then_rows_come_and_one_warning_tells(
    table: IndexedTable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logged, "_query", lambda *_: 1 / 0)
    assert [table.read("rider = 17").count() for _ in range(3)] == [2, 2, 2]
    warned = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warned) == 1 and "leave no line" in caplog.text


def test_a_line_costs_less_than_a_millisecond(table: IndexedTable) -> None:
    plan = plan_read(table.snapshot, filter_of(table.snapshot, "rider = 17 AND fare > 3"), ("id", "fare"))
    taken = []
    for _ in range(50):
        began = time.perf_counter()
        note_query(plan, Asked(("id", "fare"), "rider = 17 AND fare > 3"), began)
        taken.append(time.perf_counter() - began)
    assert min(taken) < 0.001


def test_given_a_source_without_an_index_when_its_files_are_queried_then_that_leaves_a_line(
    spark: Any, tmp_path: Path
) -> None:
    spark.range(100).selectExpr("id", "id % 10 AS g").repartition(2).write.parquet(str(tmp_path / "src"))
    source = IndexedTable.register(spark, tmp_path / "src", properties={"query_log": "on"})
    spark_apps.enable(spark, sources=[tmp_path / "src"])
    try:
        assert spark.read.parquet(str(tmp_path / "src")).where("g = 3").count() == 10
    finally:
        spark_apps.disable(spark)
    [line] = lines(source)
    assert (line["shape"], line["columns"], line["bytes_read"]) == ("g = ?", ["g"], 0)
    source.set_properties({"query_log": "off"})
    assert source.definition.properties["query_log"] == "off"
