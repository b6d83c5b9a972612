"""What statements do to the columns of tables, and to tables that another writer owns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_apps import IndexedTable
from spark_apps.storage.errors import InvalidInput, InvalidSchema, TableExists, UnknownColumn
from spark_apps.timeline.locations import Warehouse
from tests.spark_apps.sources.lake import digest
from tests.spark_apps.sql.desk import Desk, refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def desk(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return Desk(spark, tmp_path_factory.mktemp("warehouse"))


def test_columns_are_added_widened_renamed_and_dropped_each_in_one_commit(desk: Desk) -> None:
    desk("""CREATE TABLE db.t (id int, n smallint COMMENT 'how many', note string) USING indexed
            TBLPROPERTIES (primaryKey = 'id', buckets = 1, query_log = 'sampled', 'query_log.sample' = 0.5)""")
    desk.table("db/t").upsert(desk.spark.sql("SELECT 1 id, 2S n, 'x' note"))
    desk("CREATE INDEX by_note ON db.t (note)")
    version = desk.table("db/t").version

    done = desk("""
        ALTER TABLE db.t ADD COLUMNS (fare decimal(10, 2) COMMENT 'in euros', tags array<string>);
        ALTER TABLE db.t ALTER COLUMN n TYPE int;
        ALTER TABLE db.t RENAME COLUMN n TO count;
        ALTER TABLE db.t RENAME COLUMN note TO remark;
        ALTER TABLE db.t SET TBLPROPERTIES ('query_log' = 'on');
        ALTER TABLE db.t DROP COLUMNS IF EXISTS (tags, Fare, nothing);
        ALTER TABLE db.t DROP COLUMN IF EXISTS nothing;
        ALTER TABLE db.t ALTER COLUMN count TYPE INT""")

    assert [receipt.version for receipt in done.receipts] == [*range(version + 1, version + 7), None, None]
    table = desk.table("db/t")
    assert table.schema.simpleString() == "struct<id:int,count:int,remark:string>"
    assert table.definition.properties == {"comment.count": "how many", "query_log": "on", "query_log.sample": "0.5"}
    assert table.read("remark = 'x'").collect() == [(1, 2, "x")]
    assert table.indexes["by_note"].columns == ("remark",)
    past = IndexedTable.load(desk.spark, table.uri, version=version + 1)
    assert past.definition.properties["comment.fare"] == "in euros"
    assert past.read().collect() == [(1, 2, "x", None, None)]


def test_a_change_of_columns_that_cannot_be_is_refused_with_its_reason(desk: Desk) -> None:
    desk("""CREATE TABLE db.u (id int, n bigint, note string) USING indexed
            TBLPROPERTIES (primaryKey = 'id', buckets = 1); CREATE INDEX i ON db.u (note)""")

    refused(desk, UnknownColumn, "ALTER TABLE db.u DROP COLUMNS (n, nothing)")
    refused(desk, InvalidInput, "ALTER TABLE db.u DROP COLUMN id")
    assert "'i' of kind 'secondary'" in str(refused(desk, InvalidInput, "ALTER TABLE db.u DROP COLUMN n, note"))
    refused(desk, InvalidSchema, "ALTER TABLE db.u ALTER COLUMN n TYPE int")
    refused(desk, InvalidSchema, "ALTER TABLE db.u ADD COLUMN (N int)")
    assert "strin" in str(refused(desk, InvalidSchema, "ALTER TABLE db.u ADD COLUMN c strin"))
    assert "NOT NULL" in str(refused(desk, InvalidSchema, "ALTER TABLE db.u ADD COLUMN c int NOT NULL"))
    refused(desk, InvalidSchema, "ALTER TABLE db.u RENAME COLUMN n TO note")
    assert "group_rows" in str(refused(desk, InvalidInput, "ALTER TABLE db.u SET TBLPROPERTIES (group_rows = 3)"))


def test_a_source_is_registered_where_its_name_stands_for_or_elsewhere_and_found_by_name(
    desk: Desk, tmp_path: Path
) -> None:
    for folder in (desk.root / "raw" / "near", tmp_path / "far"):
        desk.spark.sql("SELECT id, id % 3 n FROM range(9)").coalesce(1).write.parquet(str(folder))
    before = digest(tmp_path / "far")

    made = desk(
        f"""
        CREATE TABLE raw.near USING parquet;
        CREATE TABLE raw.away (id bigint, n bigint) USING parquet TBLPROPERTIES (record_key = 'id')
            LOCATION '{tmp_path}/far' COMMENT 'of others';
        CREATE INDEX by_n ON raw.near (n); CREATE INDEX by_n ON raw.away (n)""",
        txn_id="make",
    )

    assert [receipt.version for receipt in made.receipts] == [0, 0, 1, 1]
    for name, source in (("near", desk.root / "raw" / "near"), ("away", tmp_path / "far")):
        table = IndexedTable.load(desk.spark, desk.root / "raw" / name)
        assert table.definition.source is not None and table.definition.source.location == str(source)
        assert table.uri == str(desk.root / "raw" / "_indexes" / name)
        assert table.read("n = 1").count() == 3 and table.explain("n = 1").index_used == "by_n"
    assert table.definition.record_key == ("id",) and table.definition.properties["comment"] == "of others"
    assert {listed.name for listed in Warehouse(str(desk.root)).tables()} >= {"raw.near", "raw.away"}
    assert desk.field(desk("SHOW INDEXES ON raw.away"), 0, "covered_files") == 1
    for name in ("near", "away"):  # a table there would hide the source
        refused(desk, TableExists, f"CREATE TABLE raw.{name} (id int) USING indexed TBLPROPERTIES (primaryKey = 'id')")
    assert desk("DROP INDEX by_n ON raw.away; DROP TABLE raw.away").receipts[1].version == 3
    assert digest(tmp_path / "far") == before


def test_a_source_given_by_its_location_is_called_by_it(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "people").mkdir()
    (tmp_path / "people" / "a.csv").write_text("id;city\n1;oslo\n")
    make = f"CREATE TABLE `{tmp_path}/people` (id int, city string) USING csv OPTIONS (header true, sep ';')"

    desk(make)

    assert IndexedTable.load(desk.spark, tmp_path / "people").read().collect() == [(1, "oslo")]
    refused(desk, TableExists, make)
    again = desk(make.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"))
    assert again.receipts[0].version is None
    refused(desk, InvalidInput, make.replace("USING csv", "USING csv LOCATION '/elsewhere'"))
    refused(desk, TableExists, f"CREATE TABLE db.t USING csv LOCATION '{tmp_path}/people'")


def test_a_source_registered_under_a_transaction_is_found_by_its_retry(desk: Desk, tmp_path: Path) -> None:
    desk.spark.range(3).write.orc(str(tmp_path / "orc"))
    script = f"CREATE TABLE raw.orc USING orc LOCATION '{tmp_path}/orc'; CREATE INDEX i ON raw.orc (id)"

    first = desk(script, txn_id="once")

    assert desk(script, txn_id="once").receipts == first.receipts


def test_a_name_of_spark_s_catalog_is_registered_as_what_it_is(desk: Desk, tmp_path: Path) -> None:
    desk.spark.sql(f"CREATE TABLE catalogued USING parquet LOCATION '{tmp_path}/c' AS SELECT id FROM range(4)")
    try:
        assert "USING parquet" in str(refused(desk, InvalidInput, "CREATE TABLE catalogued USING orc"))

        desk("CREATE TABLE catalogued USING parquet; CREATE INDEX i ON catalogued (id)", txn_id="named")

        assert IndexedTable.load(desk.spark, tmp_path / "c").explain("id = 2").index_used == "i"
        assert desk.field(desk("SHOW INDEXES ON catalogued"), 0, "table") == "catalogued"
    finally:
        desk.spark.sql("DROP TABLE catalogued")
