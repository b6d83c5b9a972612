"""Progress: what this process is doing right now, and the attempts it works on.

Actions write it, a reporter of the app reads it; neither knows the other. Without a reporter nothing happens.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from spark_apps.timeline.field_types import Count, FolderTxnId, Label
from spark_apps.timeline.transactions import Transaction

Now = tuple[str, int | None, int | None]
"""Phase, how much of it is done, and of how much."""


class BegunAttempt(msgspec.Struct, frozen=True):
    """An attempt that the app began: of which transaction, in which table's log."""

    log: Label
    txn_id: FolderTxnId
    attempt: Count


@dataclass(frozen=True)
class AttemptInProgress:
    """An attempt that is worked on.

    :param base: the version it began from.
    :param shared: other jobs work on it too; it is not ended with this one.
    """

    attempt: BegunAttempt
    base: int
    shared: bool = False


class Progress:
    """The phase and the attempts of this process. Safe to use from several threads.

    :ivar begun: called with every attempt before work on it begins; an error of it ends the attempt's work.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now: Now = ("", None, None)
        self._in_progress: list[AttemptInProgress] = []
        self.begun: Callable[[Transaction, bool], None] | None = None

    def phase(self, name: str, done: int | None = None, total: int | None = None) -> None:
        """Set the phase of the work."""
        with self._lock:
            self._now = (name, done, total)

    def now(self) -> Now:
        """Return the phase of the work, and how far it is."""
        with self._lock:
            return self._now

    def hold(self, transaction: Transaction, *, shared: bool = False) -> None:
        """Note that work on an attempt begins.

        :param shared: other jobs work on the attempt too; it is not ended with this one.
        :raises AttemptAborted: if the job was cancelled meanwhile; the attempt has been ended.
        """
        if self.begun is not None:
            self.begun(transaction, shared)
        with self._lock:
            self._in_progress.append(AttemptInProgress(_named(transaction), transaction.base.version, shared))

    def release(self, transaction: Transaction) -> None:
        """Note that work on an attempt has ended, whichever way."""
        one = _named(transaction)
        with self._lock:
            self._in_progress = [work for work in self._in_progress if work.attempt != one]

    def in_progress(self) -> list[AttemptInProgress]:
        """Return the attempts that are worked on."""
        with self._lock:
            return list(self._in_progress)


CURRENT = Progress()
"""Of this process."""


def _named(transaction: Transaction) -> BegunAttempt:
    return BegunAttempt(transaction.timeline.store.uri, transaction.txn_id, transaction.attempt)
