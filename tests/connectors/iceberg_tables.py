"""Iceberg tables for the tests of its connector."""

from __future__ import annotations

from typing import Any

from spark_apps import IndexedTable

FILES = 16
ROWS = 1600
MERGE_ON_READ = {f"write.{command}.mode": "merge-on-read" for command in ("delete", "update", "merge")}


def key(row: int, rows: int = ROWS) -> int:
    """Return the key of a row: keys are unique, and those of each file from nearly all of the range."""
    return row * 7919 % rows


def make(
    spark: Any, name: str, files: int = FILES, rows: int = ROWS, more: tuple[str, ...] = (), **properties: str
) -> None:
    """Make a table of so many files by id, whose rows are deleted by files of their positions."""
    frame = spark.range(rows).selectExpr(
        "id", f"id * 7919 % {rows} AS key", "cast(id % 97 AS int) AS n", "concat('r', id % 400) AS rider", *more
    )
    writer = frame.repartitionByRange(files, "id").writeTo(name).using("iceberg")
    for option, value in {"write.distribution-mode": "none", **MERGE_ON_READ, **properties}.items():
        writer = writer.tableProperty(option, value)
    writer.create()


def registered(spark: Any, name: str, **more: Any) -> IndexedTable:
    """Register a table, whose log is in a warehouse beside that of the catalog."""
    return IndexedTable.register(spark, name, warehouse=warehouse(spark), **more)


def warehouse(spark: Any) -> str:
    """Return the folder of the logs."""
    return f"{spark.conf.get('spark.sql.catalog.prod.warehouse')}-of-indexes"


def delete_equal(spark: Any, name: str, column: str, value: str) -> None:
    """Commit a file that deletes the rows of a table with a text, as Flink does: Spark writes none."""
    jvm = spark.sparkContext._jvm
    iceberg = jvm.org.apache.iceberg
    table = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)
    names = jvm.java.util.ArrayList()
    names.add(column)
    schema = table.schema().select(names)
    ids = spark.sparkContext._gateway.new_array(jvm.int, 1)
    ids[0] = table.schema().findField(column).fieldId()
    place = table.io().newOutputFile(f"{table.location()}/data/equal-{value}.parquet")
    output = iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(place)
    if spark.version.startswith("3."):
        appenders = iceberg.data.GenericAppenderFactory(table.schema(), table.spec(), ids, schema, None)
        writer = appenders.newEqDeleteWriter(output, iceberg.FileFormat.PARQUET, None)
    else:
        build = getattr(iceberg.data, "GenericFileWriterFactory$Builder")(table).equalityFieldIds(ids)
        writer = build.equalityDeleteRowSchema(schema).build().newEqualityDeleteWriter(output, table.spec(), None)
    record = iceberg.data.GenericRecord.create(schema)
    record.setField(column, value)
    writer.write(record)
    writer.close()
    table.newRowDelta().addDeletes(writer.toDeleteFile()).commit()
    spark.sql(f"REFRESH TABLE {name}")
