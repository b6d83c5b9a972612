"""Delta tables as a source, held against what ``deltalake`` itself reads of them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_apps import IndexedTable
from spark_apps.storage import errors
from tests.spark_apps.sources.delta_logs import DeltaLog, column
from tests.spark_apps.sources.lake import arrow_rows, digest, people, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(12)]


def theirs(path: Path, where: str | None = None, version: int | None = None) -> Any:
    """What ``deltalake`` reads, with its own engine."""
    return arrow_rows(pa.table(DeltaTable(path, version).scan(predicate=where)))


def placed(first: int, place: str | None, at: dt.datetime) -> pa.Table:
    rows = people(first, 5)
    return rows.append_column("place", pa.array([place] * 5)).append_column(
        "at", pa.array([at] * 5, pa.timestamp("us", "UTC"))
    )


def test_a_partitioned_table_is_read_by_its_log_indexed_and_followed_through_its_versions(
    spark: Any, tmp_path: Path
) -> None:
    source = tmp_path / "people 100%"
    noon = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
    for n, place in enumerate(["a b", "x%y", None, "é/=[1]"]):
        write_deltalake(source, placed(n * 10, place, noon + dt.timedelta(hours=n)), mode="append",
                        partition_by=["place", "at"])  # fmt: skip
    before = digest(source)
    table = IndexedTable.register(spark, source, "delta", record_key=["id"])
    assert table.definition.partition_by == ("place",), "a timestamp as text depends on who writes it"
    assert table.definition.source is not None and table.definition.source.version == "3"
    assert rows_of(table.read()) == theirs(source)
    receipt = table.create_index("by_id", kind="record")
    table.create_index("by_note", kind="secondary", columns=["note"])
    assert receipt.metrics["files"] == 4 and table.verify("by_id").ok
    assert table.explain("id = 12").files_read == 1
    for where in ("id = 12", "place IS NULL", "place = 'x%y' AND note = 'note 13'", "note = 'note 33'"):
        assert rows_of(table.read(where)) == theirs(source, where), where
    assert table.read("at = timestamp'2024-01-01 14:00:00Z'").count() == 5
    assert digest(source) == before

    delta = DeltaTable(source)
    delta.delete("id = 12")
    write_deltalake(source, placed(50, "a b", noon), mode="append")
    delta = DeltaTable(source)
    delta.optimize.compact()
    table = IndexedTable.load(spark, source)
    assert rows_of(table.read()) == theirs(source)
    assert table.read("id = 12").count() == 0 and table.read("id = 52").count() == 1
    assert table.refresh_index("by_id").committed
    assert table.definition.source is not None and table.definition.source.version == str(delta.version())
    assert table.refresh_index("by_note").committed, "it was not recorded yet"
    assert table.refresh_index("by_note").version is None
    assert table.explain("id = 52").files_read == 1

    past = IndexedTable.load(spark, source, source_version=3)
    assert rows_of(past.read()) == theirs(source, version=3)
    assert rows_of(past.read("id = 12")) == theirs(source, "id = 12", 3)
    assert (past.explain("id = 12").files_read, past.explain("id = 12").index_used) == (1, "by_id")
    assert past.version < table.version
    between = IndexedTable.load(spark, source, source_version=4)
    assert rows_of(between.read()) == theirs(source, version=4)
    for refused in (lambda: past.refresh_index("by_id"), lambda: table.upsert(table.read())):
        with pytest.raises(errors.InvalidInput):
            refused()
    with pytest.raises(errors.VersionNotFound):
        IndexedTable.load(spark, source, source_version=99)

    write_deltalake(source, placed(70, "a b", noon).append_column("more", pa.array([1] * 5)), mode="append",
                    schema_mode="merge")  # fmt: skip
    grown = IndexedTable.load(spark, source)
    assert [field.name for field in grown.definition.fields][-1] == "more"
    assert rows_of(grown.read()) == theirs(source)
    grown.refresh_index("by_id")
    assert rows_of(grown.read("id = 72", ["id", "more"])) == rows_of([(72, 1)])
    assert rows_of(IndexedTable.load(spark, source, source_version=3).read()) == theirs(source, version=3)


def test_deleted_rows_of_deletion_vectors_stay_deleted_and_only_those_files_leave_spark(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = tmp_path / "vectors"
    log = DeltaLog(source, [column("id", "long"), column("city", "string"), column("note", "string")],
                   ["deletionVectors"], {"delta.enableDeletionVectors": "true"})  # fmt: skip
    log.file("1.parquet", people(0, 6))
    log.file("2.parquet", people(10, 6))
    log.commit(log.add("1.parquet"), log.add("2.parquet"))
    table = IndexedTable.register(spark, source, "delta", record_key=["id"])
    table.create_index("by_id", kind="record")
    assert table.explain("id = 2").files_read == 1
    log.commit(log.remove("1.parquet"), log.add("1.parquet", deleted=[0, 2]))
    table = IndexedTable.load(spark, source)
    caplog.clear()
    assert rows_of(table.read()) == theirs(source)
    assert "deletion vector" in caplog.text and "2.parquet" not in caplog.text
    assert table.read("id IN (0, 2)").count() == 0
    assert table.explain().notes == ("1 files are read through deltalake: deletion vector",)
    assert table.refresh_index("by_id").committed
    assert table.verify("by_id").ok
    assert table.explain("id = 2").files_read == 0, "the index has heard of the deletion"
    assert rows_of(table.read("id = 3")) == theirs(source, "id = 3")
    log.commit(log.remove("1.parquet", [0, 2]), log.add("1.parquet", deleted=[0, 2, 3]))
    again = IndexedTable.load(spark, source)
    assert rows_of(again.read()) == theirs(source)
    assert again.read("id = 3").count() == 0
    assert rows_of(IndexedTable.load(spark, source, source_version=0).read()) == theirs(source, version=0)
    assert rows_of(IndexedTable.load(spark, source, source_version=1).read()) == theirs(source, version=1)


def test_column_mapping_is_read_through_deltalake_and_unknown_features_are_refused_by_name(
    spark: Any, tmp_path: Path
) -> None:
    source = tmp_path / "mapped"
    fields = [
        column(name, kind, **{"delta.columnMapping.id": n, "delta.columnMapping.physicalName": f"col-{n}"})
        for n, (name, kind) in enumerate([("id", "long"), ("city", "string"), ("note", "string")], 1)
    ]
    log = DeltaLog(source, fields, ["columnMapping"],
                   {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"})  # fmt: skip
    log.file("1.parquet", people(0, 6).rename_columns(["col-1", "col-2", "col-3"]))
    log.commit(log.add("1.parquet"))
    table = IndexedTable.register(spark, source, "delta", record_key=["id"])
    assert rows_of(table.read()) == arrow_rows(people(0, 6)) == theirs(source)
    table.create_index("by_id", kind="record")
    log.file("2.parquet", people(10, 6).rename_columns(["col-1", "col-2", "col-3"]))
    log.commit(log.add("2.parquet"))
    table = IndexedTable.load(spark, source)
    assert rows_of(table.read("id = 12", ["note", "id"])) == rows_of([("note 12", 12)])
    assert rows_of(table.read()) == theirs(source)
    assert table.locate("id = 12")[0].path == f"file://{source}"

    newer = tmp_path / "newer"
    log = DeltaLog(newer, [column("id", "long")], ["shreddingOfTomorrow"], {})
    log.file("1.parquet", people(0, 6).select(["id"]))
    log.commit(log.add("1.parquet"))
    with pytest.raises(errors.LakeIndexError, match="shreddingOfTomorrow"):
        IndexedTable.register(spark, newer, "delta")
