"""Program: does on a table what a maintenance plan chose for it, one piece of work after the other in one session.

Small tables share the session: they come one after the other. Each piece is a transaction of its own table under
``<txn id>.<number>``, counted through all tables, so a retry goes on behind the last one that landed. A piece that
fails does not keep the others from being done; one whose attempt is ended, or that comes after the end of the night,
is left to the next plan.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from spark_apps.engine.pyspark_names import spark_errors
from spark_apps.jobs.job import Job
from spark_apps.jobs.program import load_table, log, main, plain
from spark_apps.maintenance.native_calls import CALLS
from spark_apps.storage.errors import (
    AttemptAborted,
    AttemptReplaced,
    CommitUndone,
    ConcurrentWrite,
    InvalidInput,
    JobFailed,
    LakeIndexError,
    NotFound,
    StorageError,
    VerificationFailed,
)
from spark_apps.storage.store import Store
from spark_apps.timeline.maintenance_records import DoneWork, note_receipt, write_done
from spark_apps.timeline.model import Receipt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_apps.indexes.handler import VerificationReport
    from spark_apps.table import IndexedTable

TRIES = 4
"""So often a piece of work is begun when others commit in its way; then the task's own retries go on."""

_HOPELESS = (InvalidInput, NotFound, VerificationFailed)


def maintain_table(spark: SparkSession, job: Job) -> list[Receipt]:
    """Do ``steps`` in their order: mappings with ``kind``, ``index``, ``mode``, ``bytes`` and ``options``.

    Then those of ``more_tables``: mappings with ``table`` and ``steps``.

    :returns: a receipt a step. Those without a commit have no version: a verification, work that there was nothing to
        do for, and work that was left (``metrics`` then has ``left``, a sentence).
    :raises LakeIndexError: at the end, if a step failed.
    """
    more = job.arguments.get("more_tables") or []
    tally = _Tally(job.arguments.get("until"))
    for entry in ({"table": job.table, "steps": job.arguments["steps"]}, *more):
        _work_on(
            spark, replace(job, table=entry["table"]), entry["steps"], tally, f"{entry['table']}: " if more else ""
        )
    if tally.failed:
        raise _sum_up(tally.failed, len(tally.receipts) + len(tally.failed))
    return tally.receipts


@dataclass
class _Tally:
    """Receipts and failures of an app so far. ``until``: after these seconds since 1970 nothing is begun."""

    until: float | None
    receipts: list[Receipt] = field(default_factory=list)
    failed: list[tuple[str, Exception]] = field(default_factory=list)
    reason_left: str = ""
    """Why nothing more is begun, on no table."""

    @property
    def number(self) -> int:
        """The number of the next step, from 1 on."""
        return len(self.receipts) + len(self.failed) + 1


def _work_on(spark: SparkSession, job: Job, steps: Sequence[Mapping[str, Any]], tally: _Tally, where: str) -> None:
    """Do the steps of the job's table."""
    told_to_stop = ""
    for step in steps:
        number = tally.number
        txn_id, name = f"{job.txn_id}.{number}", where + _name(step)
        if not tally.reason_left and tally.until is not None and time.time() > tally.until:
            tally.reason_left = "the time given to this night was over"
        if reason_left := tally.reason_left or told_to_stop:
            tally.receipts.append(Receipt(None, txn_id, step["kind"], {"left": reason_left}))
            log.info("%s. %s: left to the next run, %s", number, name, reason_left)
            continue
        try:
            tally.receipts.append(_persist(spark, job, step, txn_id))
            log.info("%s. %s: %s", number, name, tally.receipts[-1].metrics)
        except AttemptAborted as error:
            # Another holder needs the table, or this process is one that was given up: either way, stop.
            told_to_stop = f"it was told to stop: {error.message}"
            if isinstance(error, AttemptReplaced):
                tally.reason_left = told_to_stop
            tally.receipts.append(Receipt(None, txn_id, step["kind"], {"left": told_to_stop}))
            log.warning("%s. %s: %s", number, name, told_to_stop)
        except spark_errors(LakeIndexError) as error:
            tally.failed.append((name, error))
            log.error("%s. %s failed: %s", number, name, error)


