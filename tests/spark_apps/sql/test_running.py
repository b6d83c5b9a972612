"""What statements do to tables, one script after another on one small warehouse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_apps import IndexedTable
from spark_apps.storage.errors import (
    CommitUndone,
    IndexExists,
    IndexNotFound,
    InvalidInput,
    InvalidRule,
    InvalidSchema,
    PartitionNotFound,
    TableExists,
    TableNotFound,
    UnknownColumn,
)
from tests.spark_apps.sql.desk import Desk, refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(16)]

MAKE = """
CREATE TABLE db.rides (
    id bigint NOT NULL, -- the key
    city string COMMENT 'where', fare double, ts timestamp, dt date, region string
) USING indexed PARTITIONED BY (dt, region)
TBLPROPERTIES (primaryKey = 'id', preCombineField = 'ts', hoodie.index.type = 'BUCKET',
               hoodie.bucket.index.num.buckets = 1,
               hoodie.bucket.index.partition.expressions = '\\d{4}-11-11,2', 'team.owner' = 'rides')
COMMENT 'every ride'
"""

ROWS = """
SELECT id, concat('c', id % 3) city, cast(id AS double) fare, timestamp'2024-11-11' ts,
       IF(id % 2 = 0, date'2024-11-11', date'2024-11-12') dt, IF(id < 5, 'eu', NULL) region
