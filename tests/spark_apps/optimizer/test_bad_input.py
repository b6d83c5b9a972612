"""What may go wrong around plain queries: odd tables of Spark's catalog, literals that text cannot tell apart, tables
and indexes that change between planning and running. Each gets the rows that Spark alone finds, or an error that names
the thing."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import spark_apps
from spark_apps import IndexedTable
from spark_apps.engine.spark_utils import OWN_SCAN
from spark_apps.optimizer import rule, session
from spark_apps.storage.errors import InvalidInput
from tests.spark.local import session_with
from tests.spark.releases import SPARK
from tests.spark_apps.optimizer.test_plain_queries import used

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(24)]


@pytest.fixture(scope="module")
def things(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source with a nested column, an array, and a name with a dot; indexed by its id."""
    path = tmp_path_factory.mktemp("bad-input") / "things"
    rows = spark.range(20).selectExpr(
        "id", "named_struct('a', id, 'b', concat('x', id)) AS st", "array(id, id + 1) AS arr", "id * 2 AS `a.b`",
        "concat('t', id) AS text",
    )  # fmt: skip
    rows.repartition(4).write.parquet(str(path))
    table = IndexedTable.register(spark, path)
    table.create_index("by_id", kind="secondary", columns=["id"])
    table.create_index("by_text", kind="secondary", columns=["text"])
    return path


@pytest.fixture
def enabled(spark: SparkSession) -> Iterator[None]:
    spark_apps.enable(spark)
    yield
    spark_apps.disable(spark)


def both(spark: SparkSession, path: Path, ask: Callable[[DataFrame], DataFrame]) -> tuple[list[str], list[str], Any]:
    """The rows with the rule, those by Spark alone, and the explanation."""
    rows = ask(spark.read.parquet(str(path)))
    alone = ask(spark.read.option(OWN_SCAN, "true").parquet(str(path)))
    return sorted(map(str, rows.collect())), sorted(map(str, alone.collect())), spark_apps.explain(rows)


def unruled(spark: SparkSession, query: str) -> list[str]:
    """The rows of a query without the rule."""
    known = session._ENABLED[session._key(spark)][1]
    known._rule.setDecide(None)
    try:
        return sorted(map(str, spark.sql(query).collect()))
    finally:
        known._rule.setDecide(rule._Decision(session._ENABLED[session._key(spark)][0].decide))


ODD: dict[str, tuple[Callable[[DataFrame], DataFrame], list[str | None]]] = {
    "a part of a nested column": (lambda r: r.where("id = 5").select("st.a"), [None]),
    "a filter on a nested column": (lambda r: r.where("id = 5 AND st.b = 'x5'").select("st", "arr"), ["by_id"]),
    "a name with a dot": (lambda r: r.where("id = 5 AND `a.b` = 10").select("`a.b`"), ["by_id"]),
    "names exchanged": (
        lambda r: r.select(F.col("`a.b`").alias("id"), F.col("id").alias("x")).where("x = 3 AND id = 6"), ["by_id"],
    ),
    "a lambda": (lambda r: r.where("exists(arr, x -> x = 5) AND id = 5").select("id"), ["by_id"]),
    "two folders": (lambda r: r.unionAll(r).where("id = 5").select("id"), ["by_id", "by_id"]),
}  # fmt: skip
if SPARK >= (4, 0):
    ODD |= {
        "a collation": (lambda r: r.where("text COLLATE UTF8_LCASE = 'T5'").select("id"), [None]),
        "a cast to a collation": (lambda r: r.where("CAST(text AS STRING COLLATE UTF8_LCASE) = 'T5'"), [None]),
        "a collation beside a key": (lambda r: r.where("text COLLATE UTF8_LCASE = 'T5' AND id = 5"), ["by_id"]),
    }


