"""Operators that begin, commit and roll back a transaction of several tasks.

They commit from the worker; no Spark is started for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from airflow_provider_index.arguments import (
    declares_arguments,
    epoch,
    mapping,
    some_texts,
)
from airflow_provider_index.compat import AirflowFailException
from airflow_provider_index.identity import id_of_task, prefix_of_task
from airflow_provider_index.operators.base import TableOperator, end_attempts
from airflow_provider_index.operators.staged import BEGIN_AGAIN, check_windows, resumed, transaction_of
from spark_apps.storage.errors import AlreadyCommitted, BucketCountMismatch, ConcurrentWrite, InvalidInput
from spark_apps.timeline.operations import TRANSACTION

if TYPE_CHECKING:
    from spark_apps.timeline.log import Timeline
    from spark_apps.timeline.model import Receipt, Requested, Scope

PATIENCE = 6 * 3600.0
"""Seconds that may pass between two signs of life of a transaction of tasks, the time in queues included."""

OPERATION = TRANSACTION.name


class BeginTransactionOperator(TableOperator):
    """Begins a transaction whose stages are other tasks. They work on the version of this moment.

    ::

        BeginTransactionOperator(
            task_id="begin", table="shop.orders", stages=["load", "by_city"], partitions=["dt=2026-11-11"]
        )

    :param stages: the names of the stages; the commit needs all of them.
    :param partitions: the partitions that the stages write, as paths; any by default. A drain of writers in other
        partitions then leaves the transaction alone, and a stage that writes elsewhere is refused.
    :param window: epoch of the stop-write window in which the work is done.
    :param patience: seconds without a sign of life after which the transaction counts as dead. A running stage writes
        signs of life; between the stages, while tasks wait for a slot, there are none.

    Returns ``{"txn_id", "attempt", "base"}``, for the operators' ``transaction``. A retry finds the attempt that its
    first try began. A cleared task begins another transaction and ends the earlier one by a commit.
    """

    @declares_arguments
    def __init__(
        self,
        *,
        stages: Sequence[str] = (),
        partitions: Annotated[Sequence[str] | None, some_texts] = None,
        window: Annotated[int | str | None, epoch] = None,
        patience: float = PATIENCE,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)

    def inputs(self) -> dict[str, Any]:
        return {
            **super().inputs(),
            "begin": list(self.stages),
            "partitions": self.partitions,
            "window": self.window,
        }

    def work(self, context: Mapping[str, Any]) -> dict[str, Any]:
        from spark_apps.timeline.transactions import begin, live_attempts_of, read_requested

        if not self.stages:
            raise InvalidInput("A transaction without a stage has nothing to commit.", hint="Name its stages.")
        timeline = self.hook.timeline(self.table)
        txn_id = id_of_task(context, self.inputs())
        end_attempts(timeline, prefix_of_task(context), "begun anew", self.log, but=txn_id)
        for attempt in live_attempts_of(timeline, txn_id):
            self.log.info("Transaction %s, attempt %s, was begun by an earlier try.", txn_id, attempt)
            return _handed_on(read_requested(timeline, txn_id, attempt))
        scopes = self._scopes(timeline)
        check_windows(timeline, OPERATION, txn_id, self.window, scopes)
        transaction = begin(
            timeline,
            operation=OPERATION,
            txn_id=txn_id,
            stages=self.stages,
            scopes=scopes,
            window=self.window,
            patience=self.patience,
        )
        self.log.info(
            "Began transaction %s, attempt %s, on version %s.", txn_id, transaction.attempt, transaction.base.version
        )
        return _handed_on(transaction.requested)

    def _scopes(self, timeline: Timeline) -> list[Scope] | None:
        from airflow_provider_index.conditions import paths_of
        from spark_apps.timeline.model import partition_scope

        paths = paths_of(timeline, self.partitions)
        return None if paths is None else [partition_scope(path) for path in paths]


class _OfTransaction(TableOperator):
    @declares_arguments
    def __init__(self, *, transaction: Annotated[Any | None, mapping], **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def inputs(self) -> dict[str, Any]:
        return {**super().inputs(), "transaction": self.transaction}


class CommitTransactionOperator(_OfTransaction):
    """Publishes all stages of a transaction in one commit, and returns its receipt. A retry finds that commit.

    ::

        CommitTransactionOperator(task_id="commit", table="shop.orders", transaction=begin.output)

    :param transaction: what :class:`BeginTransactionOperator` returned.
    """

    @declares_arguments
    def __init__(self, *, transaction: Annotated[Any, mapping], **kwargs: Any) -> None:
        super().__init__(transaction=transaction, **kwargs)

    def work(self, context: Mapping[str, Any]) -> dict[str, Any]:
        from spark_apps.timeline.transactions import find_receipt

        txn_id, attempt = transaction_of(self.transaction)
        timeline = self.hook.timeline(self.table)
        receipt = find_receipt(timeline, txn_id)
        if receipt is None:
            receipt = self._commit(timeline, txn_id, attempt)
        self.log.info("Version %s: %s %s", receipt.version, receipt.operation, receipt.metrics)
        built: dict[str, Any] = receipt.to_dict()
        return built

    def _commit(self, timeline: Timeline, txn_id: str, attempt: int) -> Receipt:
        try:
            return resumed(timeline, txn_id, attempt).commit()
        except AlreadyCommitted as error:
            receipt: Receipt = error.receipt
            return receipt
        except (ConcurrentWrite, BucketCountMismatch) as error:
            self.report_error(error)
            # The stages' work is of a version that another commit has gone past; to commit it again cannot help.
            what = f"{type(error).__name__}: {error.message} {error.outcome} {BEGIN_AGAIN}"
            raise AirflowFailException(what) from error


class RollBackTransactionOperator(_OfTransaction):
    """Ends, by a commit, a transaction that has not committed; nothing of it can be published afterwards.

    A transaction that has committed is left as it is, so this can be a teardown.

    ::

        RollBackTransactionOperator(task_id="roll_back", table="shop.orders", transaction=begin.output)

    :param transaction: what :class:`BeginTransactionOperator` returned.
    """

    def work(self, context: Mapping[str, Any]) -> None:
        from spark_apps.timeline.transactions import abort

        if not self.transaction:
            self.log.info("No transaction was begun.")
            return
        txn_id, attempt = transaction_of(self.transaction)
        timeline = self.hook.timeline(self.table)
        try:
            abort(timeline, txn_id, attempt, "rolled back")
        except AlreadyCommitted as error:
            self.log.info("Transaction %s has committed version %s.", txn_id, error.receipt.version)
            return
        self.log.info("Rolled transaction %s back (attempt %s); nothing of it was published.", txn_id, attempt)


def _handed_on(requested: Requested) -> dict[str, Any]:
    return {"txn_id": requested.txn_id, "attempt": requested.attempt, "base": requested.base}
