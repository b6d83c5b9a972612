"""Plain queries of Delta and Iceberg tables that read the rows of some files from a covering index.

Each query is run with the index and without, and compared. Which files the index holds rows of, in which state, decides
what is left to the connector.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import spark_apps
from spark_apps import IndexedTable
from tests.connectors.comparing import compared, compared_held, decided, watched
from tests.connectors.iceberg_tables import key as key_of
from tests.connectors.iceberg_tables import make, registered
from tests.spark.local import session_with

FILES, ROWS = 8, 800
COLUMNS = ("id", f"id * 7919 % {ROWS} AS key", "cast(id % 97 AS int) AS n", "concat('r', id % 400) AS rider")


def key(row: int) -> int:
    return key_of(row, ROWS)


@dataclass(frozen=True)
class Trips:
    """A table of 8 files by id with an index over its keys: the second file had a deleted row when it was built,
    the third one has had one since, and a ninth file came.

    :param first: the version before any delete. :param file: the connector's column of a row's file.
    """

    name: str
    log: str
    first: Any
    file: str


def made(
    spark: Any, kind: str, folder: Path, name: str, files: int = FILES, rows: int = ROWS, **properties: str
) -> str:
    """Make and register a table; return its name in SQL and the address of its log."""
    frame = spark.range(rows).selectExpr(*COLUMNS)
    if kind == "iceberg":
        make(spark, f"prod.db.held_{name}", files, rows, **properties)
        return f"prod.db.held_{name}"
    writer = frame.repartitionByRange(files, "id").write.format("delta").option("delta.enableDeletionVectors", "true")
    writer.options(**properties).save(str(folder / name))
    return f"delta.`{folder / name}`"


def indexed(spark: Any, name: str, **more: Any) -> IndexedTable:
    """Register a table and build its covering index by key."""
    path = name.removeprefix("delta.").strip("`")
    table = registered(spark, name) if path == name else IndexedTable.register(spark, path, "delta")
    table.create_index("cov", "covering", ["key"], included=["n", "rider"], **more)
    return table


def log_of(table: IndexedTable) -> str:
    return str(table._handle.timeline.store.uri)


def version_of(spark: Any, name: str) -> Any:
    if name.startswith("delta."):
        return spark.sql(f"DESCRIBE HISTORY {name}").first()["version"]
    return spark.sql(f"SELECT snapshot_id FROM {name}.snapshots ORDER BY committed_at DESC").first()[0]


@pytest.fixture(scope="module", params=["delta", "iceberg"])
def trips(request: pytest.FixtureRequest, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trips]:
    request.getfixturevalue(request.param)
    name = made(spark, request.param, tmp_path_factory.mktemp("held"), "held")
    first = version_of(spark, name)
    spark.sql(f"DELETE FROM {name} WHERE key = {key(150)}")
    table = indexed(spark, name)
    spark.sql(f"DELETE FROM {name} WHERE key = {key(250)}")
    spark.sql(f"INSERT INTO {name} VALUES (900, 0, 1, 'new'), (901, {key(17)}, 2, 'new'), (902, 799, 3, 'new')")
    yield Trips(name, log_of(table), first, "_file" if request.param == "iceberg" else "_metadata.file_path")
    spark_apps.disable(spark)


KEYS = ", ".join(str(key(row)) for row in (17, 150, 170, 250, 270, 517))


@pytest.mark.parametrize(
    ("query", "held"),
    [
        (f"SELECT key, n, rider FROM t WHERE key IN ({KEYS})", [(9, 2, 7)]),
        (f"SELECT rider FROM t WHERE key = {key(17)} AND n < 50", [(9, 2, 7)]),
        (f"SELECT id, key FROM t WHERE key = {key(17)}", [None]),
        ("SELECT sum(n) FROM t", [None]),
        (f"SELECT key, input_file_name() = '' FROM t WHERE key = {key(17)}", [None]),
        (f"SELECT key, length(file) > 0 FROM t WHERE key = {key(17)}", [None]),
        (f"SELECT key, n FROM t TABLESAMPLE (50 PERCENT) REPEATABLE (3) WHERE key = {key(17)}", [None]),
        (f"SELECT key, n FROM t VERSION AS OF first WHERE key IN ({KEYS})", [(8, 1, 7)]),
        (
            f"SELECT a.key, b.rider FROM t a JOIN t b ON a.n = b.n WHERE a.key = {key(17)} AND b.key < 30",
            [(9, 2, 7), (9, 2, 7)],
        ),
        (f"SELECT id, (SELECT max(n) FROM t WHERE key = {key(17)}) FROM range(2)", [(9, 2, 7)]),
        (f"SELECT id FROM range(97) r WHERE EXISTS (SELECT 1 FROM t WHERE n = r.id AND key IN ({KEYS}))", [(9, 2, 7)]),
        (f"SELECT id FROM range(97) WHERE id NOT IN (SELECT n FROM t WHERE key IN ({KEYS}))", [(9, 2, 7)]),
        (
            f"WITH c AS (SELECT key, n FROM t WHERE key IN ({KEYS})) "
            "SELECT c.key, (SELECT count(*) FROM c) FROM c JOIN c d ON c.n = d.n",
            None,
        ),
        (
            "SELECT a.rider FROM t a JOIN t b ON a.key = b.key "
            f"WHERE a.key = (SELECT max(key) FROM t WHERE key IN ({KEYS})) AND a.n >= 0",
            None,
        ),
        (
            f"SELECT n FROM t WHERE key = {key(17)} UNION ALL SELECT n FROM t WHERE key = {key(517)}",
            [(9, 2, 7), (9, 2, 7)],
        ),
        (
            f"SELECT a.rider, k.x FROM t a JOIN (VALUES ({key(17)}L, 1), ({key(250)}L, 2)) k(key, x) ON a.key = k.key",
            None,
        ),
    ],
)
def test_given_a_covering_index_then_it_is_read_for_the_files_that_are_as_it_knows_them(spark, trips, query, held):
    asked = query.replace("FROM t", f"FROM {trips.name}").replace("JOIN t b", f"JOIN {trips.name} b")
    asked = asked.replace("OF first", f"OF {trips.first}").replace("length(file)", f"length({trips.file})")

    found = compared_held(spark, asked, trips.log)

    assert found == held if held else any(one and one[2] for one in found)


def test_given_two_joins_of_a_table_by_other_keys_then_no_exchange_is_shared(spark, trips):
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    sides = [f"SELECT a.rider FROM {trips.name} a JOIN {trips.name} b ON a.n = b.n WHERE a.key = {key(row)}"
             for row in (17, 517)]  # fmt: skip
    try:
        found = compared_held(spark, " UNION ALL ".join(sides), trips.log)
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")

    assert [one and one[2] for one in found].count(7) == 2


def test_given_partitions_that_are_pruned_by_the_rows_of_an_index_then_those_of_the_connectors_count_too(
    spark, trips, tmp_path
):
    kind = "iceberg" if trips.name.startswith("prod") else "delta"
    rows = spark.range(970).selectExpr("id", "cast(id % 97 AS int) AS p")
    name = "prod.db.held_pruned" if kind == "iceberg" else f"delta.`{tmp_path / 'pruned'}`"
    if kind == "iceberg":
        rows.sortWithinPartitions("p").writeTo(name).using("iceberg").partitionedBy("p").create()
    else:
        rows.repartition("p").write.format("delta").partitionBy("p").save(str(tmp_path / "pruned"))
    query = f"SELECT f.id, t.rider FROM {name} f JOIN {trips.name} t ON f.p = t.n WHERE t.key IN ({KEYS})"
    spark.conf.set("spark.lakeindex.joinKeys.enabled", "false")
    try:
        assert compared_held(spark, query, trips.log) == [(9, 2, 7)]
    finally:
        spark.conf.unset("spark.lakeindex.joinKeys.enabled")


def test_given_a_join_whose_bloom_filter_is_made_by_the_same_scan_then_no_row_of_the_join_is_lost(
    spark, trips, tmp_path
):
    of_iceberg = trips.name.startswith("prod")
    name = "prod.db.held_filtered" if of_iceberg else f"delta.`{tmp_path / 'filtered'}`"
    spark.range(970).selectExpr("id", "cast(id % 97 AS int) AS n").write.format(
        "iceberg" if of_iceberg else "delta"
    ).saveAsTable(name)
    query = f"SELECT f.id, t.rider FROM {name} f JOIN {trips.name} t ON f.n = t.n WHERE t.key IN ({KEYS})"
    bloom = "spark.sql.optimizer.runtime.bloomFilter"
    with session_with(spark, {
        "spark.sql.autoBroadcastJoinThreshold": "-1", f"{bloom}.enabled": "true",
        f"{bloom}.applicationSideScanSizeThreshold": "0", "spark.lakeindex.joinKeys.enabled": "false",
    }):  # fmt: skip
        plan = spark.sql(query)._jdf.queryExecution().optimizedPlan().toString()
        found = compared_held(spark, query, trips.log)

    assert "might_contain" in plan
    # The scan is changed where it is by one connector, and by the other in each place by itself.
    assert [one and one[2] for one in found if one] == ([] if of_iceberg else [7, 7])


def test_given_a_view_and_a_cache_then_they_are_read_as_their_table_is(spark, trips):
    spark.sql(f"CREATE OR REPLACE TEMP VIEW short AS SELECT key AS trip, rider FROM {trips.name} WHERE n >= 0")
    assert compared_held(spark, f"SELECT * FROM short WHERE trip = {key(17)}", trips.log) == [(9, 2, 7)]
    spark_apps.enable(spark, sources=[trips.log])
    kept = spark.sql(f"SELECT * FROM short WHERE trip IN ({KEYS})").cache()
    try:
        cached = sorted(map(tuple, kept.collect()))
        spark_apps.disable(spark)
        assert cached == sorted(map(tuple, spark.sql(f"SELECT * FROM short WHERE trip IN ({KEYS})").collect()))
    finally:
        kept.unpersist()


def test_given_a_column_that_is_never_null_then_a_query_says_so_of_the_rows_of_an_index_too(spark, trips):
    spark_apps.enable(spark, sources=[trips.log])
    frame = spark.sql(f"SELECT key, rider FROM {trips.name} WHERE key = {key(17)}")
    plan = frame._jdf.queryExecution().optimizedPlan()

    assert "cov" in frame._jdf.queryExecution().executedPlan().toString()
    assert plan.schema().simpleString() == frame._jdf.queryExecution().analyzed().schema().simpleString()
    said = str(spark_apps.explain(frame))
    assert "2 of 9 files of its connector's own plan are read by it; the rows of 7 come from indexes" in said
    assert "cov" in said


def test_given_a_command_then_its_target_is_read_by_the_connector_alone(spark, trips, tmp_path, monkeypatch):
    kind = "iceberg" if trips.name.startswith("prod") else "delta"
    name = made(spark, kind, tmp_path, "changed", files=4)
    table = indexed(spark, name)
    spark_apps.enable(spark, sources=[log_of(table)])
    seen = watched(monkeypatch)
    spark.sql(f"UPDATE {name} SET n = n WHERE key = {key(17)}")
    spark.sql(f"DELETE FROM {name} WHERE key IN ({key(18)}, {key(418)})")
    spark.sql(
        f"MERGE INTO {name} t USING (SELECT key, n FROM {trips.name} WHERE key = {key(19)}) s ON t.key = s.key "
        "WHEN MATCHED THEN UPDATE SET rider = 'x'"
    )
    spark_apps.disable(spark)

    assert seen and not any(one.held for one in seen if one.address.endswith("changed"))
    assert spark.sql(f"SELECT key FROM {name} WHERE rider = 'x'").collect()[0].key == key(19)
    assert spark.sql(f"SELECT count(*) FROM {name}").first()[0] == ROWS - 2


def test_given_another_column_of_the_name_then_the_index_is_not_used_for_it(spark, trips, tmp_path):
    kind = "iceberg" if trips.name.startswith("prod") else "delta"
    name = made(spark, kind, tmp_path, "evolving", files=2)
    if kind == "delta":
        spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    log = log_of(indexed(spark, name))
    asked = f"SELECT key, n FROM {name} WHERE key = {key(17)}"
    of_rider = asked.replace("n FROM", "rider FROM")
    assert [one and one[2] for one in compared_held(spark, of_rider, log)] == [2]
    spark.sql(f"ALTER TABLE {name} DROP COLUMN rider")
    spark.sql(f"ALTER TABLE {name} ADD COLUMN (rider string)")
    assert compared_held(spark, of_rider, log) == [None]
    assert [one and one[2] for one in compared_held(spark, asked, log)] == [2]
    IndexedTable.load(spark, log).refresh_index("cov", mode="full")
    assert [one and one[2] for one in compared_held(spark, of_rider, log)] == [2]
    if kind == "iceberg":
        spark.sql(f"ALTER TABLE {name} ALTER COLUMN n TYPE bigint")
    else:
        spark.sql(f"ALTER TABLE {name} RENAME COLUMN n TO m")
        asked = asked.replace("n FROM", "m FROM")
    assert compared_held(spark, asked, log) == [None]


def test_given_buckets_of_all_files_then_a_join_needs_no_shuffle(spark, trips, tmp_path):
    kind = "iceberg" if trips.name.startswith("prod") else "delta"
    names = [made(spark, kind, tmp_path, name, files=2) for name in ("left", "right")]
    logs = [log_of(indexed(spark, name, properties={"layout": "buckets", "buckets": "2"})) for name in names]
    query = f"SELECT a.n, b.rider FROM {names[0]} a JOIN {names[1]} b ON a.key = b.key"
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    try:
        scans = decided(spark, query, *logs)
        spark_apps.enable(spark, sources=logs)
        plan = spark.sql(query)._jdf.queryExecution().executedPlan().toString()
        spark.sql(f"INSERT INTO {names[0]} VALUES (900, {key(17)}, 1, 'new')")
        assert [one and one[1:] for one in compared_held(spark, query, *logs)] != [(0, 2), (0, 2)]
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")

    assert [(one.scanned, one.held) for one in scans] == [((2, 0), 2), ((2, 0), 2)]
    assert "Exchange" not in plan


def test_given_partitions_and_columns_in_others_then_they_are_as_the_connector_reads_them(spark, trips, tmp_path):
    kind = "iceberg" if trips.name.startswith("prod") else "delta"
    rows = spark.range(400).selectExpr(
        "id * 7919 % 400 AS key", "cast(id % 3 AS int) AS p", "named_struct('a', id, 'b', array(id)) AS deep",
        "cast(id AS decimal(20, 2)) AS price", "date'2026-01-01' + cast(id % 9 AS int) AS day",
    )  # fmt: skip
    name = "prod.db.held_parted" if kind == "iceberg" else f"delta.`{tmp_path / 'parted'}`"
    if kind == "iceberg":
        rows.sortWithinPartitions("p").writeTo(name).using("iceberg").partitionedBy("p").create()
    else:
        rows.write.format("delta").partitionBy("p").save(str(tmp_path / "parted"))
    table = (
        registered(spark, name)
        if kind == "iceberg"
        else IndexedTable.register(spark, str(tmp_path / "parted"), "delta")
    )
    table.create_index("cov", "covering", ["key"], included=["p", "deep", "price", "day"])
    log = log_of(table)

    for query in (
        f"SELECT * FROM {name} WHERE key IN (17, 18, 19, 20)",
        f"SELECT key, deep.a, day FROM {name} WHERE key < 40 AND p = 1",
        f"SELECT p, sum(price) FROM {name} WHERE key < 40 GROUP BY p",
    ):
        assert compared(spark, query, log) is not None
    assert decided(spark, f"SELECT * FROM {name} WHERE key = 17", log)[0].held


@pytest.mark.by_turn(8)
def test_given_a_column_that_came_with_a_default_or_was_widened_then_rows_of_an_index_are_the_connectors(
    spark, trips, tmp_path
):
    kind = "iceberg" if trips.name.startswith("prod") else "delta"
    name = made(spark, kind, tmp_path, "defaults", files=2, **NEWEST[kind])
    log = log_of(indexed(spark, name))
    add_with_default(spark, name, kind)
    spark.sql(f"INSERT INTO {name} (id, key, n, rider) VALUES (900, 900, 1, 'new')")
    spark.sql(f"INSERT INTO {name} VALUES (901, 901, NULL, NULL, NULL), (902, 902, 2, 'new', 7)")
    asked = [f"SELECT key, n, c FROM {name} WHERE key IN ({key(17)}, {key(517)}, 900, 901, 902)",
             f"SELECT key FROM {name} WHERE c = 5 AND key IN ({key(17)}, 900, 901)",
             f"SELECT count(*), max(n) FROM {name} WHERE c IS NULL AND key < 9"]  # fmt: skip
    for query in asked:
        assert [one and one[2] for one in compared_held(spark, query, log)] in ([None], [0])  # it has no such column
    table = IndexedTable.load(spark, log)
    table.create_index("later", "covering", ["key"], included=["n", "c"])
    for query in asked[:2]:  # all files that the connector's own statistics leave
        assert [one and one[1:] == (0, one[0]) for one in compared_held(spark, query, log)] == [True]
    compared(spark, asked[2], log)
    rows = {row.key: row.c for row in spark.sql(asked[0]).collect()}
    assert rows == {key(17): OLD[kind], key(517): OLD[kind], 900: 5, 901: None, 902: 7}

    # What the files hold is narrower than what the column is now.
    spark.sql(f"ALTER TABLE {name} ALTER COLUMN n TYPE bigint")
    spark.sql(f"INSERT INTO {name} VALUES (903, 903, 5000000000, 'new', 8)")
    asked += [f"SELECT key, n FROM {name} WHERE n = 5000000000 AND key < 1000", f"SELECT n FROM {name} WHERE key = 903"]
    assert [compared_held(spark, query, log) for query in (asked[0], asked[4])] == [[None], [None]]
    table.drop_index("later")
    table.drop_index("cov")
    table.create_index("wide", "covering", ["key"], included=["n", "c"])
    assert table.verify("wide").ok
    assert [one and one[1:] == (0, one[0]) for one in compared_held(spark, asked[0], log)] == [True]
    for query in asked[1:]:
        compared(spark, query, log)
    assert spark.sql(asked[4]).first()[0] == 5_000_000_000


NEWEST = {
    "delta": {"delta.enableTypeWidening": "true", "delta.feature.allowColumnDefaults": "supported"},
    "iceberg": {"format-version": "3"},
}
OLD = {"delta": None, "iceberg": 5}
"""What rows of before a column of a default hold in it."""


def add_with_default(spark: Any, name: str, kind: str) -> None:
    """Add a column of numbers, which are 5 where a row does not say another one."""
    if kind == "delta":
        spark.sql(f"ALTER TABLE {name} ADD COLUMN (c int)")
        spark.sql(f"ALTER TABLE {name} ALTER COLUMN c SET DEFAULT 5")
        return
    iceberg = spark.sparkContext._jvm.org.apache.iceberg
    table = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)
    number, five = getattr(iceberg.types, "Types$IntegerType").get(), iceberg.expressions.Literal.of(5)
    table.updateSchema().addColumn("c", number, five).commit()
    spark.sql(f"REFRESH TABLE {name}")