@pytest.mark.usefixtures("enabled")
@pytest.mark.parametrize("name", ODD)
def test_an_odd_query_answers_as_spark_alone_does(spark: SparkSession, things: Path, name: str) -> None:
    answer, alone, explained = both(spark, things, ODD[name][0])

    assert answer == alone
    assert answer, "it finds something"
    assert used(explained) == ODD[name][1], explained
    assert not any(scan.failed for scan in explained.scans)


@pytest.mark.by_turn(1)
@pytest.mark.usefixtures("enabled")
def test_an_hour_that_a_zone_has_twice_is_not_taken_for_the_other(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "moments"
    with session_with(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        for hours in (4, 5):
            moment = spark.sql(f"SELECT TIMESTAMP '2024-11-03 01:30:00-0{hours}:00' AS ts, {hours} AS hours")
            moment.coalesce(1).write.mode("append").parquet(str(path))
        IndexedTable.register(spark, path).create_index("by_ts", kind="secondary", columns=["ts"])

        for hours in (4, 5):
            where = f"ts = TIMESTAMP '2024-11-03 01:30:00-0{hours}:00'"
            answer, alone, explained = both(spark, path, lambda r, where=where: r.where(where).select("hours"))  # type: ignore[misc]
            assert answer == alone == [f"Row(hours={hours})"]
            assert used(explained) == ["by_ts"]
        many = ", ".join(f"TIMESTAMP '2024-11-03 01:30:00-05:00' + INTERVAL {n} DAYS" for n in range(12))
        answer, alone, explained = both(spark, path, lambda r: r.where(f"ts IN ({many})").select("hours"))
        assert answer == alone == ["Row(hours=5)"]
        assert used(explained) == ["by_ts"]


@pytest.fixture
def raw(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """A partitioned table of Spark's catalog, ``raw``, registered with a covering index."""
    path = tmp_path / "raw"
    spark.sql(
        f"CREATE TABLE raw (id bigint, s string, day string) USING parquet PARTITIONED BY (day) LOCATION '{path}'"
    )
    spark.sql("INSERT INTO raw SELECT id, concat('s', id), concat('d', id % 4) FROM range(40)")
    table = IndexedTable.register(spark, "raw")
    table.create_index("covering", kind="covering", columns=["id"], included=["s", "day"])
    yield path
    spark.sql("DROP TABLE IF EXISTS raw")


@pytest.mark.usefixtures("enabled")
def test_a_table_of_spark_s_catalog_is_known_whatever_partitions_spark_passed_over(
    spark: SparkSession, raw: Path
) -> None:
    for where, index in {"id BETWEEN 5 AND 9": "covering", "id BETWEEN 5 AND 9 AND day = 'd1'": "covering"}.items():
        query = f"SELECT id, s FROM raw WHERE {where}"
        explained = spark_apps.explain(query, spark)
        assert used(explained) == [index], explained
        assert sorted(map(str, spark.sql(query).collect())) == unruled(spark, query) != []


@pytest.mark.by_turn(1)
@pytest.mark.usefixtures("enabled")
def test_a_partition_that_lies_elsewhere_in_the_catalog_is_left_to_spark(spark: SparkSession, raw: Path) -> None:
    spark.sql(f"ALTER TABLE raw PARTITION (day = 'd1') SET LOCATION '{raw}/day=d2'")
    spark.catalog.refreshTable("raw")
    for where, days in {"id = 6": ["d1", "d2"], "id = 6 AND day = 'd1'": ["d1"]}.items():
        rows = spark.sql(f"SELECT day FROM raw WHERE {where}")
        assert sorted(row.day for row in rows.collect()) == days
        assert "another partition" in str(spark_apps.explain(rows))


@pytest.mark.by_turn(1)
@pytest.mark.usefixtures("enabled")
def test_a_default_that_only_the_catalog_knows_is_spark_s_to_fill_in(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "defaults"
    spark.sql(f"CREATE TABLE defaults (id int) USING parquet LOCATION '{path}'")
    try:
        spark.sql("INSERT INTO defaults VALUES (1)")
        spark.sql("ALTER TABLE defaults ADD COLUMN (c int DEFAULT 5)")
        spark.sql("INSERT INTO defaults VALUES (2, 7)")
        table = IndexedTable.register(spark, path, schema="id int, c int")
        table.create_index("by_id", kind="secondary", columns=["id"])

        rows = spark.sql("SELECT c FROM defaults WHERE id = 1")

        assert [row.c for row in rows.collect()] == [5]
        assert "default value" in str(spark_apps.explain(rows))
        assert used(spark_apps.explain("SELECT id FROM defaults WHERE id = 1", spark)) == ["by_id"]
    finally:
        spark.sql("DROP TABLE defaults")


@pytest.mark.usefixtures("enabled")
def test_chars_are_padded_by_spark_and_varchars_use_their_index(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE chars (c char(4), v varchar(4)) USING parquet LOCATION '{tmp_path / 'chars'}'")
    try:
        for text in "ab":
            spark.sql(f"INSERT INTO chars VALUES ('{text}', '{text}')")
        table = IndexedTable.register(spark, "chars")
        for name in ("c", "v"):
            table.create_index(f"by_{name}", kind="secondary", columns=[name])
        for where, index in {"c = 'a'": None, "v = 'a'": "by_v"}.items():
            rows = spark.sql(f"SELECT c, v FROM chars WHERE {where}")
            assert [tuple(row) for row in rows.collect()] == [("a   ", "a")]
            assert used(spark_apps.explain(rows)) == [index]
    finally:
        spark.sql("DROP TABLE chars")


@pytest.mark.usefixtures("enabled")
def test_sources_by_a_pattern_are_known_by_it_and_several_folders_are_left_to_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name in "ab":
        spark.range(0, 10, 1, 2).selectExpr("id", f"'{name}' AS w").write.parquet(str(tmp_path / "parts" / name))
    pattern = str(tmp_path / "parts" / "*")
    IndexedTable.register(spark, pattern).create_index("by_id", kind="secondary", columns=["id"])

    by_pattern = spark.read.parquet(pattern).where("id = 5")
    by_folders = spark.read.parquet(str(tmp_path / "parts" / "a"), str(tmp_path / "parts" / "b")).where("id = 5")

    assert used(spark_apps.explain(by_pattern)) == ["by_id"]
    assert used(spark_apps.explain(by_folders)) == []
    for rows in (by_pattern, by_folders):
        assert sorted(row.w for row in rows.collect()) == ["a", "b"]


def test_of_two_sources_over_one_folder_that_is_used_which_reads_it_alike(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "two"
    spark.range(20).selectExpr("id", "cast(id AS string) AS s").repartition(4).write.json(str(path))
    IndexedTable.register(spark, path, format="json", schema="id bigint, s string")
    other = IndexedTable.register(spark, path, format="json", schema="id int, s string", name="other")
    other.create_index("by_id", kind="secondary", columns=["id"])
    spark_apps.enable(spark, sources=[path, other.uri])
    try:
        for ddl, index in {"id int, s string": "by_id", "id bigint, s string": None, "id string": None}.items():
            rows = spark.read.schema(ddl).json(str(path)).where("id = 5")
            assert [str(row.id) for row in rows.collect()] == ["5"]
            assert used(spark_apps.explain(rows)) == [index], ddl
    finally:
        spark_apps.disable(spark)


@pytest.mark.by_turn(1)
def test_a_log_to_which_others_may_write_answers_only_where_it_is_named(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "open"
    spark.range(20).repartition(4).write.parquet(str(path))
    table = IndexedTable.register(spark, path)
    table.create_index("by_id", kind="secondary", columns=["id"])
    Path(table.uri).chmod(0o777)
    ask = lambda: spark.read.parquet(str(path)).where("id = 5")  # noqa: E731
    try:
        spark_apps.enable(spark)
        assert used(spark_apps.explain(ask())) == [None]
        assert "others may write" in str(spark_apps.explain(ask()))
        for named in ({"sources": [path]}, {"warehouse": tmp_path}):
            spark_apps.enable(spark, **named)  # type: ignore[arg-type]
            assert used(spark_apps.explain(ask())) == ["by_id"]
    finally:
        spark_apps.disable(spark)


def test_a_damaged_log_below_the_warehouse_is_no_reason_not_to_enable(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("good", "bad"):
        spark.range(20).repartition(4).write.parquet(str(tmp_path / "lake" / name))
        table = IndexedTable.register(spark, tmp_path / "lake" / name)
        table.create_index("by_id", kind="secondary", columns=["id"])
    next((tmp_path / "lake/_indexes/bad").rglob("00000000000000000000.json")).write_text("no JSON")
    try:
        with caplog.at_level(logging.WARNING):
            spark_apps.enable(spark, tmp_path)
        assert "bad" in caplog.text
        assert used(spark_apps.explain(spark.read.parquet(str(tmp_path / "lake/good")).where("id = 5"))) == ["by_id"]
        assert spark.read.parquet(str(tmp_path / "lake/bad")).where("id = 5").count() == 1
    finally:
        spark_apps.disable(spark)


@pytest.mark.by_turn(4)
def test_tables_that_change_between_planning_and_running(spark: SparkSession, tmp_path: Path) -> None:
    uri = tmp_path / "lake" / "trips"
    columns = "id int, s string"

    def make(text: str) -> IndexedTable:
        shutil.rmtree(uri, ignore_errors=True)
        table = IndexedTable.create(spark, uri, columns, ["id"], buckets=2)
        table.upsert(spark.createDataFrame([(1, text)], columns))
        return table

    table = make("a")
    spark_apps.enable(spark, tmp_path)
    try:
        frame, named = table.frame(), spark.table("lake.trips")
        table.rescale(buckets=4)
        table.upsert(spark.createDataFrame([(1, "b")], columns))
        table.restore(version=table.version - 1)
        assert [row.s for row in frame.collect()] == [row.s for row in named.collect()] == ["a"]

        kept = table.frame().cache()
        assert [row.s for row in kept.collect()] == ["a"]
        anew = make("anew")
        assert [row.s for row in spark.table("lake.trips").collect()] == ["anew"], "another log at the same place"
        assert [row.s for row in anew.frame().collect()] == ["anew"]
        kept.unpersist()

        planned = spark.table("lake.trips").where("id = 1")
        planned._jdf.queryExecution().executedPlan()  # type: ignore[operator]
        shutil.rmtree(uri)
        with pytest.raises(Exception, match="trips"):
            planned.collect()
        with pytest.raises(Exception, match=r"TABLE_OR_VIEW_NOT_FOUND.*trips"):
            spark.table("lake.trips")
    finally:
        spark_apps.disable(spark)


@pytest.mark.usefixtures("enabled")
def test_a_callback_that_fails_leaves_spark_s_plan_and_a_keyed_table_says_what_to_do(
    spark: SparkSession, things: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = IndexedTable.create(spark, tmp_path / "t", "id int", ["id"])
    frame = table.frame()

    def gone(self: object, request: object) -> None:
        raise ConnectionError("no server")

    monkeypatch.setattr(rule._Decision, "apply", gone)

    assert [row.id for row in spark.read.parquet(str(things)).where("id = 5").collect()] == [5]
    with pytest.raises(Exception, match=r"IndexedTable\.load"):
        frame.collect()


@pytest.mark.usefixtures("enabled")
def test_what_fails_inside_is_warned_of_once_a_query(
    spark: SparkSession, things: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("no such thing")

    monkeypatch.setattr("spark_apps.optimizer.rewriting.plan_read", broken)
    spark.read.parquet(str(things)).createOrReplaceTempView("things")
    query = (
        "SELECT a.id FROM things a JOIN things b ON a.id = b.id WHERE a.id = 5 AND b.text IN (SELECT text FROM things)"
    )

    with caplog.at_level(logging.WARNING):
        assert [row.id for row in spark.sql(query).collect()] == [5]

    assert caplog.text.count("planned without indexes") == 1


_GONE = """
import sys
import spark_apps
from spark_apps import IndexedTable
from spark_apps.storage.errors import InvalidInput
from tests.spark.local import local_session

folder = sys.argv[1]
spark = local_session(memory="1g")
spark.range(0, 40, 1, 4).write.parquet(folder + "/s")
IndexedTable.register(spark, folder + "/s").create_index("by_id", "secondary", ["id"])
frame = IndexedTable.create(spark, folder + "/t", "id int", ["id"]).frame()
rows = spark.read.parquet(folder + "/s").where("id = 5")
assert [scan.replaced for scan in spark_apps.explain(rows).scans] == [True]
spark.sparkContext._gateway.shutdown_callback_server()
print("rows", [row.id for row in rows.collect()])
try:
    frame.collect()
except Exception as error:
    print("keyed", "spark_apps.enable" in str(error))
spark.stop()
try:
    spark_apps.enable(spark)
except InvalidInput as error:
    print("stopped", error.message)
"""


@pytest.mark.by_turn(24)
def test_a_callback_server_that_is_gone_leaves_spark_s_plan_and_a_stopped_session_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _GONE, str(tmp_path)]
    # Else Java calls back on the connection that it was called by.
    environment = {**os.environ, "PYSPARK_PIN_THREAD": "false"}
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)

    assert run.returncode == 0, run.stderr[-3000:]
    rows, keyed, stopped = run.stdout.splitlines()[-3:]
    assert (rows, keyed) == ("rows [5]", "keyed True")
    assert "stopped" in stopped.removeprefix("stopped")


def test_a_table_dropped_after_a_query_was_analyzed_shows_what_it_held(spark: SparkSession, tmp_path: Path) -> None:
    table = IndexedTable.create(spark, tmp_path / "lake" / "trips", "id int, s string", ["id"], buckets=2)
    table.upsert(spark.createDataFrame([(1, "a")], "id int, s string"))
    spark_apps.enable(spark, tmp_path)
    try:
        frame, named = table.frame(), spark.table("lake.trips")
        table.drop()
        assert [row.s for row in frame.collect()] == [row.s for row in named.collect()] == ["a"]
        with pytest.raises(Exception, match=r"TABLE_OR_VIEW_NOT_FOUND.*trips"):
            spark.table("lake.trips")
    finally:
        spark_apps.disable(spark)


@pytest.mark.usefixtures("enabled")
@pytest.mark.by_turn(16)
def test_an_index_damaged_between_planning_and_running_is_named_and_the_next_query_reads_the_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "facts"
    spark.range(0, 4_000, 1, 4).selectExpr("id", "id % 9 AS k", "concat('long text ', id) AS s").write.parquet(
        str(path)
    )
    IndexedTable.register(spark, path).create_index("by_k", "covering", ["k"], included=["id"])
    rows = spark.read.parquet(str(path)).where("k = 4").select("id")
    planned: Any = rows
    planned._jdf.queryExecution().executedPlan()
    assert used(spark_apps.explain(rows)) == ["by_k"]
    for file in (tmp_path / "_indexes/facts/_index/indexes").rglob("*.parquet"):
        file.write_bytes(b"no Parquet at all")

    with pytest.raises(Exception, match="_index/indexes"):
        rows.collect()
    again = spark.read.parquet(str(path)).where("k = 4").select("id")
    assert again.count() == 444
    assert "unreadable" in str(spark_apps.explain(again))


@pytest.mark.usefixtures("enabled")
def test_an_expression_that_means_something_else_than_its_text_asks_no_index(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "moments"
    for hour in (0, 15):
        rows = spark.sql(f"SELECT TIMESTAMP '2024-07-01 {hour:02}:30:00Z' AS ts, 2147483647 - {hour} AS a, 1 AS b")
        rows.coalesce(1).write.mode("append").parquet(str(path))
    with session_with(spark, {"spark.sql.ansi.enabled": "false"}):
        kept = ["values(hour(ts))", "nulls(a + b)"]
        IndexedTable.register(spark, path).create_index("by_hour", kind="skipping", columns=kept)
        with session_with(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
            spark.sql(
                f"CREATE OR REPLACE TEMP VIEW nights AS SELECT hour(ts) AS h FROM parquet.`{path}` WHERE hour(ts) = 0"
            )

        assert spark.table("nights").count() == 1
        assert spark.read.parquet(str(path)).where("try_add(a, b) IS NULL").count() == 1
        small = tmp_path / "small"
        for n in (1, 2):
            spark.sql(f"SELECT cast({n}e-9 AS decimal(10, 9)) AS d").coalesce(1).write.mode("append").parquet(
                str(small)
            )
        IndexedTable.register(spark, small).create_index(
            "by_text", kind="skipping", columns=["values(cast(d AS string))"]
        )
        with session_with(spark, {"spark.sql.ansi.enabled": "true"}):
            spark.sql(f"CREATE OR REPLACE TEMP VIEW digits AS SELECT cast(d AS string) AS t FROM parquet.`{small}`")

        assert spark.table("digits").where("t = '0.000000002'").count() == 1
        assert spark.read.parquet(str(small)).where("cast(d AS string) = '2E-9'").count() == 1


@pytest.mark.usefixtures("enabled")
def test_columns_by_the_names_of_literals_and_texts_that_look_like_ours_are_what_they_are(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "words"
    for n in range(3):
        row = f"{n} AS id, {n} = 1 AS `false`, {n} AS `null`, '`lakeindex word {n}`' AS s, now() AS ts"
        spark.sql(f"SELECT {row}").coalesce(1).write.mode("append").parquet(str(path))
    kept = ["values(id)", "values(`false`)", "values(`null`)", "values(s)", "values(ts)"]
    IndexedTable.register(spark, path).create_index("by_all", kind="skipping", columns=kept)

    for where in (
        "`false`",
        "id = `null` AND id = 1",
        "`null` = 1",
        "s = '`lakeindex word 1`' OR ts < TIMESTAMP '2000-01-01'",
    ):
        answer, alone, explained = both(spark, path, lambda r, where=where: r.where(where).select("id"))  # type: ignore[misc]
        assert answer == alone == ["Row(id=1)"], where
        assert not any(scan.failed for scan in explained.scans)
    assert used(explained) == [None] != used(both(spark, path, lambda r: r.where("`false`"))[2])


@pytest.mark.usefixtures("enabled")
@pytest.mark.by_turn(16)
def test_times_are_found_by_sessions_of_another_zone_than_the_index_was_built_in(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "moments"
    for hour in (1, 5):
        spark.sql(f"SELECT TIMESTAMP '2024-07-01 0{hour}:30:00Z' AS ts").coalesce(1).write.mode("append").parquet(
            str(path)
        )
    IndexedTable.register(spark, path).create_index("by_ts", kind="secondary", columns=["ts"])
    with session_with(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        for where in ("ts = '2024-07-01 01:30:00'", "ts IN (TIMESTAMP '2024-07-01 01:30:00', TIMESTAMP '2024-07-02')"):
            answer, alone, explained = both(
                spark,
                path,
                lambda rows, where=where: rows.where(where).selectExpr("unix_seconds(ts) AS s"),  # type: ignore[misc]
            )
            assert answer == alone == ["Row(s=1719811800)"]
            assert used(explained) == ["by_ts"]


def test_a_stopped_session_cannot_be_enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped:
        _sc = None

    with pytest.raises(InvalidInput, match="stopped"):
        spark_apps.enable(Stopped())  # type: ignore[arg-type]
