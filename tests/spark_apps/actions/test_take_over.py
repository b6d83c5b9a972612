"""Tables made of rows that others have, held against what the others' own engines read of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_apps import IndexedTable
from spark_apps.actions import take_over
from spark_apps.jobs.job import Job
from spark_apps.programs.write_table import write_table
from spark_apps.storage import errors
from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline
from tests.spark_apps.sources.lake import arrow_rows, digest, people, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(8)]


def rows_commits(table: IndexedTable) -> list[str]:
    """Operations of the commits that changed rows or the definition."""
    return [entry.operation for entry in table.history() if entry.operation != "abort"]


def test_given_a_delta_table_then_its_rows_come_by_one_commit_verified_and_it_stays_as_it_is(
    spark: Any, tmp_path: Path
) -> None:
    source = tmp_path / "people"
    for first, place in ((0, "a b"), (10, "x%y"), (20, None)):
        rows = people(first, 5)
        write_deltalake(source, rows.append_column("place", pa.array([place] * 5, pa.string())), mode="append",
                        partition_by=["place"])  # fmt: skip
    DeltaTable(source).delete("id = 12")
    before = digest(source)

    table = IndexedTable.create(spark, tmp_path / "t", record_key=["id"], from_source=source, buckets=2)

    assert rows_of(table.read()) == arrow_rows(pa.table(DeltaTable(source).scan()))
    assert table.definition.partition_by == ("place",) and sorted(table.partitions) == [
        "place=__HIVE_DEFAULT_PARTITION__", "place=a b", "place=x%25y",
    ]  # fmt: skip
    assert rows_commits(table) == ["create", "insert"] and digest(source) == before
    assert all(file.kind == "base" for file in table.snapshot.state.files("data"))
    with pytest.raises(errors.TableExists, match="with the rows of"):
        IndexedTable.create(spark, tmp_path / "t", record_key=["id"], from_source=source, buckets=2)


def test_given_a_run_that_was_killed_at_any_step_then_the_next_one_brings_each_row_once(
    spark: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    class Killed(BaseException):
        pass

    source = tmp_path / "raw"
    source.mkdir()
    pq.write_table(people(0, 20), source / "1.parquet")

    def create() -> IndexedTable:
        return IndexedTable.create(spark, tmp_path / "t", record_key=["id"], from_source=source, buckets=None)

    def killed(*_arguments: Any, **_named: Any) -> None:
        raise Killed

    for module, name in ((take_over, "run"), (take_over, "totals"), (take_over, "as_files")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, killed)
            with pytest.raises(Killed):
                create()
    pq.write_table(people(20, 5), source / "2.parquet")
    table = create()
    assert sorted(row.id for row in table.read().collect()) == list(range(25))
    assert rows_commits(table) == ["create", "insert"]
    # The commit landed, and its writer died before it knew: the id of the caller finds it.
    again = IndexedTable.create(spark, tmp_path / "u", record_key=["id"], from_source=source, buckets=2, txn_id="once")
    same = IndexedTable.create(spark, tmp_path / "u", record_key=["id"], from_source=source, buckets=2, txn_id="once")
    assert again.version == same.version == 1 and same.read().count() == 25


def test_given_several_rows_of_a_key_then_it_is_refused_with_examples_and_leaves_no_table(
    spark: Any, tmp_path: Path
) -> None:
    source = tmp_path / "raw"
    source.mkdir()
    pq.write_table(people(0, 5), source / "1.parquet")
    pq.write_table(people(3, 4), source / "2.parquet")
    for buckets in (2, None):
        with pytest.raises(errors.InvalidInput, match=r"id=3 \(2 rows\); id=4 \(2 rows\)") as caught:
            IndexedTable.create(spark, tmp_path / "t", record_key=["id"], from_source=source, buckets=buckets)
        assert caught.value.outcome == "The table was created, and dropped again, for its rows could not be written."
        with pytest.raises(errors.TableNotFound):
            IndexedTable.load(spark, tmp_path / "t")
    (source / "2.parquet").unlink()
    table = IndexedTable.create(spark, tmp_path / "t", record_key=["id"], from_source=source, buckets=2)
    assert table.read().count() == 5
    table.drop()
    again = IndexedTable.create(spark, tmp_path / "t", record_key=["id"], from_source=source, buckets=2)
    assert again.read().count() == 5


def test_given_written_rows_that_are_not_the_sources_then_nothing_is_committed(
    spark: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    source = tmp_path / "raw"
    source.mkdir()
    pq.write_table(people(0, 5), source / "1.parquet")
    real, calls = take_over.totals, []

    def altered(rows: Any, tree: Any) -> dict[str, Any]:
        calls.append(1)
        return real(rows if len(calls) == 1 else rows.withColumn("id", rows.id + 1), tree)

    monkeypatch.setattr(take_over, "totals", altered)
    with pytest.raises(errors.VerificationFailed, match="sum of id: 10 in the source, 15 written"):
        IndexedTable.create(spark, tmp_path / "t", record_key=["id"], from_source=source)
    log = Timeline(Store(tmp_path / "t"))
    log.refresh()
    assert [commit.operation for commit in log.commits()] == ["create", "abort", "drop_table"]


def test_given_a_place_inside_the_source_or_rows_of_others_then_it_is_refused(spark: Any, tmp_path: Path) -> None:
    source = tmp_path / "raw"
    source.mkdir()
    pq.write_table(people(0, 5), source / "1.parquet")
    with pytest.raises(errors.InvalidInput, match="one inside the other"):
        IndexedTable.create(spark, source / "t", record_key=["id"], from_source=source)
    with pytest.raises(errors.InvalidInput, match="no source"):
        IndexedTable.create(spark, tmp_path / "t", "id int", ["id"], source_format="delta")
    with pytest.raises(errors.InvalidInput, match="no columns"):
        IndexedTable.create(spark, tmp_path / "t", record_key=["id"])
    IndexedTable.create(spark, tmp_path / "t", "id int", ["id"])
    with pytest.raises(errors.TableExists):
        IndexedTable.create(spark, tmp_path / "t", record_key=["id"], from_source=source)


def test_given_a_task_then_its_table_is_made_of_the_source_once_and_written_to_after_that(
    spark: Any, tmp_path: Path
) -> None:
    source, uri = tmp_path / "raw", str(tmp_path / "t")
    source.mkdir()
    pq.write_table(people(0, 5), source / "1.parquet")
    pq.write_table(people(5, 2), tmp_path / "more.parquet")
    create = {"record_key": ["id"], "from_source": str(source), "buckets": 2, "publish": ["delta"]}
    alone = {"create": create, "batches": [], "takes_over": True}
    for _ in range(2):
        receipt = write_table(spark, Job("write_table", uri, alone, txn_id="task"))
        assert (receipt.version, receipt.txn_id, receipt.metrics["rows"]) == (1, "task", 5)
    files = {"paths": [str(tmp_path / "more.parquet")], "format": "parquet", "options": {}, "schema": None}
    batch = {"operation": "upsert", "sql": None, "deleted": None, "where": None, "partitions": None}
    beside = {"create": create, "batches": [batch], "source": files}
    assert write_table(spark, Job("write_table", uri, beside, txn_id="next")).version == 2
    other = str(tmp_path / "u")
    assert write_table(spark, Job("write_table", other, beside, txn_id="first")).version == 2
    for table in (uri, other):
        rows = IndexedTable.load(spark, table).read()
        assert rows_of(rows) == arrow_rows(pa.concat_tables([people(0, 5), people(5, 2)]))


def test_given_a_task_whose_second_batch_fails_then_it_tells_that_the_table_was_created_and_the_first_written(
    spark: Any, tmp_path: Path
) -> None:
    pq.write_table(people(0, 5), tmp_path / "some.parquet")
    files = {"paths": [str(tmp_path / "some.parquet")], "format": "parquet", "options": {}, "schema": None}
    insert = {"operation": "insert", "sql": None, "deleted": None, "where": None, "partitions": None}
    ddl = spark.read.parquet(str(tmp_path / "some.parquet")).schema.simpleString().removeprefix("struct<")[:-1]
    create = {"schema": ddl.replace(":", " "), "record_key": ["id"], "buckets": 1}
    arguments = {"create": create, "batches": [insert, insert], "source": files, "several": True}

    with pytest.raises(errors.KeysExist) as caught:
        write_table(spark, Job("write_table", str(tmp_path / "t"), arguments, txn_id="twice"))

    done = "The table was created, and 1 of 2 batches were written before; this write changed nothing."
    assert caught.value.outcome == done and done in str(caught.value)
    assert IndexedTable.load(spark, tmp_path / "t").read().count() == 5
