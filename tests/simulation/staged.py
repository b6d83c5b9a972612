"""A transaction as several tasks do it: each stage a process of its own that may be tried again, then one commit.

The index is brought in step with rows that nobody else can see, by the rules that the Spark side follows.
"""

from __future__ import annotations

from typing import Any

from spark_apps.timeline.model import DATA_TREE, AnyAction, MarkCovered, Receipt, group_scope
from spark_apps.timeline.stages import changed_groups, state_with_actions
from spark_apps.timeline.transactions import Transaction, abort, resume
from tests.simulation.checker import INDEX_TREE
from tests.simulation.reading import rows_of
from tests.simulation.work import Changes, Job, deltas, entry_files

PATIENCE = 50.0


def begin_tasks(job: Job, txn: str) -> Transaction:
    """The first task."""
    return job.begin("transaction", txn, stages=("rows", "index"), fence=True, patience=PATIENCE)


def rows_task(job: Job, transaction: Transaction, partition: str, changes: Changes) -> None:
    """Stages rows; another try of it writes into folders of its own."""
    transaction = resume(job.timeline, transaction.txn_id, transaction.attempt)
    token = transaction.claim("rows")
    actions, reads, writes = deltas(job, transaction, f"rows-{token}", partition, changes)
    transaction.check_alive()
    transaction.stage("rows", actions, reads=reads, writes=writes, token=token, operation="upsert")


def index_task(job: Job, transaction: Transaction, locks: bool = True) -> None:
    """Stages the entries of the staged rows, which it sees over the version that the transaction began from.

    :param locks: hold on to the file groups whose entries are staged, as it must.
    """
    transaction = resume(job.timeline, transaction.txn_id, transaction.attempt)
    rows, made_from = transaction.staged("rows")
    token = transaction.claim("index")
    state = state_with_actions(transaction.base, rows.actions, rows.writes, rows.maintained)
    touched = {partition for partition, _ in changed_groups(transaction.base, rows.actions)}
    lagging = sorted(group for group in state.index("by_key").lag if group[0] in touched)
    entries: dict[str, object] = {}
    for partition, group in lagging:
        there = rows_of(job.store, state, DATA_TREE, partition, group)
        entries |= {f"{partition}|{key}": None if value is None else True for key, value in there.items()}
    actions: list[AnyAction] = []
    writes: tuple[Any, ...] = ()
    if entries:
        actions, writes = entry_files(job, transaction, f"index-{token}", entries, None, "append")
    if lagging:
        actions = [*actions, MarkCovered(INDEX_TREE, None, groups=tuple(lagging))]
    transaction.check_alive()
    reads = [group_scope(*group) for group in lagging] if locks else []
    transaction.stage(
        "index", actions, reads=reads, writes=writes, made_from={"rows": made_from}, token=token, operation="refresh"
    )


def transaction_of_tasks(job: Job, txn: str, partition: str, changes: Changes, *, twice: bool = False) -> Receipt:
    """All tasks, one after the other; with ``twice`` the rows are staged a second time after the index, which is then
    made again."""
    transaction = begin_tasks(job, txn)
    for _ in range(2 if twice else 1):
        rows_task(job, transaction, partition, changes)
        index_task(job, transaction)
    transaction.heartbeat("commit")
    return resume(job.timeline, txn, transaction.attempt).commit()


def rolled_back(job: Job, txn: str, partition: str, changes: Changes) -> None:
    """Stages rows, and then the run fails: the teardown ends it."""
    transaction = begin_tasks(job, txn)
    rows_task(job, transaction, partition, changes)
    abort(job.timeline, txn, transaction.attempt, "rolled back")
