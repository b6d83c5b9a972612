"""Records of maintenance below a table: the last plan of each DAG for it, and how each kind of work last went.

They are small files beside the log and no part of the table: they may be lost or deleted at any time, which costs no
more than a worse estimate. So they are written without care for races, and what cannot be read counts as missing.
"""

from __future__ import annotations

import logging
import re
import time
from typing import Any

import msgspec

from spark_apps.storage.documents import fetch, prepare
from spark_apps.storage.errors import LogDamaged, ObjectNotFound
from spark_apps.storage.store import ObjectStore
from spark_apps.timeline.field_types import Bytes, Count, Label, Moment, Seconds, Version, VersionOrNone, Words
from spark_apps.timeline.limits import MAX_HEARTBEAT_BYTES, MAX_NOTE_BYTES
from spark_apps.timeline.model import Receipt, Struct

logger = logging.getLogger(__name__)

FOLDER = "_index/maintenance"
LAST = f"{FOLDER}/last.json"
DONE = f"{FOLDER}/done"

_DAGS_KEPT = 8
_FORMAT = 1
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")


class PlannedWork(Struct, frozen=True):
    """A piece of work that was due.

    :param kind: ``compact``, ``refresh``, ``compact_index``, ``verify`` or ``clean``.
    :param index: the index it is on; ``None`` for work on the table's rows, or on all of it.
    :param bytes: what it will read, as estimated; ``seconds`` likewise.
    :param overdue: how many times over its limit the table is, 1 at least.
    :param waited: how many runs before this one left it out, or chose it and saw it undone.
    :param chosen: whether it was to be done now; if not, ``code`` and ``reason`` say why.
    """

    kind: Label
    reason: Words
    index: Label | None = None
    mode: Label | None = None
    bytes: Bytes = 0
    seconds: Seconds = 0.0
    overdue: float = 1.0
    waited: Count = 0
    value: float = 0.0
    chosen: bool = True
    code: Label = "due"

    @property
    def key(self) -> str:
        """The name of this work among the works on one table."""
        return work_key(self.kind, self.index)


class SkippedWork(Struct, frozen=True):
    """Work that was not due, or could not be looked at, and why: a code for machines, a sentence for people."""

    code: str
    reason: str
    kind: str | None = None
    index: str | None = None


class TablePlan(Struct, frozen=True):
    """The plan of one DAG's maintenance for one table. ``at`` is in seconds since 1970, ``version`` the table's."""

    dag_id: Label
    run_id: Label
    at: Moment
    version: VersionOrNone
    work: tuple[PlannedWork, ...] = ()
    skipped: tuple[SkippedWork, ...] = ()


class LastPlans(Struct, frozen=True):
    """The file ``_index/maintenance/last.json``: the last plan of each DAG, by its id."""

    format: int = _FORMAT
    plans: dict[str, TablePlan] = {}


class DoneWork(Struct, frozen=True):
    """The last outcome of one kind of work.

    :param at: when it ended, in seconds since 1970.
    :param seconds: how long it took.
    :param version: of its commit; ``None`` if there was nothing to do, or if it is no commit.
    :param seen: the version of the table that it worked on.
    :param ok: of a verification, whether index and rows agreed.
    """

    kind: Label
    at: Moment
    seconds: Seconds
    seen: VersionOrNone
    index: Label | None = None
    bytes: Bytes = 0
    version: Version | None = None
    ok: bool = True
    metrics: dict[str, Any] = {}

    @property
    def key(self) -> str:
        """The name of this work, as :attr:`PlannedWork.key`."""
        return work_key(self.kind, self.index)


def work_key(kind: str, index: str | None) -> str:
    """Return ``kind`` or ``kind.index``, fit for a file's name."""
    return kind if index is None else f"{kind}.{_UNFIT.sub('-', index)}"


def read_last(store: ObjectStore) -> LastPlans:
    """Return the last plans of a table; none if there are none, or none that can be understood.

    :raises StorageUnavailable: if the store does not answer.
    """
    try:
        return fetch(store, LAST, LastPlans, MAX_NOTE_BYTES)[0]
    except ObjectNotFound:
        return LastPlans()
    except LogDamaged as error:
        logger.warning("%s It counts as missing.", error.message)
        return LastPlans()


def write_plan(store: ObjectStore, plan: TablePlan) -> None:
    """Write a plan instead of its DAG's last one; those of other DAGs stay, the newest few of them.

    :raises StorageUnavailable: if the store does not answer.
    """
    plans = {**read_last(store).plans, plan.dag_id: plan}
    newest = sorted(plans.values(), key=lambda one: one.at)[-_DAGS_KEPT:]
    store.put(LAST, msgspec.json.encode(LastPlans(plans={one.dag_id: one for one in newest})))


def read_done(store: ObjectStore) -> dict[str, DoneWork]:
    """Return how each kind of work went last, by its key.

    :raises StorageUnavailable: if the store does not answer.
    """
    done = {}
    for info in store.list(DONE):
        try:
            note, _ = fetch(store, info.key, DoneWork, MAX_HEARTBEAT_BYTES)
        except (ObjectNotFound, LogDamaged) as error:
            logger.warning("%s It counts as missing.", error.message)
            continue
        done[note.key] = note
    return done


def write_done(store: ObjectStore, note: DoneWork) -> None:
    """Write how a work went.

    :raises StorageUnavailable: if the store does not answer.
    """
    store.put(f"{DONE}/{note.key}.json", msgspec.json.encode(note))


def note_receipt(
    store: ObjectStore, kind: str, index: str | None, receipt: Receipt, seconds: float, seen: int, size: int = 0
) -> DoneWork:
    """Write how a work that ended with a receipt went, and return the note.

    :raises StorageUnavailable: if the store does not answer.
    """
    note = DoneWork(kind, time.time(), seconds, seen, index, size, receipt.version, metrics=receipt.metrics)
    write_done(store, note)
    return note


prepare(LastPlans, DoneWork)
