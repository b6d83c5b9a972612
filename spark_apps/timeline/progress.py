"""What this process is doing right now, for whoever reports on it: the phase, and the attempts it holds.

Actions tell it, a reporter of the app reads it; neither knows the other. Without a reporter nothing happens.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from spark_apps.timeline.jobs import HeldAttempt
from spark_apps.timeline.transactions import Transaction

Now = tuple[str, int | None, int | None]
"""Phase, how much of it is done, and of how much."""


@dataclass(frozen=True)
class Held:
    """An attempt that is worked on.

    :param base: the version it began from.
    :param shared: other jobs work on it too; it is not ended with this one.
    """

    attempt: HeldAttempt
    base: int
    shared: bool = False


class Progress:
    """The phase and the attempts of this process. Safe to use from several threads.

    :ivar begun: called with every attempt before work on it begins; an error of it ends the attempt's work.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now: Now = ("", None, None)
        self._held: list[Held] = []
        self.begun: Callable[[Transaction, bool], None] | None = None

    def phase(self, name: str, done: int | None = None, total: int | None = None) -> None:
        """Says what is being done."""
        with self._lock:
            self._now = (name, done, total)

    def now(self) -> Now:
        """What is being done."""
        with self._lock:
            return self._now

    def hold(self, transaction: Transaction, *, shared: bool = False) -> None:
        """Says that work on an attempt begins.

        :param shared: other jobs work on the attempt too; it is not ended with this one.
        :raises AttemptAborted: the job was cancelled meanwhile; the attempt has been ended.
        """
        if self.begun is not None:
            self.begun(transaction, shared)
        with self._lock:
            self._held.append(Held(_named(transaction), transaction.base.version, shared))

    def release(self, transaction: Transaction) -> None:
        """Says that work on it has ended, whichever way."""
        one = _named(transaction)
        with self._lock:
            self._held = [held for held in self._held if held.attempt != one]

    def held(self) -> list[Held]:
        """The attempts that are worked on."""
        with self._lock:
            return list(self._held)


CURRENT = Progress()
"""Of this process."""


def _named(transaction: Transaction) -> HeldAttempt:
    return HeldAttempt(transaction.timeline.store.uri, transaction.txn_id, transaction.attempt)
