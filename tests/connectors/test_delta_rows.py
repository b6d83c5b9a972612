"""Indexes of Delta tables by name; their rows by delta-spark where Spark's Parquet reader would misread files."""

from __future__ import annotations

import sys

import pytest

import spark_apps
from spark_apps import IndexedTable, sql
from spark_apps.storage.errors import TableNotFound
from tests.connectors.comparing import compared, unlike_its_list

pytestmark = pytest.mark.usefixtures("delta")


@pytest.fixture(autouse=True)
def no_other_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the package that reads Delta in the driver be not there."""
    monkeypatch.setitem(sys.modules, "deltalake", None)


def key(row: int) -> int:
    return row * 7919 % 800


def test_given_a_table_of_the_catalog_with_deletes_then_it_is_indexed_by_its_name_without_another_reader(spark):
    spark.sql(
        "CREATE TABLE rides (id BIGINT, key BIGINT, n INT) USING delta "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    rows = spark.range(800).selectExpr("id", "id * 7919 % 800 AS key", "cast(id % 9 AS int) AS n")
    rows.repartitionByRange(8, "id").write.insertInto("rides")
    spark.sql(f"DELETE FROM rides WHERE key IN ({key(117)}, {key(118)})")

    table = IndexedTable.register(spark, "rides")
    sql.run(spark, "CREATE INDEX by_key ON TABLE default.rides (key)")
    table.create_index("by_n", "skipping", ["values(n)"])

    table = IndexedTable.load(spark, "default.rides")
    assert table.read().count() == 798
    assert table.read(f"key = {key(117)}").count() == 0
    assert [row.id for row in table.read(f"key = {key(317)}").collect()] == [317]
    assert table.verify("by_key").ok
    # The deletes that the index was built with are those of the scan.
    assert compared(spark, f"SELECT * FROM rides WHERE key = {key(317)}", table.uri) == [(8, 1)]

    spark.sql(f"DELETE FROM rides WHERE key = {key(119)}")
    assert compared(spark, f"SELECT * FROM rides WHERE key = {key(317)}", table.uri) == [(8, 2)]
    table = IndexedTable.load(spark, "default.rides")
    for name in ("by_key", "by_n"):
        table.refresh_index(name)
    assert compared(spark, f"SELECT * FROM rides WHERE key = {key(317)}", table.uri) == [(8, 1)]
    assert compared(spark, f"SELECT * FROM rides VERSION AS OF 1 WHERE key = {key(119)}", table.uri) == [(8, 1)]

    spark.sql("DROP TABLE rides")
    spark.sql("CREATE TABLE rides USING delta AS SELECT id, id AS key, 1 AS n FROM range(10)")
    with pytest.raises(TableNotFound, match="is gone"):
        IndexedTable.load(spark, "default.rides").read().count()
    assert compared(spark, "SELECT * FROM rides WHERE key = 3", table.uri) == [None]
    spark.sql("DROP TABLE rides")


def test_given_column_mapping_and_a_column_made_anew_then_its_values_are_those_of_the_new_one(spark, tmp_path):
    path = str(tmp_path / "t")
    named = f"delta.`{path}`"
    rows = spark.range(400).selectExpr("id", "id * 7919 % 400 AS key", "concat('r', id % 8) AS k")
    written = rows.repartitionByRange(4, "id").write.format("delta")
    written.option("delta.columnMapping.mode", "name").save(path)
    table = IndexedTable.register(spark, path, "delta")
    table.create_index("by_key", "secondary", ["key"])
    table.create_index("by_k", "secondary", ["k"])
    asked = f"SELECT * FROM {named} WHERE key = {201 * 7919 % 400}"
    assert compared(spark, asked, path) == [(4, 1)]

    spark.sql(f"ALTER TABLE {named} DROP COLUMN k")
    spark.sql(f"ALTER TABLE {named} ADD COLUMN k STRING")
    spark.sql(f"INSERT INTO {named} VALUES (1000, 1001, 'r3')")
    spark.sql(f"ALTER TABLE {named} RENAME COLUMN id TO number")
    table = IndexedTable.load(spark, path)
    assert [row.number for row in table.read("k = 'r3'").collect()] == [1000]
    for index in ("by_key", "by_k"):
        table.refresh_index(index)
    table = IndexedTable.load(spark, path)
    assert [row.number for row in table.read("k = 'r3'").collect()] == [1000]
    assert table.read("k IS NULL").count() == 400
    assert table.verify("by_k").ok
    # Delta knows by itself that files from before the column have nulls alone.
    assert compared(spark, f"SELECT * FROM {named} WHERE k = 'r3'", path) == [None]
    assert compared(spark, asked, path) == [(4, 1)]
    spark_apps.disable(spark)


def test_given_partitions_of_odd_names_with_deletes_then_each_row_is_of_its_file(spark, tmp_path):
    path = str(tmp_path / "a b%20c")
    rows = spark.range(60).selectExpr(
        "id",
        "element_at(array('a:b%/c', 'x%20y', 'ü =', null), cast(id % 4 AS int) + 1) AS p",
        "timestamp_seconds(id % 2 * 3725) AS at",
    )
    saved = rows.repartition(1).write.format("delta").option("delta.enableDeletionVectors", "true")
    saved.partitionBy("p", "at").save(path)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id IN (0, 5, 6, 11)")
    table = IndexedTable.register(spark, path, "delta", record_key=["id"])
    for kind, columns in {"record": [], "secondary": ["p"], "skipping": ["minmax(id)"]}.items():
        assert table.create_index(kind, kind, columns).committed and table.verify(kind).ok, kind

    assert sorted(row.id for row in table.read("p = 'x%20y'").collect()) == [n for n in range(1, 60, 4) if n != 5]
    for row in range(20, 24):
        assert compared(spark, f"SELECT * FROM delta.`{path}` WHERE id = {row}", path) == [(4, 1)]


def test_given_commits_of_each_kind_then_refreshes_follow_them_by_the_log_and_say_where_they_cannot(spark, tmp_path):
    path = str(tmp_path / "t")
    named = f"delta.`{path}`"
    rows = spark.range(200).selectExpr("id", "id * 7919 % 200 AS key", "id % 9 AS n")
    written = rows.repartitionByRange(4, "id").write.format("delta")
    written.option("delta.enableDeletionVectors", "true").save(path)
    table = IndexedTable.register(spark, path, "delta")
    table.create_index("by_key", "secondary", ["key"])
    table.create_index("cov", "covering", ["n"], included=["id"])
    for statement, learned in (
        (f"INSERT INTO {named} VALUES (1000, 1001, 3)", ("source.commits", 1)),
        (f"DELETE FROM {named} WHERE id IN (3, 77)", ("source.commits", 1)),
        (f"DELETE FROM {named} WHERE id IN (12, 1000); UPDATE {named} SET n = 3 WHERE id = 5", ("source.commits", 2)),
        (f"OPTIMIZE {named}", ("source.commits", 1)),
        (f"RESTORE TABLE {named} TO VERSION AS OF 2", ("source.compared", "changed columns")),
        (f"ALTER TABLE {named} ADD COLUMN more INT; INSERT INTO {named} VALUES (2000, 2001, 3, 4)",
         ("source.compared", "changed columns")),
        (f"INSERT INTO {named} VALUES (2001, 1, 3, 5); DELETE FROM {named} WHERE id < 30", ("source.commits", 2)),
        (f"DELETE FROM {named}", ("source.commits", 1)),
    ):  # fmt: skip
        for one in statement.split("; "):
            spark.sql(one)
        table = IndexedTable.load(spark, path)
        answer = sorted(spark.sql(f"SELECT * FROM {named} WHERE n = 3").collect())
        assert sorted(table.read("n = 3").collect()) == answer, statement
        receipt = table.refresh_index("by_key")
        assert str(learned[1]) in str(receipt.metrics.get(learned[0])), (statement, receipt.metrics)
        assert unlike_its_list(spark, table.uri) == [], statement
        if "DELETE" in statement:
            table.refresh_index("cov")
            assert table.verify("by_key").ok and table.verify("cov").ok, statement
            assert sorted(table.read("n = 3").collect()) == answer, statement


def test_given_a_column_that_was_dropped_and_added_again_then_a_refresh_indexes_the_new_one(spark, tmp_path):
    path = str(tmp_path / "mapped")
    rows = spark.range(400).selectExpr("id", "concat('r', id % 100) AS rider").repartitionByRange(4, "id")
    rows.write.format("delta").option("delta.columnMapping.mode", "name").save(path)
    table = IndexedTable.register(spark, path, "delta")
    table.create_index("by_rider", "secondary", ["rider"])
    table.create_index("packed", "compact", ["rider"])
    asked = f"SELECT * FROM delta.`{path}` WHERE rider = 'r7'"
    for statement in ("DROP COLUMN rider", "ADD COLUMN (rider string)"):
        spark.sql(f"ALTER TABLE delta.`{path}` {statement}")
    spark.sql(f"INSERT INTO delta.`{path}` SELECT 900L, 'r7'")

    assert compared(spark, asked, path) in ([None], [(5, 5)])
    for name in table.indexes:
        table = IndexedTable.load(spark, path)
        assert table.refresh_index(name).version is not None and table.verify(name).ok
        assert name in [use.name for use in table.explain("rider = 'r7'").indexes]
    assert compared(spark, asked, path) == [(5, 1)]