def _persist(spark: SparkSession, job: Job, step: Mapping[str, Any], txn_id: str) -> Receipt:
    """Do a step, and begin again where another writer's commit came first: the rest of its work is then another."""
    for attempt in range(1, TRIES + 1):
        try:
            return _do(load_table(spark, job), step, txn_id, job)
        except ConcurrentWrite as error:
            if attempt == TRIES:
                raise
            pause = random.uniform(0.5, 1.0) * 2 ** (attempt - 1)
            log.info("%s gave way to another commit (%s); again in %.1f s", _name(step), error.message, pause)
            time.sleep(pause)
    raise AssertionError("unreachable")


def _do(table: IndexedTable, step: Mapping[str, Any], txn_id: str, job: Job) -> Receipt:
    kind, index, options = step["kind"], step.get("index"), dict(step.get("options") or {})
    started, version_before, window = time.monotonic(), table.version, job.window
    store = Store(table.uri, job.storage_options)
    if kind == "verify":
        return _verify(table, store, index, options, txn_id, started)
    if kind == "clean":
        receipt = table.clean(**options, txn_id=txn_id)
    elif kind == "refresh":
        receipt = table.refresh_index(str(index), step.get("mode") or "incremental", txn_id=txn_id, window=window)
    elif kind in ("compact", "compact_index"):
        receipt = table.compact(index, step.get("mode") or "quick", txn_id=txn_id, window=window)
    elif kind in CALLS:
        receipt = table.maintain_source(kind, options, txn_id=txn_id, window=window)
    else:
        raise InvalidInput(f"There is no maintenance work {kind!r}.", hint="Plan again with this version.")
    _note(
        note_receipt,
        store,
        kind,
        index,
        receipt,
        round(time.monotonic() - started, 3),
        version_before,
        step.get("bytes") or 0,
    )
    return receipt


def _verify(
    table: IndexedTable, store: Store, index: str | None, options: Mapping[str, Any], txn_id: str, started: float
) -> Receipt:
    names = [index] if index is not None else options.get("indexes") or sorted(table.indexes)
    reports: dict[str, VerificationReport] = {}
    refused: dict[str, InvalidInput] = {}
    for name in names:
        try:
            reports[name] = table.verify(name)
        except InvalidInput as error:  # one that this session cannot compare says nothing of the others
            refused[name] = error
            log.warning("verify %s: refused: %s", name, error)
    wrong = {name: plain(report) for name, report in reports.items() if not report.ok}
    seconds = round(time.monotonic() - started, 3)
    metrics = {"indexes": list(reports), **({"refused": list(refused)} if refused else {})}
    note = DoneWork("verify", time.time(), seconds, table.version, index, ok=not wrong, metrics=metrics)
    if reports:
        _note(write_done, store, note)
    if wrong:
        not_compared = f"; not compared: {', '.join(map(repr, refused))}" if refused else ""
        raise VerificationFailed(
            f"{', '.join(map(repr, wrong))} of {table.uri} do not agree with the table's rows: {wrong}{not_compared}",
            hint="Rebuild them (refresh with mode='full'); until then queries check every row they find through them.",
        )
    if refused:
        agreeing = f" The others agree: {', '.join(map(repr, reports))}." if reports else ""
        raise InvalidInput(
            f"{', '.join(map(repr, refused))} of {table.uri} cannot be compared: "
            f"{' '.join(error.message for error in refused.values())}{agreeing}",
            hint=next(iter(refused.values())).hint,
        )
    return Receipt(None, txn_id, "verify", {"ok": True, "indexes": names, "seconds": seconds})


def _note(write: Any, *arguments: Any) -> None:
    try:
        write(*arguments)
    except StorageError as error:
        # The work is done and committed; without the note the next estimate is a worse one.
        log.warning("How it went could not be noted: %s", error)


def _name(step: Mapping[str, Any]) -> str:
    return step["kind"] if step.get("index") is None else f"{step['kind']} {step['index']}"


def _sum_up(failed: list[tuple[str, Exception]], steps: int) -> LakeIndexError:
    """Return one error for all: of the class of one that a retry may help, if there is such a one."""
    failed.sort(key=lambda one: isinstance(one[1], _HOPELESS))
    first = failed[0][1]
    failures = "; ".join(f"{name}: {getattr(error, 'message', None) or type(error).__name__}" for name, error in failed)
    fits = isinstance(first, LakeIndexError) and not isinstance(first, CommitUndone)
    kind: Any = type(first) if fits else JobFailed
    return kind(
        f"{len(failed)} of {steps} pieces of work failed. {failures}",
        outcome="What the others committed stays; those that failed changed nothing.",
        hint=getattr(first, "hint", "") or "See the app's lines above; a retry does only what is not done yet.",
    )


if __name__ == "__main__":
    main(maintain_table)
