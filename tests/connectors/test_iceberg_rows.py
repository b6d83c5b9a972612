"""Iceberg tables by their names in a session's catalogs: their rows are those of the connector, whatever deletes there
are, and so is what indexes hold of them."""

from __future__ import annotations

from typing import Any

import pytest

import spark_apps
from spark_apps import IndexedTable
from spark_apps.sources.iceberg_named import NamedIcebergTable
from spark_apps.storage import errors
from spark_apps.timeline.model import DATA_TREE
from tests.connectors.comparing import compared, learning, unlike_its_list
from tests.connectors.iceberg_tables import key, make, registered, warehouse

pytestmark = pytest.mark.usefixtures("iceberg")
KINDS = {"record": ["id"], "secondary": ["rider"], "compact": ["rider"], "skipping": ["minmax(id)"]}


def rows_of(frame: Any) -> list[str]:
    return sorted(map(str, frame.collect()))


def test_given_a_name_then_rows_with_deletes_are_indexed_read_verified_and_refreshed(spark):
    name = "prod.db.trips"
    make(spark, name, 4, 40)
    spark.sql(f"DELETE FROM {name} WHERE id IN (7, 21)")
    table = registered(spark, name, record_key=["id"])
    assert rows_of(table.read()) == rows_of(spark.table(name)) and table.read().count() == 38
    for kind, columns in KINDS.items():
        assert table.create_index(kind, kind=kind, columns=columns).committed and table.verify(kind).ok, kind
    assert table.explain("id = 12").files_read == 1 and table.read("id = 12").count() == 1
    assert table.read("id = 7").count() == 0

    spark.sql(f"DELETE FROM {name} WHERE id = 12")
    spark.sql(f"INSERT INTO {name} VALUES (100, 100, 5, 'r2')")
    table = IndexedTable.load(spark, name, warehouse=warehouse(spark))
    assert rows_of(table.read()) == rows_of(spark.table(name))
    for kind in KINDS:
        assert table.refresh_index(kind).committed and table.verify(kind).ok, kind
    assert table.read("id = 12").count() == 0 and table.explain("id = 100").files_read == 1
    assert rows_of(table.read("rider = 'r2'")) == rows_of(spark.table(name).where("rider = 'r2'"))


def test_given_a_log_that_names_a_table_at_another_place_then_nothing_of_that_is_read(spark, tmp_path):
    make(spark, "prod.db.secret", 1, 4)
    table = registered(spark, "prod.db.secret")
    [file] = table.snapshot.state.files(DATA_TREE)
    source = NamedIcebergTable(spark, str(tmp_path / "mine"), table.definition.source.options, None)
    with pytest.raises(errors.SourceNotAllowed, match=r"mine names the table prod\.db\.secret"):
        source.listing()
    with pytest.raises(errors.SourceNotAllowed, match="Nothing was read of it"):
        source.connector_rows(spark, [file], ["id"])


def test_given_columns_that_change_then_rows_and_indexes_follow(spark):
    name = "prod.db.changing"
    make(spark, name, 2, 20)
    table = registered(spark, name, record_key=["id"])
    table.create_index("skip", kind="skipping", columns=["minmax(n)"])
    spark.sql(f"ALTER TABLE {name} DROP COLUMN rider")
    spark.sql(f"ALTER TABLE {name} ADD COLUMN rider string")
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN n TO hours")
    table = IndexedTable.load(spark, name, warehouse=warehouse(spark))
    assert rows_of(table.read(columns=["id", "rider", "hours"])) == rows_of(
        spark.table(name).select("id", "rider", "hours")
    )
    assert table.read("rider IS NULL").count() == 20


