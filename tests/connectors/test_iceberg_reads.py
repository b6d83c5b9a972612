"""Plain queries of Iceberg tables by Iceberg's own connector, whose scans read the files that indexes leave.

Each query is run with indexes and without, and compared; how many files a scan kept is as the rule says.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import spark_apps
from tests.connectors.comparing import compared, compared_joins
from tests.connectors.iceberg_tables import FILES, delete_equal, key, make, registered

pytestmark = pytest.mark.usefixtures("iceberg")


@pytest.fixture(scope="module")
def trips(spark, iceberg) -> Iterator[str]:
    """A table of 16 files by id, with deleted rows, indexed before the last deletes; returns its log."""
    # In each file the least and the greatest town and day: only indexes know which files hold the others.
    ends = "CASE id % 100 WHEN 0 THEN 0 WHEN 1 THEN 9 ELSE {} END"
    town, day = ends.format("1 + id div 200"), ends.format("1 + id div 200").replace("9", "99")
    make(spark, "prod.db.reads", more=(f"concat('t', {town}) AS town", f"10 * ({day}) + 5 AS day"))
    spark.sql(
        "CREATE TABLE prod.db.riders USING iceberg AS SELECT concat('r', id) AS rider, id AS number FROM range(9)"
    )
    table = registered(spark, "prod.db.reads", record_key=["key"])
    table.create_index("by_key", "record")
    table.create_index("by_n", "skipping", ["minmax(n)"])
    table.create_index("by_rider", "secondary", ["rider"])
    table.create_index("by_town", "compact", ["town"])
    table.create_index("by_day", "skipping", ["values(day)"])
    spark.sql(f"DELETE FROM prod.db.reads WHERE key = {key(3)}")
    spark.sql("ALTER TABLE prod.db.reads CREATE BRANCH side")
    spark.sql("ALTER TABLE prod.db.reads CREATE TAG v1")
    yield table._handle.timeline.store.uri
    spark_apps.disable(spark)


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("SELECT * FROM t WHERE key = {17}", [1]),
        ("SELECT * FROM t WHERE key IN ({17}, {1517})", [2]),
        ("SELECT id, _pos, _file = '' FROM t WHERE key = {17}", [1]),
        ("SELECT count(*) FROM t WHERE rider = 'r7'", [None]),
        ("SELECT count(*) FROM t WHERE town = 't3'", [2]),
        ("SELECT count(*) FROM t WHERE day = 55", [2]),
        ("SELECT key, n FROM t WHERE n = 50 AND key < 20", [None]),
        ("SELECT * FROM t WHERE key = {3}", [1]),
        ("SELECT * FROM t WHERE rider = 'r1xx'", [1]),
        (
            "SELECT a.id FROM prod.db.reads a JOIN prod.db.reads b ON a.n = b.n WHERE a.key = {17} AND b.key = {1517}",
            [1, 1],
        ),
        ("SELECT number, (SELECT max(n) FROM t WHERE key = {40}) FROM prod.db.riders WHERE number = 1", [1]),
        ("SELECT t.* FROM t JOIN (VALUES ({17}L), ({1517}L)) k(key) ON t.key = k.key", [2]),
        ("SELECT id FROM t WHERE EXISTS (SELECT 1 FROM (VALUES ({907}L)) k(key) WHERE k.key = t.key)", [1]),
        ("SELECT id FROM (VALUES (1), (2)) o(id) WHERE EXISTS (SELECT 1 FROM t WHERE t.key = {17})", [1]),
        ("SELECT * FROM t FOR SYSTEM_VERSION AS OF 'v1' WHERE key = {17}", [1]),
        ("SELECT * FROM prod.db.reads.branch_side WHERE key = {17}", [1]),
        ("SELECT record_count FROM prod.db.reads.files WHERE record_count > 17", [None]),
        ("SELECT count(*) FROM t", [None]),
    ],
)
def test_given_indexes_then_a_query_of_the_connectors_reads_the_files_that_they_leave(spark, trips, query, kept):
    named = query.replace(" t ", " prod.db.reads t ").replace("prod.db.reads t FOR", "prod.db.reads FOR")
    for row in (3, 17, 40, 907, 1517):
        named = named.replace(f"{{{row}}}", str(key(row)))

    scans = compared(spark, named.replace("FROM t", "FROM prod.db.reads t"), trips)

    assert [scan and scan[1] for scan in scans if scan or None in kept] == [one for one in kept if one or scans]


def test_given_one_query_of_two_scans_by_other_keys_then_no_exchange_is_shared(spark, trips):
    assert compared_joins(spark, "prod.db.reads", key, trips) == [(FILES, 2), (FILES, 2)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT c.id, (SELECT count(*) FROM c WHERE r >= 0) FROM c JOIN {keys} WHERE r >= 0",
        "SELECT (SELECT max(id) FROM c JOIN {keys} WHERE r >= 0), (SELECT count(*) FROM c WHERE r >= 0)",
    ],
)
def test_given_one_scan_in_a_query_and_its_subquery_then_keys_that_only_one_of_them_asks_for_prune_neither(
    spark, trips, query
):
    # Spark keeps an expression that is not deterministic as one, which is then read by several plans.
    common = (
        "WITH c AS (SELECT t.key, t.id, s.r FROM prod.db.reads t "
        "JOIN (SELECT rider, rand() AS r FROM prod.db.riders) s ON t.rider = s.rider WHERE s.r >= 0)"
    )
    keys = f"(VALUES ({key(3)}L), ({key(405)}L)) k(k) ON c.key = k.k"

    compared(spark, f"{common} {query.format(keys=keys)}", trips)


def test_given_a_table_whose_metadata_is_damaged_then_others_are_pruned_on(spark, trips, iceberg):
    make(spark, "prod.db.damaged", files=1, rows=10)
    folder = Path(spark.conf.get("spark.sql.catalog.prod.warehouse"), "db", "damaged", "metadata")
    for manifest in folder.glob("*-m0.avro"):
        manifest.unlink()
    asked = f"SELECT * FROM prod.db.reads WHERE key = {key(17)}"
    spark_apps.enable(spark, sources=[trips])
    with pytest.raises(Exception, match=r"m0\.avro"):
        spark.sql("SELECT * FROM prod.db.damaged WHERE key = 1").collect()

    assert [scan.scanned for scan in spark_apps.explain(spark.sql(asked)).scans] == [(FILES, 1)]
    spark_apps.disable(spark)


def test_given_a_view_and_a_cache_then_they_are_pruned_as_their_table_is(spark, trips):
    spark.sql("CREATE OR REPLACE TEMP VIEW short AS SELECT key AS trip, rider FROM prod.db.reads WHERE n >= 0")

    assert compared(spark, f"SELECT * FROM short WHERE trip = {key(17)}", trips) == [(FILES, 1)]


def test_given_what_was_appended_or_a_stream_then_it_is_left_alone(spark, trips, tmp_path):
    first = spark.sql("SELECT snapshot_id FROM prod.db.reads.snapshots ORDER BY committed_at").first()[0]
    appended = spark.read.option("start-snapshot-id", first).format("iceberg")
    assert set(compared(spark, lambda: appended.load("prod.db.reads").where(f"key = {key(17)}"), trips)) <= {None}
    spark_apps.enable(spark, sources=[trips])
    rows = spark.readStream.format("iceberg").option("streaming-skip-overwrite-snapshots", True)
    rows = rows.option("streaming-skip-delete-snapshots", True).load("prod.db.reads").where("id = 17")
    stream = rows.writeStream.format("memory").queryName("streamed").option("checkpointLocation", str(tmp_path))
    query = stream.trigger(availableNow=True).start()
    query.awaitTermination()
    spark_apps.disable(spark)

    assert [row.id for row in spark.table("streamed").collect()] == [17]


def test_given_files_and_deletes_since_then_new_files_stay_and_a_snapshot_of_fewer_deletes_is_read_whole(
    spark, iceberg
):
    name = "prod.db.deleted"
    make(spark, name, files=8, rows=800)
    deleted, later, kept = (key(row, 800) for row in (306, 317, 511))
    first = spark.sql(f"SELECT snapshot_id FROM {name}.snapshots").first()[0]
    spark.sql(f"DELETE FROM {name} WHERE key = {deleted}")
    table = registered(spark, name)
    log = table._handle.timeline.store.uri
    table.create_index("by_key", "secondary", ["key"])
    spark.sql(f"DELETE FROM {name} WHERE key = {later}")
    spark.sql(f"INSERT INTO {name} VALUES (306, {deleted}, 1, 'r1'), (9000, 1, 1, 'r1')")

    # The files that came since stay, and so does one that had a deleted row when it was indexed, under other deletes.
    ((scanned, left),) = compared(spark, f"SELECT * FROM {name} WHERE key = {kept}", log)
    assert scanned >= 8 and left <= scanned - 6
    assert compared(spark, f"SELECT * FROM {name} WHERE key IN (1, {deleted}, {later})", log)[0][1] <= scanned - 4
    # What was there before the deletes that the index knows of.
    assert compared(spark, f"SELECT * FROM {name} VERSION AS OF {first} WHERE key = {deleted}", log) == [(8, 1)]
    spark.sql(f"CALL prod.system.rollback_to_snapshot('db.deleted', {first})")
    assert compared(spark, f"SELECT * FROM {name} WHERE key = {deleted}", log) == [(8, 1)]


def test_given_columns_and_partitions_that_change_then_what_an_index_holds_of_another_column_is_not_used(
    spark, iceberg
):
    name = "prod.db.evolving"
    make(spark, name, files=4, rows=400)
    table = registered(spark, name)
    log = table._handle.timeline.store.uri
    table.create_index("by_key", "secondary", ["key"])
    table.create_index("by_rider", "secondary", ["rider"])
    table.create_index("by_n", "secondary", ["n"])
    middle = f"SELECT * FROM {name} WHERE key = {key(201, 400)}"
    first = spark.sql(f"SELECT snapshot_id FROM {name}.snapshots").first()[0]
    spark.sql(f"ALTER TABLE {name} ADD PARTITION FIELD bucket(2, id)")
    spark.sql(f"INSERT INTO {name} VALUES (1000, 1001, 3, 'r3'), (1001, 1002, 4, 'r3')")
    assert compared(spark, middle, log)[0][1] <= 3
    spark.sql(f"ALTER TABLE {name} DROP COLUMN rider")
    spark.sql(f"ALTER TABLE {name} ADD COLUMN rider string")
    spark.sql(f"INSERT INTO {name} VALUES (1002, 1003, 3, 'r3')")
    assert compared(spark, f"SELECT * FROM {name} WHERE rider = 'r3'", log) == [None]
    assert compared(spark, f"SELECT count(*) FROM {name} WHERE rider IS NULL", log) == [None]
    assert compared(spark, f"SELECT * FROM {name} VERSION AS OF {first} WHERE rider = 'r3'", log) == [None]
    spark.sql(f"ALTER TABLE {name} ALTER COLUMN n TYPE bigint")
    assert compared(spark, f"SELECT * FROM {name} WHERE n = 77", log) == [None]
    assert compared(spark, middle, log)[0][1] <= 4
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN key TO number")
    assert compared(spark, middle.replace("key", "number"), log) == [None]


def test_given_deletes_by_equality_then_they_take_rows_of_the_files_that_are_left(spark, iceberg):
    name = "prod.db.equal"
    make(spark, name, files=4, rows=400)
    first, second = key(50, 400), key(150, 400)
    delete_equal(spark, name, "rider", "r50")
    table = registered(spark, name)
    log = table._handle.timeline.store.uri
    assert table.create_index("by_key", "secondary", ["key"]).committed and table.verify("by_key").ok
    delete_equal(spark, name, "rider", "r150")

    assert table.read(f"key = {first}").count() == 0
    assert compared(spark, f"SELECT * FROM {name} WHERE key IN ({first}, {key(250, 400)})", log)[0][1] <= 2
    assert compared(spark, f"SELECT * FROM {name} WHERE key IN ({second}, {key(250, 400)})", log)[0][1] <= 2
