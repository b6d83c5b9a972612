"""What the tasks of a transaction do when they are retried, cleared, rolled back, or meet each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_index.compat import AirflowFailException
from airflow_provider_index.operators import (
    BeginTransactionOperator,
    BucketRescaleOperator,
    CommitTransactionOperator,
    RefreshIndexOperator,
    RollBackTransactionOperator,
    WriteTableOperator,
)
from spark_apps.storage.errors import AttemptAborted, InvalidInput, StopWriteWindowOpen
from spark_apps.timeline import windows
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import DATA_TREE
from spark_apps.timeline.transactions import Transaction, abort, resume
from tests.airflow_provider_index.operators.plain_table import Memory, context, make_table, stage_rows


@pytest.fixture
def table(tmp_path: Path) -> Timeline:
    return make_table(tmp_path / "t")


def begin(table: Timeline, *, task: str = "begin", tries: int = 0, **fields: Any) -> dict[str, Any]:
    operator = BeginTransactionOperator(task_id=task, table=table.store.uri, **{"stages": ["one", "two"], **fields})
    begun: dict[str, Any] = operator.execute(context(task, tries=tries))
    return begun


def commit(table: Timeline, txn: dict[str, Any]) -> Any:
    operator = CommitTransactionOperator(task_id="commit", table=table.store.uri, transaction=txn)
    return operator.execute(context("commit"))


def roll_back(table: Timeline, txn: Any) -> None:
    operator = RollBackTransactionOperator(task_id="roll_back", table=table.store.uri, transaction=txn)
    operator.execute(context("roll_back"))


def resumed(table: Timeline, txn: dict[str, Any]) -> Transaction:
    return resume(Timeline.load(table.store), txn["txn_id"], txn["attempt"])


def stage_both(table: Timeline, txn: dict[str, Any], *partitions: str) -> None:
    for stage, partition in zip(("one", "two"), partitions or ("p=a", "p=b"), strict=True):
        stage_rows(resumed(table, txn), stage, partition)


def partitions(table: Timeline) -> set[str]:
    return {file.partition for file in Timeline.load(table.store).head.files(DATA_TREE)}


def test_given_two_stages_when_committed_then_one_version_has_both_and_a_retry_finds_it(table: Timeline) -> None:
    txn = begin(table)
    stage_both(table, txn)
    assert partitions(table) == set()

    receipt = commit(table, txn)

    assert partitions(table) == {"p=a", "p=b"}
    assert commit(table, txn) == receipt
    roll_back(table, txn)
    assert partitions(table) == {"p=a", "p=b"}
    alone = WriteTableOperator(task_id="one", table=table.store.uri, sql="SELECT 1", transaction=txn)
    with pytest.raises(AirflowFailException, match=r"TransactionEnded.*has committed, as version.*begins anew"):
        alone.execute(context("one", tries=1))


def test_given_a_missing_stage_when_committed_then_nothing_is_published_and_it_is_named(table: Timeline) -> None:
    txn = begin(table)
    stage_rows(resumed(table, txn), "one", "p=a")

    with pytest.raises(
        AirflowFailException, match=r"StageMismatch.*'two' .* was not staged.*clear the task that began"
    ):
        commit(table, txn)

    assert partitions(table) == set()


def test_given_a_roll_back_when_a_stage_or_the_commit_goes_on_then_it_is_told_to_begin_again(table: Timeline) -> None:
    txn = begin(table)
    stage_both(table, txn)
    roll_back(table, txn)
    roll_back(table, txn)

    with pytest.raises(AirflowFailException, match=r"TransactionEnded.*Nothing was changed.*begins anew"):
        commit(table, txn)
    write = WriteTableOperator(task_id="one", table=table.store.uri, sql="SELECT 1", transaction=txn)
    with pytest.raises(AirflowFailException, match="begins anew"):
        write.execute(context("one"))
    assert partitions(table) == set()


def test_an_app_is_told_the_number_of_its_try_which_makes_no_other_work_of_it(table: Timeline) -> None:
    txn = begin(table)
    write = WriteTableOperator(task_id="one", table=table.store.uri, sql="SELECT 1", transaction=txn)
    third = context("one")
    third["ti"].try_number = 3

    assert write.job(third, "key").transaction == {**write.stage_argument("key"), "number": 3}
    assert "number" not in write.inputs()["transaction"]


@pytest.mark.parametrize("nothing", [None, "", {}])
def test_given_nothing_begun_when_rolled_back_then_there_is_nothing_to_do(table: Timeline, nothing: Any) -> None:
    txn = begin(table)
    stage_both(table, txn)
    before = Timeline.load(table.store).head.version

    roll_back(table, nothing)

    assert Timeline.load(table.store).head.version == before, "no abort was committed"
    assert commit(table, txn)["version"] == before + 1


def test_a_retry_of_begin_finds_its_attempt_and_a_clear_begins_another_and_ends_the_first(table: Timeline) -> None:
    first = begin(table)
    assert begin(table) == first

    second = begin(table, tries=1)

    assert second["txn_id"] != first["txn_id"]
    with pytest.raises(AttemptAborted):
        resumed(table, first)
    stage_both(table, second)
    committed = commit(table, second)
    third = begin(table, tries=2)
    assert third["txn_id"] != second["txn_id"]
    assert third["base"] == committed["version"]


def test_two_transactions_on_other_partitions_go_on_at_once_and_on_one_the_later_commit_is_refused(
    table: Timeline,
) -> None:
    one, other, late = (begin(table, task=name) for name in "abc")
    stage_both(table, one)
    stage_both(table, other, "p=c", "p=d")
    stage_rows(resumed(table, late), "one", "p=b", reads=[])
    from spark_apps.timeline.model import group_scope

    transaction = resumed(table, late)
    transaction.stage("two", (), reads=[group_scope("p=b", "0")])
    commit(table, other)
    commit(table, one)

    with pytest.raises(AirflowFailException, match=r"ConcurrentWrite.*Nothing was changed.*begins anew"):
        commit(table, late)
    assert partitions(table) == {"p=a", "p=b", "p=c", "p=d"}


def test_a_transaction_waits_out_its_patience_before_it_is_taken_for_dead(table: Timeline) -> None:
    txn = begin(table, patience=7200)
    elsewhere = begin(table, task="other", patience=7200, partitions=["p=z"])
    now = table.clock()
    epoch = windows.open_window(table, "rescale", partitions=["p=a"]).epoch
    later = Timeline(table.store, lambda: now + 3600)
    assert [request.txn_id for request in windows.undrained(later, epoch)] == [txn["txn_id"]]
    with pytest.raises(Exception, match="still at work"):
        windows.drain(later, epoch, seconds=0, silent_seconds=60)

    much_later = Timeline(table.store, lambda: now + 7300)
    assert windows.drain(much_later, epoch, seconds=0, silent_seconds=60) == 1
    with pytest.raises(AttemptAborted):
        resumed(table, txn)
    resumed(table, elsewhere)


def test_a_transaction_in_a_window_commits_there_and_others_cannot_begin(table: Timeline) -> None:
    window = windows.open_window(table, "load", seconds=100)
    with pytest.raises(StopWriteWindowOpen, match=r"load holds a stop-write window over the whole table .* until"):
        begin(table)

    txn = begin(table, window=window.epoch)
    stage_both(table, txn)
    commit(table, txn)

    assert partitions(table) == {"p=a", "p=b"}


def test_what_cannot_be_a_stage_is_refused_before_anything_runs(table: Timeline) -> None:
    txn = begin(table)
    where = {"table": table.store.uri, "transaction": txn}
    refused = [
        (BucketRescaleOperator(task_id="one", buckets=2, **where), "cannot be a stage"),
        (WriteTableOperator(task_id="one", sql="a", batches=[{}], **where), "is one write"),
        (WriteTableOperator(task_id="one", sql="a", after=["two"], **where), "cannot be made from other stages"),
        (WriteTableOperator(task_id="one", sql="a", table="/t", leave_indexes=["i"]), "left to others only"),
    ]
    for operator, why in refused:
        with pytest.raises((AirflowFailException, InvalidInput), match=why):
            operator.execute(context("one"))


def test_given_a_stage_of_the_same_inputs_when_its_task_runs_again_then_it_is_not_staged_again(
    table: Timeline,
) -> None:
    txn = begin(table)
    memory = Memory()
    operator = RefreshIndexOperator(task_id="two", table=table.store.uri, index="i", transaction=txn, after=["one"])
    from airflow_provider_index.identity import transaction_id

    key = transaction_id(context("two", memory=memory), operator.inputs)
    first = stage_rows(resumed(table, txn), "one", "p=a")
    assert operator.staged_already(key) is None
    transaction = resumed(table, txn)
    staged = transaction.stage("two", (), made_from={"one": first}, inputs=key, token=transaction.claim("two"))

    assert operator.execute(context("two", memory=memory))["metrics"] == {"stage": "two", "staged": staged}
    stage_rows(resumed(table, txn), "one", "p=a")
    assert operator.staged_already(key) is None, "stage one was tried again since"


def test_an_abort_that_races_with_the_commit_leaves_all_or_nothing(table: Timeline) -> None:
    txn = begin(table)
    stage_both(table, txn)
    transaction = resumed(table, txn)
    abort(Timeline.load(table.store), txn["txn_id"], txn["attempt"], "raced")

    with pytest.raises(AttemptAborted):
        transaction.commit()
    assert partitions(table) == set()