def test_given_a_catalog_of_a_database_and_a_folder_of_indexes_then_its_tables_are_named_and_pruned(spark, tmp_path):
    name = "lite.db.trips"
    spark.sql("CREATE NAMESPACE lite.db")
    make(spark, name, 4, 400)
    table = IndexedTable.register(spark, name, record_key=["key"], index_root=tmp_path)
    table.create_index("by_key", "record")
    spark_apps.enable(spark, warehouse=str(tmp_path))
    (scan,) = spark_apps.explain(spark.table(name).where(f"key = {key(201, 400)}")).scans
    assert scan.scanned == (4, 1)
    assert compared(spark, f"SELECT * FROM {name} WHERE key = {key(201, 400)}", table.uri) == [(4, 1)]
    spark.sql(f"INSERT INTO {name} VALUES (1000, 1001, 3, 'r3')")
    assert table.refresh_index("by_key").metrics["source.files_added"] == 1


def test_given_files_outside_of_the_table_then_they_are_indexed_by_the_right_of_the_session(spark, tmp_path):
    name = "prod.db.elsewhere"
    make(spark, name, 2, 20, **{"write.data.path": str(tmp_path / "data")})
    table = registered(spark, name, record_key=["id"])
    assert table.create_index("by_id", "record").committed
    assert IndexedTable.load(spark, table.uri, version=table.version).read("id = 3").count() == 1


def test_given_another_table_by_the_name_then_it_is_refused(spark):
    name = "prod.db.again"
    make(spark, name, 1, 10)
    registered(spark, name)
    spark.sql(f"DROP TABLE {name} PURGE")
    make(spark, name, 1, 10)
    with pytest.raises(errors.TableNotFound, match="is gone: the one that is there now"):
        IndexedTable.load(spark, name, warehouse=warehouse(spark))


def test_given_a_registration_by_metadata_then_files_with_deletes_are_read_by_the_connector(spark, caplog):
    name = "prod.db.placed"
    make(spark, name, 2, 20)
    spark.sql(f"DELETE FROM {name} WHERE id = 3")
    (folder,) = {row[0].rpartition("/data/")[0] for row in spark.sql(f"SELECT file_path FROM {name}.files").collect()}
    table = IndexedTable.register(spark, folder, "iceberg", record_key=["id"])
    assert rows_of(table.read()) == rows_of(spark.table(name)) and table.read().count() == 19
    assert "pyiceberg" not in caplog.text
    assert table.create_index("by_id", kind="record").committed and table.verify("by_id").ok
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN n TO hours")
    spark.sql(f"ALTER TABLE {name} ADD COLUMN later string")
    assert rows_of(IndexedTable.load(spark, folder).read()) == rows_of(spark.table(name))


