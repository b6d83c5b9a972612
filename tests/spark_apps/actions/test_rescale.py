"""Rescale: the plan, the counts by rule, the same rows, and the stop-write window around it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fastavro
import pytest

from spark_apps import IndexedTable
from spark_apps.actions.rescale import Rescale
from spark_apps.actions.write import Upsert
from spark_apps.jobs.job import Job
from spark_apps.layout.rules import HashingConfig
from spark_apps.programs.rescale_buckets import rescale_buckets
from spark_apps.programs.write_table import write_table
from spark_apps.storage import errors
from spark_apps.timeline.model import DATA_TREE
from spark_apps.timeline.transactions import begin
from tests.spark_apps.small_tables import Prepared, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(8)]

DDL = "id bigint, dt string, v string"
DAYS = ("dt=2024-11-10", "dt=2024-11-11", "dt=2024-11-12")
BUSY = r"dt=\d{4}-11-11"


def build(spark: Any, folder: Path) -> None:
    made = IndexedTable.create(spark, folder, DDL, ["id"], ["dt"], buckets=2)
    made.upsert(spark.sql("select id, concat('2024-11-', 10 + id % 3) dt, 'x' v from range(90)"))


@pytest.fixture
def table(prepared: Prepared) -> IndexedTable:
    return prepared(build)


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
    before, files = rows_of(table), {file.path for file in table._state.files(DATA_TREE)}

    receipt = table.rescale(bucket_expressions=f"{BUSY},5;dt=2024,2")

    assert rows_of(table) == before
    assert counts(table) == {"dt=2024-11-10": 2, "dt=2024-11-11": 5, "dt=2024-11-12": 2}
    kept = {file.path for file in table._state.files(DATA_TREE) if file.partition != "dt=2024-11-11"}
    assert kept <= files
    assert receipt.metrics["partitions"] == 1
    assert [entry.operation for entry in table.history()][-2:] == ["open_window", "rescale"]
    loaded = IndexedTable.load(spark, table.uri)
    assert loaded.history()[-1].operation == "close_window"
    assert loaded._state.windows == {}
    # New partitions are counted by the new rules, and the files for people say so.
    table.upsert(spark.sql("select 1L id, '2025-11-11' dt, 'x' v"))
    assert counts(table)["dt=2025-11-11"] == 5
    files = {
        suffix: sorted(Path(table.uri).glob(f"_index/hashing/*/*.hashing_{suffix}")) for suffix in ("config", "meta")
    }
    assert HashingConfig.from_json(files["config"][-1].read_text()).count_for("dt=2031-11-11") == 5
    with files["meta"][-1].open("rb") as opened:
        (hashing_meta,) = fastavro.reader(opened)
    assert {path: info["bucketNumber"] for path, info in hashing_meta["partitionMeta"].items()} == counts(table)


def test_nothing_to_rescale_commits_nothing(table: IndexedTable) -> None:
    assert table.rescale(buckets=2).version is None
    assert table.version == 1


def test_rules_for_partitions_to_come_rewrite_nothing_and_open_no_window(spark: Any, table: IndexedTable) -> None:
    """So a table made with one plain count becomes partition-level."""
    files = {file.path for file in table._state.files(DATA_TREE)}
    window = table.open_window("somebody else", partitions=["dt=2024-11-11"])

    assert table.rescale(add="dt=2030,7").metrics["partitions"] == 0

    assert {file.path for file in table._state.files(DATA_TREE)} == files
    assert [entry.operation for entry in table.history()][-2:] == ["open_window", "rescale"]
    table.close_window(window.epoch)
    table.upsert(spark.sql("select 1L id, '2030-01-01' dt, 'x' v"))
    assert counts(table) == {**dict.fromkeys(DAYS, 2), "dt=2030-01-01": 7}


def test_rules_are_added_before_the_others_overwritten_and_shown(spark: Any, table: IndexedTable) -> None:
    table.rescale(bucket_expressions=[(r"dt=\d{4}-11-1[1,2;]", 5)])
    assert counts(table) == dict(zip(DAYS, (2, 5, 5), strict=True))
    table.rescale(add=[("-11-12", 3)], buckets=4)
    assert counts(table) == dict(zip(DAYS, (4, 5, 3), strict=True))
    newest, before, first = table.bucket_rules()
    assert (newest.expressions, newest.default) == ("-11-12,3", 4)
    assert (before.expressions, before.default) == (r"dt=\d{4}-11-1[1,2\;],5", 2)
    assert before.rules == ((r"dt=\d{4}-11-1[1,2;]", 5),)
    assert (first.rules, first.instant) == ((), "0" * 17)

    plan = table.rescale(1, "range", "2024-11-10 <= dt < 2024-11-12,6", plan_only=True)
    assert [(p.partition, p.from_buckets, p.to_buckets) for p in plan.partitions] == [(DAYS[0], 4, 6), (DAYS[1], 5, 6)]
    assert plan.estimated_seconds > 0 and plan.estimated_from == "12 MB/s on a core"


def test_a_rollback_gives_partitions_the_counts_from_before_and_keeps_rows_written_since(
    spark: Any, table: IndexedTable
) -> None:
    table.rescale(buckets=3, partitions=[DAYS[0]])
    table.rescale(add=f"{BUSY},5")
    named = table.bucket_rules()[0].instant
    table.rescale(add="-11-12,7")
    table.upsert(spark.sql("select id, '2025-11-11' dt, 'y' v from range(200, 220)"))
    before = rows_of(table)
    assert counts(table) == {**dict(zip(DAYS, (3, 5, 7), strict=True)), "dt=2025-11-11": 5}

    plan = table.rollback_rescale(named, plan_only=True)
    assert {p.partition: (p.from_buckets, p.to_buckets) for p in plan.partitions} == {
        DAYS[1]: (5, 2),
        "dt=2025-11-11": (5, 3),
    }
    first = table.rollback_rescale(named, txn_id="back")
    assert counts(table) == {**dict(zip(DAYS, (3, 2, 7), strict=True)), "dt=2025-11-11": 3}
    assert table.rollback_rescale(named, txn_id="back") == first
    with pytest.raises(errors.InvalidRule, match="no change of the bucket rules"):
        table.rollback_rescale(named)
    table.rollback_rescale()
    assert counts(table) == {**dict(zip(DAYS, (3, 2, 3), strict=True)), "dt=2025-11-11": 3}
    assert rows_of(table) == before
    assert [rules.default for rules in table.bucket_rules()] == [3, 2]
    table.rollback_rescale()
    with pytest.raises(errors.InvalidRule, match="made with"):
        table.rollback_rescale()


def test_versions_of_their_time_keep_their_counts_and_rules(spark: Any, table: IndexedTable) -> None:
    before = rows_of(table)
    versions = {}
    for count in (3, 4, 5, 6, 7, 8):
        versions[table.rescale(buckets=count, partitions=[DAYS[0]]).version] = count
    assert len(list(Path(table.uri).glob("_index/hashing/archive/config/*"))) == 2
    for version, count in versions.items():
        then = IndexedTable.load(spark, table.uri, version=version)
        assert (counts(then)[DAYS[0]], then.bucket_rules()[0].default) == (count, count)
    old = IndexedTable.load(spark, table.uri, version=min(versions))
    assert rows_of(old) == before
    assert [row.v for row in old.read(where="id = 3 and dt = '2024-11-10'").collect()] == ["x"]


def test_of_two_writers_with_different_rules_for_one_partition_one_hears_both_counts(
    spark: Any, table: IndexedTable, monkeypatch: Any
) -> None:
    slow, quick = (IndexedTable.load(spark, table.uri) for _ in range(2))
    new = spark.sql("select 1L id, '2030-01-01' dt, 'x' v")
    work = Upsert.work

    def overtaken(self: Upsert, attempt: Any) -> Any:
        staged = work(self, attempt)
        monkeypatch.setattr(Upsert, "work", work)
        quick.rescale(add="dt=2030,7")
        quick.upsert(new)
        return staged

    monkeypatch.setattr(Upsert, "work", overtaken)
    with pytest.raises(errors.BucketCountMismatch, match=r"with 7 buckets.*with 2\."):
        slow.upsert(new)
    assert slow.upsert(new).version is not None
    assert counts(slow)["dt=2030-01-01"] == 7


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
    assert (1, "2024-11-11", "y") in rows_of(other)


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


def test_a_retry_does_not_wait_for_the_try_of_its_own_that_died(spark: Any, table: IndexedTable) -> None:
    died = begin(IndexedTable.load(spark, table.uri)._handle.timeline, operation="rescale", txn_id="once")

    receipt = table.rescale(buckets=3, txn_id="once", drain_seconds=0)

    assert table._state.is_aborted("once", died.attempt) and receipt.txn_id == "once"
    assert set(counts(table).values()) == {3}


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


@pytest.mark.by_turn(1)
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
    ({"bucket_rule": "range", "bucket_expressions": "day < 2024-11-12,4"}, "no partition column"),
    ({"bucket_rule": "glob", "bucket_expressions": "a,1"}, "glob"),
    ({"bucket_rule": "range"}, "without rules"),
    ({"bucket_expressions": [("a", 0)]}, "0"),
    ({"add": "a,100001"}, "100001"),
    ({"add": ""}, "no rules to add"),
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


def test_the_programs_take_rules_as_json_and_refuse_those_of_a_writer(spark: Any, table: IndexedTable) -> None:
    def outcome_of(arguments: dict[str, Any], **fields: Any) -> Any:
        return rescale_buckets(spark, Job("rescale_buckets", table.uri, arguments, **fields))

    pairs = [["2024-11-11 <= dt < 2024-11-12", 5]]
    plan = outcome_of({"bucket_rule": "range", "bucket_expressions": pairs, "buckets": None}, plan_only=True).value
    assert [(p["partition"], p["to_buckets"]) for p in plan["partitions"]] == [(DAYS[1], 5)]
    assert outcome_of({"bucket_rule": "range", "bucket_expressions": pairs}, txn_id="up").metrics["partitions"] == 1
    changed = IndexedTable.load(spark, table.uri)
    assert counts(changed) == dict(zip(DAYS, (2, 5, 2), strict=True))

    create = {"schema": DDL, "record_key": ["id"], "partition_by": ["dt"], "buckets": 2}
    rows_of_one = "select 1L id, '2024-11-11' dt, 'z' v"
    batches = {"batches": [{"operation": "upsert", "sql": rows_of_one}]}
    write_table(spark, Job("write_table", table.uri, {**batches, "create": create}))
    with pytest.raises(errors.InvalidRule, match=r"the writer brings .* and 3 buckets"):
        write_table(spark, Job("write_table", table.uri, {**batches, "create": {**create, "buckets": 3}}))

    instant = changed.bucket_rules()[0].instant
    assert outcome_of({"rollback": True}, plan_only=True).value["takes_back"] == instant
    assert outcome_of({"rollback": instant}).metrics["partitions"] == 1
    assert counts(IndexedTable.load(spark, table.uri)) == dict.fromkeys(DAYS, 2)
