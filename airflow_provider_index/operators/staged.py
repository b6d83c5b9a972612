"""The part of a Spark operator that is about transactions of several tasks: it stages its work, another task commits.

A stage that was staged of the same inputs is not staged again. What ends the transaction is the transaction's own
tasks, so a stage that fails or is killed leaves it as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from spark_apps.storage.errors import (
    AlreadyCommitted,
    AttemptAborted,
    InvalidInput,
    JobFailed,
    StageMismatch,
    TransactionEnded,
)

if TYPE_CHECKING:
    from spark_apps.jobs.job import Outcome
    from spark_apps.timeline.log import Timeline
    from spark_apps.timeline.model import Scope, StageManifest
    from spark_apps.timeline.transactions import Transaction

_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")
BEGIN_AGAIN = "Clear the task that began the transaction with all that comes after it: it begins anew."


class InTransaction:
    """Makes the work of a Spark operator a stage of a transaction, where one is given.

    :param transaction: of several tasks, as :class:`~airflow_provider_index.operators.BeginTransactionOperator` returns
        it: the work is staged, and committed with its other stages.
    :param stage: the stage's name; the task's own name by default.
    :param after: stages that this one is made from, whose staged rows it sees; only for what brings an index up to
        date.
    """

    stageable: ClassVar[Literal["no", "rows", "alone", "after"]] = "no"
    """Whether the work can be a stage: rows, other work on what is committed, or work that may come after stages."""

    transaction: Any
    stage: str | None
    after: Sequence[str]

    if TYPE_CHECKING:
        log: Any
        program: str
        label: str

        def _timeline(self) -> Timeline | None: ...

    @property
    def stage_name(self) -> str:
        """The name of the operator's stage."""
        return self.stage or stage_name_of(self.label)

    @property
    def indexes_to_leave(self) -> Sequence[str]:
        """The indexes that the work leaves to other stages."""
        return ()

    def check_may_be_stage(self) -> None:
        """Check that the work can be a stage of a transaction.

        :raises InvalidInput: for work that cannot.
        """
        if self.stageable == "no":
            raise InvalidInput(
                f"{type(self).__name__} cannot be a stage of a transaction: it is a whole change of the table.",
                hint="Put the task before or after the transaction.",
            )
        if self.after and self.stageable != "after":
            raise InvalidInput(
                f"{type(self).__name__} cannot be made from other stages ({', '.join(self.after)}).",
                hint="Leave 'after' out; only what brings an index up to date can be.",
            )

    def stage_argument(self, key: str | None) -> dict[str, Any] | None:
        """Return the app's argument on the transaction; ``None`` outside of one.

        :param key: what the stage is made of beside other stages.
        """
        if self.transaction is None:
            return None
        self.check_may_be_stage()
        txn_id, attempt = transaction_of(self.transaction)
        return {
            "txn_id": txn_id,
            "attempt": attempt,
            "stage": self.stage_name,
            "after": list(self.after),
            "leave": list(self.indexes_to_leave),
            "inputs": key,
        }

    def attempt_argument(self, context: Mapping[str, Any], key: str) -> dict[str, Any] | None:
        """Return the stage's argument with the number of the task's try.

        So an app of an earlier try that wakes late stages nothing.
        """
        stage = self.stage_argument(key)
        return None if stage is None else {**stage, "number": context["ti"].try_number}

    def staged_already(self, key: str) -> Any:
        """Return what goes to XCom if the stage is staged; else ``None``.

        It counts as staged if it was made of these inputs and of the stages as they are now.

        :raises TransactionEnded: if the transaction was rolled back, or has committed.
        """
        self.check_may_be_stage()
        timeline = self._timeline()
        if timeline is None:
            return None
        txn_id, attempt = transaction_of(self.transaction)
        try:
            transaction = resumed(timeline, txn_id, attempt)
            manifest, hash_ = transaction.staged(self.stage_name)
            if manifest.inputs != key or not self._is_current(transaction, manifest):
                return None
        except AlreadyCommitted as error:
            # The commit comes after all stages, so this task was cleared, and the transaction was not begun anew.
            raise TransactionEnded(
                f"Transaction {txn_id} has committed, as version {error.receipt.version}: no stage can be added to it.",
                hint=BEGIN_AGAIN,
            ) from error
        except StageMismatch:
            return None
        self.log.info("Stage %r of transaction %s is staged: %s", self.stage_name, txn_id, manifest.metrics)
        metrics = {**manifest.metrics, "stage": self.stage_name, "staged": hash_}
        return {"version": None, "txn_id": txn_id, "attempt": attempt, "operation": manifest.operation,
                "metrics": metrics}  # fmt: skip

    def _is_current(self, transaction: Transaction, manifest: StageManifest) -> bool:
        made_from = manifest.made_from
        return set(self.after) <= made_from.keys() and all(
            transaction.staged(name)[1] == hash_ for name, hash_ in made_from.items()
        )

    def not_staged(self, outcome: Outcome) -> Any:
        """Fail the task of an app whose stage is not there.

        :raises JobFailed: of an app that answered and staged nothing.
        """
        raise JobFailed(
            f"The app {self.program} ended with a {outcome.kind}, and stage {self.stage_name!r} is not staged.",
            hint="See the app's lines above; a retry stages it again.",
        )


def stage_name_of(label: str) -> str:
    """Return a stage's name made of a task's."""
    name = _UNFIT.sub("-", label)[-64:]
    return name if name[:1].isalpha() or name[:1] == "_" else f"s-{name}"


def transaction_of(given: Any) -> tuple[str, int]:
    """Return id and attempt of a transaction that a task handed on.

    :raises InvalidInput: if it is none.
    """
    if isinstance(given, Mapping) and given.get("txn_id") and given.get("attempt"):
        return str(given["txn_id"]), int(given["attempt"])
    raise InvalidInput(
        f"{given!r} is not a transaction.", hint="Hand on what BeginTransactionOperator returned: begin.output."
    )


def check_windows(
    timeline: Timeline, operation: str, txn_id: str, epoch: int | None, scopes: Sequence[Scope] | None = None
) -> None:
    """Check before the work what its commit will check after it: the windows over what is to be written.

    :param epoch: of the window in which the work is done.
    :param scopes: what is written, where that is known; else a window over some partitions is left to the commit, which
        alone knows.
    :raises FencedOff: if the task's own window has ended.
    :raises StopWriteWindowOpen: if another writer holds a window there.
    """
    from spark_apps.timeline.commit import Intent
    from spark_apps.timeline.commit import check_windows as check
    from spark_apps.timeline.model import Write, table_scope

    if scopes is None and any(window.partitions is None for window in timeline.head.windows.values()):
        scopes = [table_scope()]
    writes = tuple(map(Write, scopes or ()))
    check(timeline.head, Intent(operation, txn_id, 0, timeline.head.version, (), writes=writes, epoch=epoch),
          timeline.clock())  # fmt: skip


def resumed(timeline: Timeline, txn_id: str, attempt: int) -> Transaction:
    """Return the transaction's attempt, for a task of it.

    :raises AlreadyCommitted: :raises TransactionEnded: saying how to go on.
    """
    from spark_apps.timeline.transactions import resume

    try:
        return resume(timeline, txn_id, attempt)
    except AttemptAborted as error:
        raise TransactionEnded(error.message, hint=BEGIN_AGAIN) from error
