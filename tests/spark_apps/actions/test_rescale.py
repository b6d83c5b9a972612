"""Rescale: the plan, the counts by rule, the same rows, and the stop-write window around it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_apps import IndexedTable
from spark_apps.actions.rescale import Rescale
from spark_apps.layout.rules import HashingConfig
from spark_apps.storage import errors
from spark_apps.timeline.model import DATA_TREE
from spark_apps.timeline.transactions import begin

pytestmark = pytest.mark.spark

DDL = "id bigint, dt string, v string"
BUSY = r"dt=\d{4}-11-11"


@pytest.fixture
def table(spark: Any, tmp_path: Path) -> IndexedTable:
    made = IndexedTable.create(spark, tmp_path / "table", DDL, ["id"], ["dt"], buckets=2)
    made.upsert(spark.sql("select id, concat('2024-11-', 10 + id % 3) dt, 'x' v from range(90)"))
    return made


def rows(table: IndexedTable) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in table.read().collect())


def counts(table: IndexedTable) -> dict[str, int | None]:
    return {path: info.buckets for path, info in table.partitions.items()}


def test_a_plan_lists_what_changes_with_counts_files_and_bytes_and_changes_nothing(table: IndexedTable) -> None:
    plan = table.rescale(buckets=2, bucket_expressions=f"{BUSY},5", plan_only=True)

    (change,) = plan.partitions
    files = table._state.files(DATA_TREE, "dt=2024-11-11")
    assert (change.partition, change.from_buckets, change.to_buckets) == ("dt=2024-11-11", 2, 5)
    assert (plan.files, plan.bytes, plan.unchanged) == (len(files), sum(file.bytes for file in files), 2)
    assert plan.to_dict()["partitions"][0]["to_buckets"] == 5
    assert table.version == 1


def test_only_partitions_whose_count_changes_are_written_anew_and_rows_stay(spark: Any, table: IndexedTable) -> None:
    table.delete("id < 9")
    before, files = rows(table), {file.path for file in table._state.files(DATA_TREE)}

    receipt = table.rescale(bucket_expressions=f"{BUSY},5;dt=2024,2")

    assert rows(table) == before
    assert counts(table) == {"dt=2024-11-10": 2, "dt=2024-11-11": 5, "dt=2024-11-12": 2}
    kept = {file.path for file in table._state.files(DATA_TREE) if file.partition != "dt=2024-11-11"}
    assert kept <= files
    assert receipt.metrics["partitions"] == 1
    assert [entry.operation for entry in table.history()][-2:] == ["open_window", "rescale"]
    loaded = IndexedTable.load(spark, table.uri)
    assert loaded.history()[-1].operation == "close_window"
    assert loaded._state.windows == {}
    # New partitions are counted by the new rules, and the file for people says so.
    table.upsert(spark.sql("select 1L id, '2025-11-11' dt, 'x' v"))
    assert counts(table)["dt=2025-11-11"] == 5
    text = table._handle.timeline.store.get(table._state.config_paths[table._state.configs[-1].instant]).decode()
    assert HashingConfig.from_json(text).count_for("dt=2031-11-11") == 5


def test_nothing_to_rescale_commits_nothing(table: IndexedTable) -> None:
    assert table.rescale(buckets=2).version is None
    assert table.version == 1


def test_rules_that_change_no_partition_are_kept_for_new_ones(spark: Any, table: IndexedTable) -> None:
    assert table.rescale(bucket_expressions="dt=2030,7").metrics["partitions"] == 0

    table.upsert(spark.sql("select 1L id, '2030-01-01' dt, 'x' v"))
    assert counts(table)["dt=2030-01-01"] == 7


def test_partitions_named_are_the_only_ones_rescaled(table: IndexedTable) -> None:
    table.rescale(buckets=3, partitions=["dt=2024-11-10"])

    assert counts(table) == {"dt=2024-11-10": 3, "dt=2024-11-11": 2, "dt=2024-11-12": 2}


def test_inside_a_given_window_other_writers_are_refused_and_it_stays_open(spark: Any, table: IndexedTable) -> None:
    other = IndexedTable.load(spark, table.uri)
    window = table.open_window("me", partitions=["dt=2024-11-11"])
    busy = spark.sql("select 1L id, '2024-11-11' dt, 'y' v")

    with pytest.raises(errors.StopWriteWindowOpen, match="me holds"):
        other.upsert(busy)
    table.rescale(bucket_expressions=f"{BUSY},4", window=window.epoch)
    with pytest.raises(errors.StopWriteWindowOpen, match="me holds"):
        other.upsert(busy)
    table.close_window(window.epoch)

    assert other.upsert(busy).version is not None
    assert (1, "2024-11-11", "y") in rows(other)


def test_windows_that_do_not_fit_are_refused(spark: Any, table: IndexedTable) -> None:
    rules = {"bucket_expressions": f"{BUSY},4"}
    theirs = IndexedTable.load(spark, table.uri).open_window("them", partitions=["dt=2024-11-10"])

    with pytest.raises(errors.StopWriteWindowOpen, match="outside"):
        table.rescale(**rules, window=theirs.epoch)
    with pytest.raises(errors.StopWriteWindowOpen, match="them holds"):
        table.rescale(buckets=9)
    with pytest.raises(errors.WindowNotOpen, match="not that of an open"):
        table.rescale(**rules, window=1)
    with pytest.raises(errors.StopWriteWindowOpen):
        table.open_window("me")
    table.close_window(theirs.epoch)
    with pytest.raises(errors.WindowNotOpen):
        table.close_window(theirs.epoch)
    with pytest.raises(errors.FencedOff, match="closed"):
        table.upsert(spark.sql("select 1L id, '2024-11-10' dt, 'y' v"), window=theirs.epoch)
    assert counts(table)["dt=2024-11-11"] == 2


def test_a_writer_from_before_the_window_is_waited_for_and_then_refused(spark: Any, table: IndexedTable) -> None:
    sleeper = begin(IndexedTable.load(spark, table.uri)._handle.timeline, operation="upsert")

    with pytest.raises(errors.DrainTimeout, match=sleeper.txn_id):
        table.rescale(buckets=4, drain_seconds=0.2)

    assert IndexedTable.load(spark, table.uri)._state.windows == {}
    sleeper.abort("gone")
    assert table.rescale(buckets=4, drain_seconds=0.2).version is not None


def test_a_retry_under_the_same_id_gets_the_same_receipt_without_a_window(spark: Any, table: IndexedTable) -> None:
    first = table.rescale(buckets=4, txn_id="scale-up")
    version = IndexedTable.load(spark, table.uri).version

    assert table.rescale(buckets=4, txn_id="scale-up") == first
    assert IndexedTable.load(spark, table.uri).version == version


def test_a_rescale_that_fails_closes_its_window(spark: Any, table: IndexedTable, monkeypatch: Any) -> None:
    monkeypatch.setattr(Rescale, "work", lambda self, attempt: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        table.rescale(buckets=4)

    assert IndexedTable.load(spark, table.uri)._state.windows == {}


BAD_RULES = [
    ({"buckets": 0}, "0"),
    ({"buckets": -1}, "-1"),
    ({"bucket_expressions": "(unclosed,4"}, "unclosed"),
    ({"bucket_expressions": "no count"}, "no count"),
    ({"bucket_expressions": "a,0"}, "0"),
    ({"bucket_rule": "range", "bucket_expressions": "a,1"}, "range"),
]


@pytest.mark.parametrize(("rules", "said"), BAD_RULES, ids=lambda value: str(value))
def test_bad_rules_are_refused_when_given(table: IndexedTable, rules: dict[str, Any], said: str) -> None:
    with pytest.raises(errors.InvalidRule, match=said) as raised:
        table.rescale(**rules)
    assert "Nothing was changed" in str(raised.value)
    assert table.version == 1


def test_a_pattern_that_would_backtrack_for_ever_is_refused_or_quick(table: IndexedTable) -> None:
    try:
        plan = table.rescale(bucket_expressions=r"(2|2)*(\d|\d\d)*z$,4", plan_only=True)
    except errors.InvalidRule:
        return
    assert plan.partitions == ()
