"""Statements on rows: what they leave is what the same statement leaves in DuckDB, or was computed by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from spark_apps import IndexedTable, disable, explain
from spark_apps.jobs.job import Job
from spark_apps.programs.run_sql import run_sql
from spark_apps.programs.write_table import write_table
from spark_apps.storage.errors import (
    ConcurrentWrite,
    InvalidInput,
    InvalidStatement,
    KeysExist,
    LakeIndexError,
    StopWriteWindowOpen,
    TableNotFound,
)
from tests.spark_apps.small_tables import Prepared, rows_of
from tests.spark_apps.sql.desk import Desk, refused

pytestmark = pytest.mark.by_turn(24)

ROWS = [(1, "a", "sfo", 10), (2, "a", "ber", 20), (3, "b", "sfo", 30), (4, "b", None, 40), (5, "c", "nyc", 50)]


def trips(spark: SparkSession, folder: Path) -> None:
    table = IndexedTable.create(spark, folder, "id bigint, p string, city string, n int", ["id"], ["p"], buckets=2)
    table.upsert(spark.createDataFrame(ROWS, "id bigint, p string, city string, n int"))
    table.create_index("by_city", "secondary", ["city"])


@pytest.fixture
def desk(spark: SparkSession, tmp_path: Path, prepared: Prepared) -> Desk:
    prepared(trips, name="wh/lake/trips")
    return Desk(spark, tmp_path / "wh")


def rows(desk: Desk) -> list[tuple[Any, ...]]:
    return rows_of(desk.table("lake/trips"))


def in_duckdb(statement: str, source: Sequence[tuple[Any, ...]] = ()) -> list[tuple[Any, ...]]:
    db = duckdb.connect()
    db.execute("CREATE TABLE trips (id bigint, p varchar, city varchar, n int)")
    db.executemany("INSERT INTO trips VALUES (?, ?, ?, ?)", ROWS)
    db.execute("CREATE TABLE changes (id bigint, p varchar, city varchar, n int)")
    if source:
        db.executemany("INSERT INTO changes VALUES (?, ?, ?, ?)", source)
    db.execute(statement.replace("lake.trips", "trips"))
    return sorted(db.execute("SELECT * FROM trips").fetchall())


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO lake.trips VALUES (6, 'a', 'x', 1), (7, 'd', NULL, 2)",
        "INSERT INTO lake.trips (n, id, p) SELECT n + 1, id + 100, p FROM lake.trips WHERE n > 20",
        "UPDATE lake.trips SET n = n + 1, city = upper(city) WHERE city = 'sfo' OR n = 40",
        "UPDATE lake.trips AS t SET n = (SELECT max(n) FROM lake.trips) "
        "WHERE t.id IN (SELECT id FROM lake.trips WHERE n < 25)",
        "DELETE FROM lake.trips WHERE city = 'sfo'",
        "DELETE FROM lake.trips WHERE id IN (SELECT id + 1 FROM lake.trips WHERE p = 'a')",
    ],
)
def test_rows_are_those_that_another_engine_leaves(desk: Desk, statement: str) -> None:
    [result] = desk(statement, txn_id="once")
    expected = in_duckdb(statement)

    assert rows(desk) == expected
    assert result.receipt is not None and result.receipt.version == desk.table("lake/trips").version
    [again] = desk(statement, txn_id="once")
    assert (again.receipt, rows(desk)) == (result.receipt, expected)


CHANGES = [(1, "a", "ber", 11), (3, "b", "gone", -1), (5, "c", None, 55), (8, "b", "new", 80), (9, "b", "no", -9)]


@pytest.mark.parametrize(
    "clauses",
    [
        "WHEN MATCHED AND s.n < 0 THEN DELETE WHEN MATCHED THEN UPDATE SET n = t.n + s.n, city = s.city "
        "WHEN NOT MATCHED AND s.n > 0 THEN INSERT (id, p, n) VALUES (s.id, s.p, s.n) "
        "WHEN NOT MATCHED BY SOURCE AND t.n > 30 THEN DELETE WHEN NOT MATCHED BY SOURCE THEN UPDATE SET n = 0",
        "WHEN MATCHED AND t.city IS NULL THEN DELETE WHEN NOT MATCHED AND n < 0 THEN INSERT (id, p) VALUES (id, p)",
    ],
)
def test_a_merge_leaves_the_rows_that_another_engine_leaves(desk: Desk, clauses: str) -> None:
    source = desk.spark.createDataFrame(CHANGES, "id bigint, p string, city string, n int")
    source.createOrReplaceTempView("changes")
    merge = f"MERGE INTO lake.trips AS t USING changes AS s ON t.id = s.id AND t.p = s.p {clauses}"

    [result] = desk(merge, txn_id="m")

    assert rows(desk) == in_duckdb(merge, CHANGES)
    assert result.receipt is not None and result.receipt.operation == "merge"
    assert desk(merge, txn_id="m")[0].receipt == result.receipt
    assert desk.table("lake/trips").verify("by_city").ok


@pytest.mark.by_turn(4)
def test_a_merge_with_stars_takes_all_columns_of_its_source(desk: Desk) -> None:
    [result] = desk(
        "MERGE INTO lake.trips t USING (VALUES ('b', 3L, 'ham', 1), ('d', 6L, 'muc', 2)) AS s(p, id, city, n) "
        "ON t.id = s.id AND t.p = s.p WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )

    assert rows(desk) == sorted([*ROWS[:2], (3, "b", "ham", 1), *ROWS[3:], (6, "d", "muc", 2)])
    merge = "MERGE INTO lake.trips t USING (VALUES (1L, 5), (1L, 6)) AS s(id, n) ON t.id = s.id WHEN MATCHED"
    with pytest.raises(InvalidInput, match=r"Several rows of the source match one row.*id=1"):
        desk(f"{merge} AND s.n = 5 THEN UPDATE SET n = s.n")
    metrics = result.receipt.metrics if result.receipt else {}
    assert {name: metrics[name] for name in ("updated", "deleted", "inserted")} == {
        "updated": 1,
        "deleted": 0,
        "inserted": 1,
    }


# --- Overwriting, creating, reading -----------------------------------------------------------------------------------


def test_an_overwrite_replaces_all_that_its_partition_clause_names(desk: Desk) -> None:
    desk("INSERT OVERWRITE lake.trips PARTITION (p = 'b') SELECT id, city, n + 1 FROM lake.trips WHERE id = 3")
    assert rows(desk) == sorted([*ROWS[:2], (3, "b", "sfo", 31), ROWS[4]])

    desk("INSERT OVERWRITE lake.trips BY NAME SELECT 1 AS id, 'z' AS p; DELETE FROM lake.trips WHERE n IS NULL")
    assert rows(desk) == []


def test_an_overwrite_told_to_be_dynamic_leaves_other_partitions(desk: Desk) -> None:
    desk.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        desk("INSERT OVERWRITE lake.trips VALUES (9, 'b', NULL, 1.0)")
    finally:
        desk.spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert rows(desk) == sorted([*ROWS[:2], (9, "b", None, 1), ROWS[4]])


def test_a_table_made_from_a_query_holds_its_rows_and_a_failing_query_leaves_none(desk: Desk) -> None:
    create = "CREATE TABLE lake.totals USING indexed TBLPROPERTIES (primaryKey = 'p', buckets = 2) AS "
    with pytest.raises(Exception, match="no p") as caught:
        desk(create + "SELECT if(n > 0, raise_error('no p'), p) AS p, n FROM lake.trips", txn_id="c")
    told = [str(caught.value), *getattr(caught.value, "__notes__", [])]
    assert any("created, and dropped again" in text for text in told), told
    assert not any("Nothing was changed" in text for text in told), told
    with pytest.raises(TableNotFound):
        desk.table("lake/totals")

    [made, answer] = desk(
        create + "SELECT p, sum(n) AS n FROM lake.trips GROUP BY p; SELECT * FROM lake.totals", txn_id="c"
    )

    assert sorted(answer.rows) == [("a", 30), ("b", 70), ("c", 50)]
    [again] = desk(create + "SELECT p, sum(n) AS n FROM lake.trips GROUP BY p", txn_id="c")
    assert again.receipt == made.receipt


def test_an_answer_is_handed_on_in_plain_types_up_to_a_number_of_rows(desk: Desk, tmp_path: Path) -> None:
    [result] = desk(
        "SELECT id, DATE '2024-01-02' AS d, 1.50 AS x, named_struct('a', array(id)) AS s "
        "FROM lake.trips ORDER BY id LIMIT 2"
    )
    assert json.loads(json.dumps(result.to_dict()))["rows"] == [[n, "2024-01-02", "1.50", {"a": [n]}] for n in (1, 2)]
    assert result.to_df(desk.spark).schema["d"].dataType.simpleString() == "date"
    assert len(desk("SELECT * FROM lake.trips", max_rows=5).rows) == 5

    with pytest.raises(InvalidInput, match=r"more than 4 rows.*max_rows.*output_path"):
        desk("SELECT * FROM lake.trips", max_rows=4)
    assert desk("SELECT * FROM lake.trips", max_rows=0).to_df().count() == 5

    for _again in range(2):
        [written] = desk("SELECT * FROM lake.trips", max_rows=1, output_path=str(tmp_path / "answer"))
        assert (written.rows, written.location) == ((), str(tmp_path / "answer"))
        assert desk.spark.read.parquet(written.location).count() == 5
    with pytest.raises(InvalidInput, match="no part of an answer"):
        desk("SELECT 1", output_path=str(desk.root / "lake/trips"))
    with pytest.raises(InvalidInput, match="holds 2 queries"):
        desk("SELECT 1; SELECT 2", output_path=str(tmp_path / "answer"))


def test_all_references_of_a_query_see_one_version_and_an_older_one_where_it_is_named(desk: Desk) -> None:
    path = desk.root / "lake/trips"
    desk("DELETE FROM lake.trips WHERE id = 1")
    version = desk.table("lake/trips").version
    query = f"""
        WITH trips AS (SELECT max(id) AS top, '{{x}}' AS braces FROM lake.trips)
        SELECT lake.trips.id, old.id, braces FROM lake.trips VERSION AS OF {version} /* ; */
        RIGHT JOIN lake.trips VERSION AS OF {version - 1} AS old ON lake.trips.id = old.id, trips
        WHERE (SELECT count(*) FROM `{path}`) = 4 AND top = 5 ORDER BY 2
    """
    assert desk(query).rows == ((None, 1, "{x}"), *((n, n, "{x}") for n in range(2, 6)))


# --- What is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "statement", "words"),
    [
        (InvalidStatement, "UPDATE lake.trips SET n = 1 WHERE idd = 2", "UNRESOLVED_COLUMN.*idd"),
        (InvalidInput, "UPDATE lake.trips SET nn = 1", "no column 'nn'"),
        (InvalidInput, "UPDATE lake.trips SET n = 1, N = 2", "'n' is set twice"),
        (InvalidInput, "UPDATE lake.trips SET n = city", "'n' is int, and cannot take string"),
        (InvalidStatement, "UPDATE lake.trips SET n = max(n)", "Spark refuses"),
        (InvalidStatement, "UPDATE lake.trips SET n = explode(array(1, 2))", "Spark refuses"),
        (InvalidInput, "INSERT INTO lake.trips VALUES (1, 'a')", "takes 4 columns .*gives 2"),
        (InvalidInput, "INSERT INTO lake.trips (id, id) VALUES (1, 2)", "given twice"),
        (InvalidInput, "INSERT INTO lake.trips PARTITION (city = 'x') SELECT 1, 2, 3", "not partitioned by 'city'"),
        (InvalidInput, "DELETE FROM lake.trips WHERE idd = 1", "idd"),
        (InvalidInput, "MERGE INTO lake.trips t USING (SELECT 1L id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *",
         "UPDATE \\* takes all columns.*lacks p, city, n"),
        (InvalidStatement, "SELECT * FROM lake.none", "Spark refuses the statement.*TABLE_OR_VIEW_NOT_FOUND"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_before_anything_is_begun(desk: Desk, kind: Any, statement: str, words: str) -> None:
    assert re.search(words, str(refused(desk, kind, statement)))


@pytest.mark.parametrize(
    ("kind", "statement", "words"),
    [
        (KeysExist, "INSERT INTO lake.trips VALUES (1, 'a', 'x', 1)", "id=1"),
        (InvalidInput, "UPDATE lake.trips SET id = id + 1 WHERE id = 2", "another record key.*id=2"),
        (InvalidInput, "UPDATE lake.trips SET p = 'z' WHERE id = 2", "another partition.*p='a', id=2.*'record'"),
        (KeysExist, "MERGE INTO lake.trips t USING (SELECT 1L AS id, 'a' AS p) s ON t.id = s.id + 100 "
         "WHEN NOT MATCHED THEN INSERT (id, p) VALUES (s.id, s.p)", "has already.*p='a', id=1"),
        (KeysExist, "MERGE INTO lake.trips t USING (VALUES (7L, 5), (7L, 6)) AS s(id, n) ON t.id = s.id AND t.p = 'a' "
         "WHEN NOT MATCHED THEN INSERT (id, p) VALUES (s.id, 'a')", "have one key.*id=7"),
        (Exception, "UPDATE lake.trips SET n = 3000000000", "does not fit into the column n"),
    ],
)  # fmt: skip
def test_a_change_that_cannot_be_is_refused_with_the_rows_and_leaves_all(
    desk: Desk, kind: Any, statement: str, words: str
) -> None:
    with pytest.raises(kind, match=words):
        desk(statement)
    assert rows(desk) == ROWS


def test_a_source_and_a_table_of_sparks_are_refused_by_name(desk: Desk, tmp_path: Path) -> None:
    desk.spark.range(3).write.parquet(str(tmp_path / "raw"))
    IndexedTable.register(desk.spark, tmp_path / "raw")
    desk.spark.sql(f"CREATE TABLE theirs (id bigint) USING parquet LOCATION '{tmp_path}/theirs'")
    try:
        for name, words in ((f"`{tmp_path}/raw`", "registered source"), ("theirs", "Spark")):
            for statement in ("UPDATE {} SET id = 1", "DELETE FROM {} WHERE id = 1", "INSERT INTO {} VALUES (9)",
                              "INSERT OVERWRITE {} SELECT 9", "MERGE INTO {} t USING (SELECT 1L AS n) s ON t.id = s.n "
                              "WHEN MATCHED THEN DELETE"):  # fmt: skip
                error = refused(desk, LakeIndexError, statement.format(name))
                assert f"{statement.partition(' {}')[0].partition(' ')[0]}" in error.message, error.message
                assert words in error.message, error.message
        assert desk("SELECT count(*) FROM theirs").rows == ((0,),)
    finally:
        desk.spark.sql("DROP TABLE theirs")
    assert desk(f"SELECT max(id) FROM `{tmp_path}/raw`").rows == ((2,),)


@pytest.mark.by_turn(4)
def test_rows_that_another_writer_changed_since_are_not_overwritten(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_apps.actions.change_rows import ChangeRows

    def meanwhile(statement: str) -> None:
        whole = ChangeRows.check

        def check(self: Any, *given: Any) -> None:
            monkeypatch.setattr(ChangeRows, "check", whole)
            desk(statement)
            whole(self, *given)

        monkeypatch.setattr(ChangeRows, "check", check)

    desk("DROP INDEX by_city ON lake.trips")  # which would read the rows as well
    meanwhile("UPDATE lake.trips SET n = 100 WHERE id = 1")
    with pytest.raises(ConcurrentWrite):
        desk("UPDATE lake.trips SET n = n + 1 WHERE id = 1")
    meanwhile("UPDATE lake.trips SET n = 500 WHERE id = 5")  # of another partition: no order between the two
    desk("UPDATE lake.trips SET n = n + 1 WHERE id = 1")

    assert rows(desk) == [(1, "a", "sfo", 101), *ROWS[1:4], (5, "c", "nyc", 500)]


def test_while_a_window_is_open_only_its_holder_writes(desk: Desk) -> None:
    window = desk.table("lake/trips").open_window("nightly")
    for statement in ("UPDATE lake.trips SET n = 1", "DELETE FROM lake.trips WHERE n > (SELECT 0)"):
        with pytest.raises(StopWriteWindowOpen):
            desk(statement)
    desk("UPDATE lake.trips SET n = 1 WHERE id = 1", window=window.epoch)

    assert rows(desk) == [(1, "a", "sfo", 1), *ROWS[1:]]


# --- Where keys are unique in the whole table, and rows are ordered ---------------------------------------------------


def test_with_a_record_index_rows_move_between_partitions(desk: Desk) -> None:
    desk(
        "CREATE INDEX keys ON lake.trips USING record; UPDATE lake.trips SET p = 'z' WHERE id IN (1, 5);"
        "MERGE INTO lake.trips t USING (VALUES (2L, 'y'), (6L, 'y')) AS s(id, p) ON s.id = t.id "
        "WHEN MATCHED THEN UPDATE SET t.p = s.p WHEN NOT MATCHED THEN INSERT (id, p) VALUES (s.id, s.p)"
    )
    assert [row[:2] for row in rows(desk)] == [(1, "z"), (2, "y"), (3, "b"), (4, "b"), (5, "z"), (6, "y")]
    assert desk.table("lake/trips").verify("keys").ok and desk.table("lake/trips").verify("by_city").ok


def test_of_a_table_merged_by_a_column_no_change_is_lost_in_silence(desk: Desk) -> None:
    desk(
        "CREATE TABLE lake.ordered (id int, ts int, v int) USING indexed TBLPROPERTIES "
        "(primaryKey = 'id', ordering_column = 'ts', merge_by = 'ordering', buckets = 1);"
        "INSERT INTO lake.ordered VALUES (1, 5, 0), (2, 5, 0)"
    )
    with pytest.raises(InvalidInput, match=r"lowers the ordering column.*id=1"):
        desk("UPDATE lake.ordered SET ts = ts - 1, v = 1 WHERE id = 1")
    desk("UPDATE lake.ordered SET v = 1 WHERE id = 1; DELETE FROM lake.ordered AS o WHERE o.id = 2")
    assert desk("SELECT * FROM lake.ordered").rows == ((1, 5, 1),)


# --- The bundled programs ---------------------------------------------------------------------------------------------


@pytest.mark.by_turn(1)
def test_the_programs_queries_use_indexes_by_themselves(desk: Desk) -> None:
    warehouse, query = str(desk.root), "SELECT * FROM lake.trips WHERE city = 'sfo'"
    columns = "id bigint, p string, city string, n int"
    desk(f"CREATE TABLE lake.copy ({columns}) USING indexed TBLPROPERTIES (primaryKey = 'id')")
    try:
        batches = [{"operation": "upsert", "sql": "SELECT t.* FROM lake.trips t JOIN made ON t.id = made.id"}]
        desk.spark.range(4).createOrReplaceTempView("made")
        arguments = {"batches": batches, "warehouse": warehouse}
        written = write_table(desk.spark, Job("write_table", f"{warehouse}/lake/copy", arguments))
        outcome = run_sql(desk.spark, Job("run_sql", warehouse, {"sql": query, "max_rows": 2}))
        plan = explain(query, desk.spark)
    finally:
        disable(desk.spark)

    assert written.metrics["rows"] == 3
    assert sorted(row[0] for row in outcome.value[0]["rows"]) == [1, 3]
    [scan] = plan.scans
    assert scan.explanation is not None and scan.explanation.index_used == "by_city"
    with pytest.raises(InvalidInput, match="more than 1 rows"):
        run_sql(desk.spark, Job("run_sql", warehouse, {"sql": query, "max_rows": 1}))
    disable(desk.spark)
