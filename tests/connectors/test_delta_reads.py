"""Plain queries of Delta tables by delta-spark, whose scans read the files that indexes leave.

Each query is run with indexes and without, and compared; how many files the scan kept is as the rule says.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace

import deltalake
import pyarrow as pa
import pytest

import spark_apps
from spark_apps import IndexedTable
from spark_apps.optimizer import connectors as connectors_of_rule
from tests.connectors.comparing import compared, compared_joins

pytestmark = pytest.mark.usefixtures("delta")

FILES = 16
ROWS = 1600


def key(row: int) -> int:
    """Return the key of a row: keys are unique, and those of each file from nearly all of the range."""
    return row * 7919 % ROWS


@pytest.fixture(scope="module")
def trips(spark, tmp_path_factory) -> Iterator[str]:
    """A table of 16 files by id, with deleted rows, in a catalog; indexed before the last file came."""
    path = str(tmp_path_factory.mktemp("delta") / "trips")
    rows = spark.range(ROWS).selectExpr(
        "id", f"id * 7919 % {ROWS} AS key", "cast(id % 97 AS int) AS n", "concat('r', id % 400) AS rider"
    )
    write(rows, path)
    spark.sql(f"CREATE TABLE trips USING delta LOCATION '{path}'")
    spark.sql("CREATE TABLE riders USING delta AS SELECT concat('r', id) AS rider, id AS number FROM range(400)")
    table = IndexedTable.register(spark, path, "delta")
    table.create_index("by_key", "secondary", ["key"])
    table.create_index("by_n", "skipping", ["values(n)"])
    table.create_index("by_rider", "secondary", ["rider"])
    yield path
    spark_apps.disable(spark)
    spark.sql("DROP TABLE trips")
    spark.sql("DROP TABLE riders")


def write(rows, path: str, files: int = FILES) -> None:
    """Write a table, so many files by id; its deletes are lists of rows."""
    files_of_rows = rows.repartitionByRange(files, "id").write.format("delta")
    files_of_rows.option("delta.enableDeletionVectors", "true").save(path)


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        (f"SELECT * FROM trips WHERE key = {key(17)}", [1]),
        (f"SELECT * FROM trips WHERE key IN ({key(17)}, {key(1517)})", [2]),
        (f"SELECT id, _metadata.row_index, input_file_name() = '' FROM trips WHERE key = {key(17)}", [1]),
        ("SELECT count(*) FROM trips WHERE rider = 'r207'", [4]),
        (
            f"SELECT a.id, b.n FROM trips a JOIN trips b ON a.n = b.n WHERE a.key = {key(17)} AND b.key = {key(1517)}",
            [1, 1],
        ),
        (f"SELECT number, (SELECT max(n) FROM trips WHERE key = {key(40)}) FROM riders WHERE number = 1", [1]),
        (f"SELECT t.* FROM trips t JOIN (VALUES ({key(17)}L), ({key(1517)}L)) k(key) ON t.key = k.key", [2]),
        (
            f"SELECT t.id FROM trips t WHERE EXISTS (SELECT 1 FROM (VALUES ({key(907)}L)) k(key) WHERE k.key = t.key)",
            [1],
        ),
        ("SELECT * FROM trips WHERE rider = 'r1xx'", [1]),
        (f"SELECT * FROM trips VERSION AS OF 0 WHERE key = {key(17)}", [1]),
    ],
)
def test_given_indexes_then_a_query_of_the_connectors_reads_the_files_that_they_leave(spark, trips, query, kept):
    scans = compared(spark, query, trips)

    assert [scan and scan[1] for scan in scans] == kept


def test_given_one_query_of_two_scans_by_other_keys_then_no_exchange_is_shared(spark, trips):
    assert compared_joins(spark, "trips", key, trips) == [(FILES, 2), (FILES, 2)]


def test_given_a_view_over_a_table_of_the_catalog_then_it_is_pruned(spark, trips):
    spark.sql("CREATE OR REPLACE TEMP VIEW short AS SELECT key AS trip, rider FROM trips WHERE n >= 0")

    assert compared(spark, f"SELECT * FROM short WHERE trip = {key(17)}", trips) == [(FILES, 1)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM (SELECT * FROM trips LIMIT 150)",
        "SELECT id FROM table_changes('trips', 0) WHERE n = 17",
    ],
)
def test_given_a_limit_or_a_change_feed_then_the_scan_is_left_alone(spark, trips, query):
    if "table_changes" in query:
        spark.sql("ALTER TABLE trips SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
        query = query.replace("0)", "1)")

    assert set(compared(spark, query, trips)) <= {None}


def test_given_a_stream_then_it_is_left_alone(spark, trips, tmp_path):
    spark_apps.enable(spark, sources=[trips])
    stream = spark.readStream.format("delta").load(trips).where("id = 17").writeStream.format("memory")
    query = stream.queryName("streamed").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    spark_apps.disable(spark)

    assert [row.id for row in spark.table("streamed").collect()] == [17]


def test_given_files_and_deletes_since_then_new_files_stay_and_a_version_of_fewer_deletes_is_read_whole(
    spark, tmp_path
):
    path = str(tmp_path / "t")
    write(spark.range(800).selectExpr("id", "id * 7919 % 800 AS key"), path, 8)
    deleted, later, kept = (row * 7919 % 800 for row in (306, 317, 511))
    spark.sql(f"DELETE FROM delta.`{path}` WHERE key = {deleted}")
    table = IndexedTable.register(spark, path, "delta")
    table.create_index("by_key", "secondary", ["key"])
    spark.sql(f"DELETE FROM delta.`{path}` WHERE key = {later}")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (306, {deleted}), (9000, 1), (9001, 799)")
    of = f"SELECT * FROM delta.`{path}`"

    # The file that had a deleted row when it was indexed stays everywhere, and so does the new one.
    assert compared(spark, f"{of} WHERE key = {kept}", path) == [(9, 3)]
    assert compared(spark, f"{of} WHERE key = {later}", path)[0] is not None
    # What was there before the deletes that the index knows of.
    assert compared(spark, f"{of} VERSION AS OF 0 WHERE key = {deleted}", path) == [(8, 1)]
    spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF 0")
    assert compared(spark, f"{of} WHERE key = {deleted}", path) == [(8, 1)]


def test_given_partitions_then_their_filters_go_on_to_prune(spark, tmp_path):
    path = str(tmp_path / "t")
    rows = spark.range(800).selectExpr("id", "id * 7919 % 800 AS key", "cast(id % 4 AS int) AS p")
    rows.repartitionByRange(4, "id").write.format("delta").partitionBy("p").save(path)
    table = IndexedTable.register(spark, path, "delta")
    table.create_index("by_key", "secondary", ["key"])
    keys = [row * 7919 % 800 for row in (301, 401, 502)]
    of = f"SELECT * FROM delta.`{path}`"

    assert compared(spark, f"{of} WHERE p = 1 AND key IN ({', '.join(map(str, keys))})", path) == [(4, 2)]
    sides = f"(VALUES (1, {keys[0]}L), (2, {keys[2]}L)) k(p, key)"
    joined = f"SELECT t.* FROM delta.`{path}` t JOIN {sides} ON t.p = k.p AND t.key = k.key"
    assert compared(spark, joined, path) == [(16, 2)]


def test_given_a_column_that_was_renamed_or_made_anew_then_what_an_index_holds_of_the_old_one_is_not_used(
    spark, tmp_path
):
    path = str(tmp_path / "t")
    write(spark.range(400).selectExpr("id", "id * 7919 % 400 AS key", "concat('r', id % 8) AS k"), path, 4)
    table = IndexedTable.register(spark, path, "delta")
    table.create_index("by_key", "secondary", ["key"])
    table.create_index("by_k", "secondary", ["k"])
    named = f"delta.`{path}`"
    spark.sql(
        f"ALTER TABLE {named} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', "
        "'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5')"
    )
    middle = f"SELECT * FROM {named} WHERE key = {201 * 7919 % 400}"
    assert compared(spark, middle, path) == [(4, 1)]
    spark.sql(f"ALTER TABLE {named} DROP COLUMN k")
    spark.sql(f"ALTER TABLE {named} ADD COLUMN k STRING")
    spark.sql(f"INSERT INTO {named} VALUES (1000, 1001, 'r3')")
    assert compared(spark, f"SELECT * FROM {named} WHERE k = 'r3'", path) == [None]
    assert compared(spark, f"SELECT count(*) FROM {named} WHERE k IS NULL", path) == [None]
    assert compared(spark, middle, path) == [(4, 1)]
    spark.sql(f"ALTER TABLE {named} RENAME COLUMN key TO number")
    assert compared(spark, middle.replace("key", "number"), path) == [None]


def test_given_a_connector_of_another_version_then_its_own_plan_is_kept_and_one_warning_says_so(
    spark, trips, monkeypatch, caplog
):
    known = connectors_of_rule.DELTA
    other = replace(known, source=lambda: known.source().replace("scannedSnapshot()", "snapshotOfAnother()"))
    monkeypatch.setattr(connectors_of_rule, "BUILT_IN", (other,))

    assert compared(spark, f"SELECT * FROM trips WHERE key = {key(17)}", trips) == []
    assert [record.message[:55] for record in caplog.records if "format delta" in record.message] == [
        "Tables of the format delta are read without indexes, fo"
    ]


def test_given_a_session_of_another_calendar_then_an_index_of_days_is_not_used(spark, tmp_path):
    path = str(tmp_path / "t")
    for file in range(4):
        # Days of a writer that does not say by which calendar they are.
        days = [dt.date(1500, 1, 1) + dt.timedelta(days=(file * 10 + row) * 37 % 40 * 30) for row in range(10)]
        deltalake.write_deltalake(path, pa.table({"n": range(10), "day": days}), mode="append")
    IndexedTable.register(spark, path, "delta").create_index("by_day", "secondary", ["day"])
    days = [dt.date(1500, 1, 1) + dt.timedelta(days=25 * 37 % 40 * 30)]
    of = f"SELECT * FROM delta.`{path}`"
    assert compared(spark, f"{of} WHERE day = DATE'{days[0]}'", path) == [(4, 1)]
    mode = spark.conf.get("spark.sql.parquet.datetimeRebaseModeInRead")
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY")
    try:
        days = [row.day for row in spark.sql(f"{of} WHERE n = 5").collect()]
        sides = ", ".join(f"(DATE'{day}')" for day in days)
        assert compared(spark, f"{of} WHERE day = DATE'{days[0]}'", path) == [None]
        assert compared(spark, f"SELECT t.* FROM delta.`{path}` t JOIN (VALUES {sides}) k(k) ON day = k", path) == [
            None
        ]
    finally:
        spark.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", mode)