def test_given_rows_that_are_protected_then_no_index_copies_them_unless_it_is_asked_for(spark, tmp_path):
    make(spark, "prod.db.kept", 2, 20)
    spark.sql("ALTER TABLE prod.db.kept SET TBLPROPERTIES ('encryption.key-id' = 'mine')")
    table = registered(spark, "prod.db.kept")
    with pytest.raises(
        errors.PlainCopyRefused, match=r"'encryption.key-id'.*Everybody who may read the folder .*built"
    ):
        table.create_index("by_key", "secondary", ["key"])
    assert not table.indexes
    table.create_index("by_key", "secondary", ["key"], properties={"allow_plain_copy": "true"})
    assert table.verify("by_key").ok and "allow_plain_copy" not in table.indexes["by_key"].properties

    # As a catalog does that gives a session a token for the files of one table.
    lends = "spark.sql.catalog.lends"
    given = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop", ".warehouse": str(tmp_path / "lent")}
    for name, value in {**given, ".s3.session-token": "secret"}.items():
        spark.conf.set(lends + name, value)
    make(spark, "lends.db.t", 2, 20)
    own = registered(spark, "lends.db.t")
    own.create_index("by_key", "secondary", ["key"])
    spark.conf.unset(f"{lends}.s3.session-token")
    with pytest.raises(errors.PlainCopyRefused, match=r"lends the rights .*s3\.session-token") as refused:
        own.create_index("by_n", "skipping", ["minmax(n)"])
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("version", [2, 3])
def test_given_snapshots_of_each_kind_then_refreshes_follow_them_alone_and_say_where_they_cannot(spark, version):
    name = f"prod.db.followed_{version}"
    make(spark, name, 4, 200, **{"format-version": str(version), "write.delete.granularity": "file"})
    table = registered(spark, name)
    table.create_index("by_key", "secondary", ["key"])
    table.create_index("cov", "covering", ["n"], included=["id"])
    system, short, whole = "CALL prod.system", name.removeprefix("prod."), "options => map('rewrite-all', 'true')"
    for statement, learned in (
        (f"INSERT INTO {name} VALUES (1000, 1001, 3, 'r3')", ("source.commits", 1)),
        (f"DELETE FROM {name} WHERE id IN (3, 77)", ("source.commits", 1)),
        (f"DELETE FROM {name} WHERE id IN (4, 1000); UPDATE {name} SET n = 3 WHERE id = 5", ("source.commits", 2)),
        (f"{system}.rewrite_data_files(table => '{short}', {whole})", ("source.commits", 1)),
        (f"ALTER TABLE {name} ADD COLUMN more INT; INSERT INTO {name} VALUES (2000, 2001, 3, 'r3', 4)",
         ("source.commits", 1)),
        (f"DELETE FROM {name} WHERE id = 6; {system}.rewrite_position_delete_files(table => '{short}', {whole})",
         ("source.commits", "")),
        (f"{system}.rollback_to_snapshot('{short}', {{oldest}})", ("source.compared", "none of those")),
        (f"INSERT INTO {name} VALUES (3000, 3001, 3, 'r3', 4)", ("source.commits", 1)),
        (f"ALTER TABLE {name} RENAME COLUMN rider TO driver; INSERT INTO {name} VALUES (4000, 4001, 3, 'r3', 5)",
         ("source.compared", "redefined")),
        (f"DELETE FROM {name}", ("source.commits", 1)),
    ):  # fmt: skip
        oldest = spark.sql(f"SELECT snapshot_id FROM {name}.snapshots ORDER BY committed_at LIMIT 1").first()[0]
        for one in statement.split("; "):
            spark.sql(one.replace("{oldest}", str(oldest)))
        table = IndexedTable.load(spark, table.uri)
        answer = sorted(spark.sql(f"SELECT * FROM {name} WHERE n = 3").collect())
        assert sorted(table.read("n = 3").collect()) == answer, statement
        receipt = table.refresh_index("by_key")
        assert str(learned[1]) in str(receipt.metrics.get(learned[0])), (statement, receipt.metrics)
        assert unlike_its_list(spark, table.uri) == [], statement
        if "DELETE" in statement:
            table.refresh_index("cov")
            assert table.verify("by_key").ok and table.verify("cov").ok, statement
            assert sorted(table.read("n = 3").collect()) == answer, statement
    spark.sql(f"DROP TABLE {name}")


def test_given_one_file_more_then_learning_of_it_costs_the_same_whatever_the_table_holds(spark):
    iceberg = spark.sparkContext._jvm.org.apache.iceberg

    def append(name: str, files: int) -> None:
        """Commits files that are not there."""
        table = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)
        commit = table.newAppend()
        for n in range(files):
            file = iceberg.DataFiles.builder(table.spec()).withPath(f"{table.location()}/data/{files}-{n:05d}.parquet")
            commit.appendFile(file.withFileSizeInBytes(10).withRecordCount(1).build())
        commit.commit()

    costs = []
    for files in (100, 2000):
        name = f"prod.db.counted_{files:04d}"
        spark.sql(f"CREATE TABLE {name} (id BIGINT) USING iceberg")
        append(name, files)
        table = registered(spark, name)
        append(name, 1)
        costs.append(learning(spark, table))
        spark.sql(f"DROP TABLE {name}")
    few, many = costs
    assert (few.added, few.calls) == (many.added, many.calls) and few.added == 1
    assert abs(few.bytes - many.bytes) < 200, "but for the digits of its counts"
    assert many.of_list > few.of_list + 1000, "what a list takes is counted"
