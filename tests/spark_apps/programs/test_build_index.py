"""The programs that build and drop an index, run again by another round of the same task, and by another task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_apps import IndexedTable
from spark_apps.jobs.job import Job
from spark_apps.programs.build_index import build_index
from spark_apps.programs.drop_index import drop_index
from spark_apps.storage.errors import IndexExists, IndexNotFound
from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.transactions import begin

pytestmark = pytest.mark.spark

BUILD = {"name": "by_city", "kind": "secondary", "columns": ["city"]}
DROP = {"name": "by_city"}


@pytest.fixture
def table(spark: Any, tmp_path: Path) -> IndexedTable:
    made = IndexedTable.create(spark, str(tmp_path / "t"), "id bigint, city string", record_key=["id"], buckets=1)
    made.upsert(spark.createDataFrame([(1, "oslo"), (2, "rome")], made.schema))
    return made


def job(table: IndexedTable, program: str, round_: str, arguments: dict[str, Any], task: str = "nightly.build") -> Job:
    earlier = {"earlier": f"{task}."}
    return Job(program, table.uri, {**arguments, **earlier}, txn_id=f"{task}.{round_}")


def again(spark: Any, table: IndexedTable) -> IndexedTable:
    return IndexedTable.load(spark, table.uri)


def test_given_an_index_of_an_earlier_round_when_built_again_then_it_is_rebuilt_in_one_commit(
    spark: Any, table: IndexedTable
) -> None:
    first = build_index(spark, job(table, "build_index", "one", BUILD))
    made = again(spark, table).snapshot.state.indexes["by_city"].definition
    (damaged,) = again(spark, table).snapshot.state.files(made.tree)
    (Path(table.uri.removeprefix("file://")) / damaged.path).unlink()
    table.upsert(spark.createDataFrame([(3, "bern")], table.schema))

    for number, more in enumerate(({}, {"if_not_exists": True})):
        second = build_index(spark, job(table, "build_index", f"again{number}", {**BUILD, **more}))
        newest = again(spark, table)
        assert (second.operation, second.version) == ("refresh_index", newest.version)
        assert second.version > first.version
        assert newest.snapshot.state.indexes["by_city"].definition == made
        assert newest.verify("by_city").ok, "also what was lost is there"


def test_given_an_index_of_another_task_or_definition_when_built_then_it_is_refused_or_left_alone(
    spark: Any, table: IndexedTable
) -> None:
    build_index(spark, job(table, "build_index", "one", BUILD))
    version = again(spark, table).version
    others = [
        job(table, "build_index", "two", BUILD, task="nightly.other"),
        job(table, "build_index", "two", {**BUILD, "columns": ["id"]}),
        job(table, "build_index", "three", {**BUILD, "properties": {"shards": "2"}}),
    ]
    for other in others:
        with pytest.raises(IndexExists, match=r"'by_city' already: kind 'secondary', columns \(city\)"):
            build_index(spark, other)
        spared = Job(other.program, other.table, {**other.arguments, "if_not_exists": True}, txn_id=other.txn_id)
        assert build_index(spark, spared).version is None
    assert again(spark, table).version == version


def test_given_an_index_that_was_dropped_since_when_built_again_then_it_is_made_anew(
    spark: Any, table: IndexedTable
) -> None:
    build_index(spark, job(table, "build_index", "one", BUILD))
    dropped = drop_index(spark, job(table, "drop_index", "one", DROP, task="drop"))

    assert drop_index(spark, job(table, "drop_index", "two", DROP, task="drop")).version is None
    with pytest.raises(IndexNotFound):
        drop_index(spark, job(table, "drop_index", "one", DROP, task="other"))
    assert build_index(spark, job(table, "build_index", "two", BUILD)).operation == "create_index"
    assert drop_index(spark, job(table, "drop_index", "three", DROP, task="drop")).version > dropped.version


def test_given_a_deferred_index_when_built_again_then_its_refreshes_are_left_to_fill_it(
    spark: Any, table: IndexedTable
) -> None:
    deferred = {**BUILD, "deferred": True}
    build_index(spark, job(table, "build_index", "one", deferred))
    version = again(spark, table).version

    assert build_index(spark, job(table, "build_index", "two", deferred)).version is None
    assert again(spark, table).version == version


def test_given_an_index_of_an_earlier_round_of_a_transaction_when_its_stage_builds_again_then_it_is_rebuilt(
    spark: Any, table: IndexedTable
) -> None:
    timeline = Timeline.load(Store(table.uri))
    operations = []
    for number in (1, 2):
        txn = begin(timeline, operation="transaction", txn_id=f"d.r.begin.task.{number}", stages=["by_city"])
        stage = {"txn_id": txn.txn_id, "attempt": txn.attempt, "stage": "by_city"}
        arguments = {**BUILD, "earlier": "d.r.begin.task."}
        build_index(spark, Job("build_index", table.uri, arguments, txn_id=f"key{number}", transaction=stage))
        operations.append(txn.staged("by_city")[0].operation)
        txn.commit()
        table.upsert(spark.createDataFrame([(10 + number, "bern")], table.schema))

    assert operations == ["create_index", "refresh_index"]
    assert again(spark, table).verify("by_city").ok