FROM range(10)
"""


@pytest.fixture(scope="module")
def desk(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    desk = Desk(spark, tmp_path_factory.mktemp("warehouse"))
    desk(MAKE)
    desk.table().upsert(spark.sql(ROWS))
    yield desk


# --- tables -----------------------------------------------------------------------------------------------------


def test_a_table_is_made_with_the_documents_options(desk: Desk) -> None:
    table = desk.table()

    assert table.definition.record_key == ("id",)
    assert table.definition.partition_by == ("dt", "region")
    assert table.definition.ordering_column == "ts"
    assert table.definition.properties == {
        "team.owner": "rides",
        "comment": "every ride",
        "comment.city": "where",
    }
    assert {path: info.buckets for path, info in table.partitions.items()} == {
        "dt=2024-11-11/region=eu": 2,
        "dt=2024-11-11/region=__HIVE_DEFAULT_PARTITION__": 2,
        "dt=2024-11-12/region=eu": 1,
        "dt=2024-11-12/region=__HIVE_DEFAULT_PARTITION__": 1,
    }


def test_a_table_that_exists_is_refused_or_with_if_not_exists_left_alone(desk: Desk) -> None:
    refused(desk, TableExists, MAKE)

    result = desk(MAKE.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"))

    assert desk.field(result, 0, "note") == "the table exists"
    assert result.receipts[0].version is None


def test_columns_that_spark_cannot_read_are_refused(desk: Desk) -> None:
    error = refused(
        desk, InvalidSchema, "CREATE TABLE odd (id nothing) USING indexed TBLPROPERTIES (primaryKey = 'id')"
    )
    assert "Statement 1 of 1 (line 1, CREATE TABLE)" in error.message
    assert "nothing" in str(error)


def test_a_location_must_be_what_the_name_stands_for(desk: Desk, tmp_path: Path) -> None:
    elsewhere = f"USING indexed TBLPROPERTIES (primaryKey = 'id') LOCATION '{tmp_path}/t'"

    error = refused(desk, InvalidInput, f"CREATE TABLE db.named (id int) {elsewhere}")
    assert "no catalog" in error.hint

    desk(f"CREATE TABLE `{tmp_path}/t` (id int) {elsewhere}; DROP TABLE `{tmp_path}/t`")
    desk(f"CREATE TABLE here (id int) {elsewhere.replace(f'{tmp_path}/t', f'{desk.root}/here')}; DROP TABLE here")


def test_a_table_that_is_not_there_cannot_be_dropped_unless_if_exists(desk: Desk) -> None:
    refused(desk, TableNotFound, "DROP TABLE db.none")

    assert desk.field(desk("DROP TABLE IF EXISTS db.none"), 0, "note") == "there is no such table"


# --- the life of an index ---------------------------------------------------------------------------------------


def test_an_index_is_made_shown_described_and_dropped_by_its_name_alone(desk: Desk) -> None:
    made = desk("CREATE INDEX By_City ON db.rides USING secondary_index(CITY) IN TABLE rides_by_city COMMENT 'cities'")
    assert desk.field(made, 0, "version") == desk.table().version
    assert desk.table().read("city = 'c1'").count() == 3

    shown = desk("SHOW INDEXES ON db.rides")
    row = dict(zip(shown.columns, shown.rows[0], strict=True))
    files = sum(info.files for info in desk.table().partitions.values())
    assert (row["index"], row["kind"], row["state"], row["columns"]) == ("By_City", "secondary", "active", ["city"])
    assert (row["covered_files"], row["lagging_files"], row["lagging_bytes"]) == (files, 0, 0)
    assert row["covered_bytes"] == sum(info.bytes for info in desk.table().partitions.values())
    assert row["index_files"] > 0 and row["index_bytes"] > 0
    assert row["properties"]["tombstones"] == "eager"
    assert (row["index_table"], row["comment"]) == ("rides_by_city", "cities")
    assert row["location"] == f"{desk.root}/db/rides/_index/indexes/By_City"
    assert row["refreshed_version"] == desk.table().version and row["last_refresh"].startswith("20")
    assert shown.to_df().where("covered_files > 0").select("properties").first()[0]["tombstones"] == "eager"

    described = dict(desk("DESCRIBE FORMATTED INDEX by_city ON db.rides").rows)
    assert described["columns"] == "city" and described["index_bytes"].endswith(" KiB")

    refused(desk, InvalidInput, "DROP TABLE rides_by_city")  # the index table is dropped with its index
    refused(desk, InvalidInput, "CREATE INDEX more ON db.rides (fare) IN TABLE Rides_by_City")
    refused(desk, InvalidInput, "CREATE INDEX more ON db.rides (fare) IN TABLE db.rides")
    refused(desk, IndexExists, "CREATE INDEX by_city ON db.rides (fare)")
    note = desk.field(desk("CREATE INDEX IF NOT EXISTS by_city ON db.rides (city)"), 0, "note")
    assert note == "the index exists: kind 'secondary', columns (city)"

    dropped = desk("DROP INDEX By_City")
    assert desk.field(dropped, 0, "operation") == "drop_index"
    assert desk.table().indexes == {}


def test_a_deferred_index_is_empty_until_it_is_rebuilt_wholly_or_for_a_partition(desk: Desk) -> None:
    desk("CREATE INDEX later ON TABLE db.rides (city) AS 'secondary' WITH DEFERRED REBUILD")
    before = desk("SHOW INDEXES ON db.rides")
    assert desk.field(before, 0, "covered_files") == 0 and desk.field(before, 0, "last_refresh") is None

    desk("ALTER INDEX later ON db.rides PARTITION (dt = '2024-11-12') REBUILD")
    some = desk("SHOW INDEXES ON db.rides")
    assert (
        0
        < desk.field(some, 0, "covered_files")
        < desk.field(some, 0, "covered_files") + desk.field(some, 0, "lagging_files")
    )

    desk("ALTER INDEX later ON db.rides REBUILD")
    assert desk.field(desk("SHOW INDEXES ON db.rides"), 0, "lagging_files") == 0
    assert desk.table().verify("later").ok

    nothing = desk("REFRESH INDEX later ON db.rides; REFRESH INDEX later ON db.rides QUICK")
    assert [receipt.version for receipt in nothing.receipts] == [None, None]
    refused(desk, PartitionNotFound, "ALTER INDEX later ON db.rides PARTITION (dt = '1999-01-01') REBUILD")
    refused(desk, InvalidInput, "ALTER INDEX later ON db.rides PARTITION (city = 'c1') REBUILD")
    refused(desk, InvalidInput, "ALTER INDEX later ON db.rides PARTITION (dt = 'soon') REBUILD")
    desk("DROP INDEX later ON db.rides")


def test_properties_that_only_concern_the_future_can_be_set(desk: Desk) -> None:
    desk("CREATE INDEX p ON db.rides (city)")

    desk("ALTER INDEX p ON db.rides SET IDXPROPERTIES ('tombstones' = 'lazy')")
    assert desk.table().indexes["p"].properties["tombstones"] == "lazy"
    again = desk("ALTER INDEX p ON db.rides SET IDXPROPERTIES ('tombstones' = 'lazy')")
    assert again.receipts[0].version is None

    back = "ALTER INDEX p ON db.rides SET IDXPROPERTIES (tombstones 'eager')"
    assert "eager tombstones" in str(refused(desk, InvalidInput, back))
    assert "fixed" in str(refused(desk, InvalidInput, "ALTER INDEX p ON db.rides SET IDXPROPERTIES (shards = 7)"))
    assert "'color'" in str(refused(desk, InvalidInput, "ALTER INDEX p ON db.rides SET IDXPROPERTIES (color = 7)"))
    desk("DROP INDEX p ON db.rides")


def test_what_a_kind_cannot_be_is_refused_with_its_reason(desk: Desk) -> None:
    make = "CREATE INDEX x ON db.rides (city) "
    assert "one lookup reads one place" in str(refused(desk, InvalidInput, make + "PARTITIONED BY (dt)"))
    refused(desk, UnknownColumn, make + "PARTITIONED BY (city)")
    assert "kept with the log" in str(refused(desk, InvalidInput, make + "LOCATION '/elsewhere'"))
    assert "'bitmap' in this process" in str(refused(desk, InvalidInput, make + "AS 'bitmap'"))
    assert "registry.allow" in str(refused(desk, InvalidInput, make + "AS 'com.acme.Handler'"))
    refused(desk, UnknownColumn, "CREATE INDEX x ON db.rides (nowhere)")
    refused(desk, InvalidInput, make + "IDXPROPERTIES ('color' = 'red')")

    desk(make + f"PARTITIONED BY () LOCATION '{desk.root}/db/rides/_index/indexes/x'")
    assert desk.field(desk("SHOW INDEXES ON db.rides"), 0, "partitioned_by") == []
    desk("DROP INDEX x ON db.rides")


def test_an_index_that_is_not_there_is_refused_unless_if_exists(desk: Desk) -> None:
    refused(desk, IndexNotFound, "DROP INDEX none ON db.rides")
    refused(desk, IndexNotFound, "DROP INDEX none")
    refused(desk, TableNotFound, "DROP INDEX none ON db.none")
    refused(desk, IndexNotFound, "REFRESH INDEX none ON db.rides")
    refused(desk, IndexNotFound, "DESCRIBE INDEX none ON db.rides")

    results = desk(
        "DROP INDEX IF EXISTS none; DROP INDEX IF EXISTS none ON db.rides; DROP INDEX IF EXISTS x ON db.none"
    )
    assert [receipt.version for receipt in results.receipts] == [None, None, None]


def test_a_name_of_two_indexes_needs_its_table(desk: Desk) -> None:
    desk("""
        CREATE TABLE other (id int, city string) USING indexed TBLPROPERTIES (primaryKey = 'id', buckets = 1);
        CREATE INDEX twin ON other (city) WITH DEFERRED REBUILD;
        CREATE INDEX twin ON db.rides (city) WITH DEFERRED REBUILD""")

    assert "2 tables" in str(refused(desk, InvalidInput, "DROP INDEX twin"))

    desk("DROP INDEX twin ON other; DROP INDEX twin; DROP TABLE other")
    assert desk.table().indexes == {}


# --- partitions and scripts -------------------------------------------------------------------------------------


def test_a_partition_is_dropped_with_what_its_indexes_say_of_it(desk: Desk) -> None:
    desk("CREATE INDEX c ON db.rides (city)")

    desk("ALTER TABLE db.rides DROP PARTITION (dt = '2024-11-12', region = NULL)")

    table = desk.table()
    assert "dt=2024-11-12/region=__HIVE_DEFAULT_PARTITION__" not in table.partitions
    assert table.verify("c").ok and table.read().count() == 7
    refused(desk, PartitionNotFound, "ALTER TABLE db.rides DROP PARTITION (dt = '2024-11-12', region = NULL)")
    kept = desk("ALTER TABLE db.rides DROP IF EXISTS PARTITION (dt = '2024-11-12', region = NULL)")
    assert kept.receipts[0].version is None
    desk("DROP INDEX c ON db.rides")


def test_a_script_that_fails_says_where_and_what_stands(desk: Desk) -> None:
    with pytest.raises(IndexNotFound) as caught:
        desk("CREATE INDEX s ON db.rides (city) WITH DEFERRED REBUILD;\nDROP INDEX t ON db.rides;\nDROP TABLE db.rides")

    message = str(caught.value)
    assert "Statement 2 of 3 (line 2, DROP INDEX)" in message
    assert f"statement 1 is committed as version {desk.table().version} of {desk.root}/db/rides" in message
    assert "The statement behind it was not run." in message
    assert "This statement changed nothing." in message
    assert list(desk.table().indexes) == ["s"]
    desk("DROP INDEX s ON db.rides")


def test_a_script_under_a_transaction_is_done_once_even_what_it_dropped(desk: Desk) -> None:
    script = """
        CREATE TABLE gone (id int, city string) USING indexed TBLPROPERTIES (primaryKey = 'id', buckets = 1);
        CREATE INDEX lost ON gone (city);
        SHOW INDEXES ON gone;
        DROP INDEX lost;
        DROP TABLE gone"""
    first = desk(script, txn_id="try")
    assert [receipt.txn_id for receipt in first.receipts] == ["try.001", "try.002", "try.004", "try.005"]

    with pytest.raises(TableNotFound):  # a script that shows what it dropped cannot be repeated
        desk(script, txn_id="try")
    again = desk(script.replace("SHOW INDEXES ON gone;", "SHOW INDEXES ON db.rides;"), txn_id="try")

    assert again.receipts == first.receipts
    assert desk.field(again, 0, "note") == "had committed before"


def test_a_script_whose_table_somebody_else_dropped_is_not_told_as_done(desk: Desk) -> None:
    script = "CREATE TABLE taken (id int) USING indexed TBLPROPERTIES (primaryKey = 'id', buckets = 1)"
    desk(script, txn_id="mine")
    desk(f"DROP TABLE taken; {script}", txn_id="theirs")

    with pytest.raises(CommitUndone, match="the table was dropped in version 1 since"):
        desk(script, txn_id="mine")
    assert desk(f"DROP TABLE taken; {script}", txn_id="theirs").receipts[1].version == 2


def test_a_table_is_dropped_with_all_its_indexes(desk: Desk) -> None:
    desk("""
        CREATE TABLE gone2 (id int, city string) USING indexed TBLPROPERTIES (primaryKey = 'id', buckets = 1);
        CREATE INDEX i ON gone2 (city);
        DROP TABLE gone2""")

    refused(desk, TableNotFound, "SHOW INDEXES ON gone2")
    refused(desk, TableNotFound, "DROP TABLE gone2")
    refused(desk, IndexNotFound, "DROP INDEX i")


# --- buckets ----------------------------------------------------------------------------------------------------


def test_bucket_rules_are_planned_overwritten_added_shown_and_taken_back(desk: Desk) -> None:
    call = "CALL partition_bucket_index_manager(table => 'db.rides', "
    version, rows = desk.table().version, desk.table().read().count()

    planned = desk(call + "overwrite => '2024-11-12/region=eu,4')")
    assert desk.table().version == version and planned.receipts == []
    assert {desk.field(planned, n, "result") for n in range(len(planned.rows))} == {"DRY_RUN"}
    counts = {row[planned.columns.index("partition")]: row[3:5] for row in planned.rows}
    assert counts["dt=2024-11-12/region=eu"] == (1, 4)
    assert planned.to_df().count() == len(planned.rows)

    done = desk(call + "overwrite => '2024-11-12/region=eu,4', dry_run => false)")
    assert desk.table().partitions["dt=2024-11-12/region=eu"].buckets == 4
    assert done.receipts[0].version is not None and desk.table().read().count() == rows

    desk(call + "add => '2025-,16', dry_run => false)")
    shown = desk(call + "show_config => true)")
    assert shown.columns == ("instant", "rule", "expressions", "default")
    assert [row[2].partition(";")[0] for row in shown.rows] == [
        "2025-,16",
        "2024-11-12/region=eu,4",
        r"\d{4}-11-11,2",
    ]

    desk(call + f"rollback => '{shown.rows[0][0]}'); " + call + "rollback => true)")
    assert desk.table().partitions["dt=2024-11-12/region=eu"].buckets == 1
    assert len(desk.table().bucket_rules()) == 1 and desk.table().read().count() == rows


def test_rules_that_cannot_be_are_refused(desk: Desk) -> None:
    call = "CALL partition_bucket_index_manager(table => 'db.rides', dry_run => false, "
    assert "look-around" in str(refused(desk, InvalidRule, call + "overwrite => '(?=a)b,2')"))
    refused(desk, InvalidRule, call + "overwrite => 'a,2', rule => 'astrology')")
    refused(desk, InvalidRule, call + "rollback => '20200101000000000')")
    refused(desk, InvalidInput, call + "overwrite => 'a,2', options => 'window=soon')")


# --- tables of others -------------------------------------------------------------------------------------------


def test_a_registered_source_is_indexed_shown_and_found_by_name(desk: Desk) -> None:
    folder = desk.root / "db" / "files"
    desk.spark.sql(ROWS).drop("region").write.partitionBy("dt").parquet(str(folder))
    IndexedTable.register(desk.spark, folder, record_key=["id"])

    desk("CREATE INDEX of_files ON db.files (city); SHOW INDEXES ON db.files")
    written = sorted(folder.rglob("*.parquet"))
    shown = desk("SHOW INDEXES ON db.files")
    assert desk.field(shown, 0, "covered_files") == len(written)
    assert desk.field(shown, 0, "covered_bytes") == sum(path.stat().st_size for path in written)

    desk.spark.sql("SELECT 99L id, 'c9' city, 1.0D fare, timestamp'2024-11-11' ts, date'2024-11-12' dt").write.mode(
        "append"
    ).partitionBy("dt").parquet(str(folder))
    assert desk.field(desk("SHOW INDEXES ON db.files"), 0, "lagging_files") == 1
    desk("ALTER INDEX of_files ON db.files PARTITION (dt = '2024-11-12') REBUILD")
    assert desk.field(desk("SHOW INDEXES ON db.files"), 0, "lagging_files") == 0

    desk("DROP INDEX of_files; DROP TABLE db.files")
    assert sorted(folder.rglob("*.parquet"))  # what another writer wrote stays


# --- the other kinds --------------------------------------------------------------------------------------------


def test_hives_index_is_made_with_all_its_clauses_and_kept_apart_by_partition(desk: Desk) -> None:
    desk("""
        CREATE INDEX blocks ON TABLE db.rides (city)
        AS 'org.apache.hadoop.hive.ql.index.compact.CompactIndexHandler' WITH DEFERRED REBUILD
        IDXPROPERTIES ('most_values' = '100') IN TABLE rides_blocks PARTITIONED BY (DT) STORED AS PARQUET
        COMMENT "where a city's blocks are";
        ALTER INDEX blocks ON db.rides PARTITION (dt = '2024-11-12') REBUILD;
        ALTER INDEX blocks ON db.rides SET IDXPROPERTIES ('most_values' = '200')""")

    row = dict(desk("DESCRIBE INDEX blocks ON db.rides").rows)
    assert (row["kind"], row["partitioned_by"], row["index_table"]) == ("compact", "dt", "rides_blocks")
    assert (row["properties"], row["comment"]) == ("most_values=200", "where a city's blocks are")
    assert int(row["covered_files"]) > 0 < int(row["lagging_files"])

    desk("ALTER INDEX blocks ON db.rides REBUILD")
    assert desk.field(desk("SHOW INDEXES ON db.rides"), 0, "lagging_files") == 0
    assert desk.table().verify("blocks").ok
    desk("DROP INDEX blocks ON db.rides")


def test_included_columns_are_given_and_changed(desk: Desk) -> None:
    desk("CREATE INDEX cov ON db.rides (city) USING covering INCLUDE (fare)")
    assert desk.field(desk("SHOW INDEXES ON db.rides"), 0, "included") == ["fare"]

    desk("REFRESH INDEX cov ON db.rides INCLUDE (ts) EXCLUDE (fare)")
    assert desk.field(desk("SHOW INDEXES ON db.rides"), 0, "included") == ["ts"]
    refused(desk, InvalidInput, "REFRESH INDEX cov ON db.rides EXCLUDE (city)")
    desk("DROP INDEX cov ON db.rides")


def test_a_table_without_buckets_finds_its_rows_by_the_record_index(desk: Desk) -> None:
    options = "TBLPROPERTIES (primaryKey = 'id', index.type = 'RECORD_INDEX')"
    desk(f"CREATE TABLE loose (id int, n int) USING indexed {options}")

    assert not desk.table("loose").definition.bucketed
    refused(desk, InvalidInput, "CALL partition_bucket_index_manager(table => 'loose', overwrite => 'a,2')")
    desk("DROP TABLE loose")
