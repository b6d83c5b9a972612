"""The query log of a table: one line for each query, in objects below the table's own folder, and reading them back.

A table keeps one if its property ``query_log`` says so. Lines are collected in this process and written by a thread
beside the queries: one object a process and hour, put anew with all of its lines some seconds after new ones, so that
any store will do. A process that is killed loses its last lines. A log that cannot be written costs a warning and its
lines: no query waits for its line or fails by it.

The name of an object begins with the time of its first line, so a listing has the oldest first; a process that begins a
new one deletes those that are too old, or too many. What is read back is input: whoever may write to the folder may
write anything there.
"""

from __future__ import annotations

import atexit
import logging
import os
import random
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import msgspec

from spark_apps.storage.errors import InvalidInput, LakeIndexError, LogDamaged, StorageUnavailable
from spark_apps.storage.sizes import parse_bytes
from spark_apps.storage.store import ObjectInfo, ObjectStore
from spark_apps.timeline.model import Receipt
from spark_apps.workload.asked import AskedQuery, Workload, from_document
from spark_apps.workload.limits import (
    MAX_LABEL_CHARACTERS,
    MAX_LINE_BYTES,
    MAX_OBJECT_BYTES,
    MAX_OBJECTS,
    MAX_READ_BYTES,
    MAX_WAITING_BYTES,
)

logger = logging.getLogger(__name__)

FOLDER = "_index/queries"
PROPERTY = "query_log"
"""Property of a table: ``off`` (as without it), ``on``, or ``sampled``."""
SAMPLE = "query_log.sample"
"""Property: which part of the queries a sampled log has, 0.1 by default."""
LITERALS = "query_log.literals"
"""Property: ``false`` leaves literals out, for these may be a person's data. No advice is given then."""
RETENTION_DAYS = "query_log.retention_days"
"""Property: the days for which lines are kept, 30 by default."""
MAX_BYTES = "query_log.max_bytes"
"""Property: the bytes of the whole log, ``64MB`` by default."""
PROPERTIES = (PROPERTY, SAMPLE, LITERALS, RETENTION_DAYS, MAX_BYTES)

LINGER_SECONDS = 1.0
"""Time for which the first lines wait for others."""
INTERVAL_SECONDS = 30.0
"""Time between two writings of an object, at least."""
_ROLLED_SECONDS = 3600.0
_RETRY_SECONDS = 600.0
"""Time after a failure for which nothing is written to the table's log."""
_FLUSH_SECONDS = 5.0
_THREADS = 8

_KEY = re.compile(r"_index/queries/([0-9]{8}T[0-9]{6})-[0-9a-f]{16}\.jsonl")
_TIME = "%Y%m%dT%H%M%S"


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The settings of a table's log, as its properties say.

    :param share: of the queries that leave a line; 0 for none. :param literals: whether predicates have theirs.
    :param days: for which lines are kept. :param bytes: that the log holds.
    """

    share: float = 0.0
    literals: bool = True
    days: int = 30
    bytes: int = 64_000_000


def log_settings(properties: Mapping[str, str]) -> LogSettings:
    """Return the settings that a table's properties say.

    :raises InvalidInput: naming the property that cannot be understood.
    """
    stray = sorted(name for name in properties if name.startswith(f"{PROPERTY}.") and name not in PROPERTIES)
    if stray:
        raise _wrong(stray[0], properties[stray[0]], f"There are: {', '.join(PROPERTIES)}.")
    mode = properties.get(PROPERTY, "off").lower()
    if mode not in ("off", "on", "sampled"):
        raise _wrong(PROPERTY, mode, "Give 'off', 'on' or 'sampled'.")
    sample, literals = properties.get(SAMPLE, "0.1"), properties.get(LITERALS, "true").lower()
    days, most = properties.get(RETENTION_DAYS, "30"), properties.get(MAX_BYTES, "64MB")
    if not re.fullmatch(r"0?\.[0-9]{1,9}|1(\.0*)?", sample) or not float(sample):
        raise _wrong(SAMPLE, sample, "Give a part of all queries, as 0.1.")
    if literals not in ("true", "false"):
        raise _wrong(LITERALS, literals, "Give 'true' or 'false'.")
    if not re.fullmatch(r"[1-9][0-9]{0,3}", days):
        raise _wrong(RETENTION_DAYS, days, "Give a whole number of days, up to 9999.")
    share = {"off": 0.0, "on": 1.0, "sampled": float(sample)}[mode]
    held = parse_bytes(most, f"The table property {MAX_BYTES!r}")
    return LogSettings(share, literals == "true", int(days), max(MAX_OBJECT_BYTES, held))


def _wrong(name: str, value: str, hint: str) -> InvalidInput:
    return InvalidInput(f"The table property {name!r} is {value[:50]!r}.", hint=hint)


# --- who asks ---------------------------------------------------------------------------------------------------------

_ASKER = ""


def set_asker(name: str) -> None:
    """Say who asks the queries of this process: of a task of Airflow's ``dag.task``."""
    global _ASKER
    _ASKER = name


def asker() -> str:
    """Return who asks: what was set, else the task of Airflow's that this process runs, else nothing."""
    if _ASKER:
        return _ASKER[:MAX_LABEL_CHARACTERS]
    dag, task = os.environ.get("AIRFLOW_CTX_DAG_ID"), os.environ.get("AIRFLOW_CTX_TASK_ID")
    return f"{dag}.{task}"[:MAX_LABEL_CHARACTERS] if dag and task else ""


# --- writing ----------------------------------------------------------------------------------------------------------


@dataclass
class _TableLog:
    """The lines of one table that this process has written into its present object, and those that wait.

    Changed under the lock of :class:`QueryLog` only, but for ``written``, which the writing thread alone looks at.
    """

    store: ObjectStore
    settings: LogSettings
    waiting: list[bytes] = field(default_factory=list)
    waiting_bytes: int = 0
    due: float = 0.0
    key: str = ""
    began: float = 0.0
    written: list[bytes] = field(default_factory=list)
    written_bytes: int = 0
    last_put: float = float("-inf")
    paused_until: float = float("-inf")
    warned: bool = False


class QueryLog:
    """The query logs that one process writes, each line by a call that waits for no store."""

    def __init__(self, linger: float = LINGER_SECONDS, interval: float = INTERVAL_SECONDS) -> None:
        self._linger, self._interval = linger, interval
        self._begin()

    def _begin(self) -> None:
        """Begin without a line: a process that was forked leaves its parent's lines to that."""
        self._logs: dict[str, _TableLog] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._flushing = 0
        self._draw = random.Random()

    def drawn(self, settings: LogSettings) -> bool:
        """Tell whether the next query of a log leaves a line."""
        return settings.share > 0 and (settings.share >= 1 or self._draw.random() < settings.share)

    def add(self, store: ObjectStore, settings: LogSettings, line: bytes) -> None:
        """Add a line to the log of a table, to be written soon.

        :param store: of the table's folder.
        """
        with self._changed:
            log = self._logs.get(store.uri)
            if log is None:
                log = self._logs[store.uri] = _TableLog(store, settings)
            log.store, log.settings = store, settings
            if log.waiting_bytes + len(line) > MAX_WAITING_BYTES:
                return
            if not log.waiting:
                log.due = max(time.monotonic() + self._linger, log.last_put + self._interval, log.paused_until)
            log.waiting.append(line)
            log.waiting_bytes += len(line) + 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._write, name="lakeindex-query-log", daemon=True)
                self._thread.start()
                # Not before: a task of Airflow's runs in a fork, which forgets what was registered until then.
                atexit.register(self._flush_at_exit)
            self._changed.notify_all()

    def flush(self, seconds: float = _FLUSH_SECONDS) -> None:
        """Write all lines that wait now, and return when they are written, or after some seconds."""
        until = time.monotonic() + seconds
        with self._changed:
            if self._thread is None:
                return
            self._flushing += 1
            self._changed.notify_all()
            while self._pending() and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
            self._flushing -= 1

    def _flush_at_exit(self) -> None:
        with suppress(Exception):  # at the end of a process nobody reads the error
            self.flush()

    def _pending(self) -> bool:
        now = time.monotonic()
        return any(log.waiting and log.paused_until <= now for log in self._logs.values())

    def _write(self) -> None:
        """Write lines as they become due; runs in a thread as long as the process does."""
        while True:
            with self._changed:
                while (log := self._next()) is None:
                    self._changed.wait(self._sleep())
                lines = list(log.waiting)
            self._put(log, lines)
            with self._changed:
                del log.waiting[: len(lines)]
                log.waiting_bytes = sum(map(len, log.waiting)) + len(log.waiting)
                if log.waiting:
                    log.due = max(time.monotonic() + self._linger, log.last_put + self._interval, log.paused_until)
                self._changed.notify_all()

    def _next(self) -> _TableLog | None:
        """Return a log that is to be written now."""
        now = time.monotonic()
        for log in self._logs.values():
            now_or_full = log.due <= now or self._flushing or log.waiting_bytes > MAX_OBJECT_BYTES // 2
            if log.waiting and log.paused_until <= now and now_or_full:
                return log
        return None

    def _sleep(self) -> float | None:
        """Return for how long no log is due, ``None`` if none is at all."""
        dues = [max(log.due, log.paused_until) for log in self._logs.values() if log.waiting]
        return max(0.01, min(dues) - time.monotonic()) if dues else None

    def _put(self, log: _TableLog, lines: list[bytes]) -> None:
        """Put the present object of a log anew, with more lines, or begin another."""
        try:
            now = time.monotonic()
            if log.key and log.written and log.store.head(log.key) is None:
                log.key = ""  # it was erased: its lines must not come back
            if not log.key or now - log.began > _ROLLED_SECONDS or log.written_bytes > MAX_OBJECT_BYTES:
                log.key = f"{FOLDER}/{datetime.now(UTC).strftime(_TIME)}-{secrets.token_hex(8)}.jsonl"
                log.began, log.written, log.written_bytes = now, [], 0
                _trim(log.store, log.settings)
            log.written.extend(lines)
            log.written_bytes += sum(map(len, lines)) + len(lines)
            log.store.put(log.key, b"\n".join(log.written) + b"\n")
            log.last_put = time.monotonic()
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not end the thread, nor hurt a query
            log.key, log.paused_until = "", time.monotonic() + _RETRY_SECONDS
            if not log.warned:
                log.warned = True
                logger.warning(
                    "The query log of %s cannot be written, queries go on without it: %s",
                    log.store.uri, error.message if isinstance(error, LakeIndexError) else type(error).__name__,
                )  # fmt: skip


def _trim(store: ObjectStore, settings: LogSettings) -> None:
    """Delete objects of a log that are too old, or the oldest of too many."""
    there = [info for info in store.list(FOLDER) if _KEY.fullmatch(info.key)]
    last = (datetime.now(UTC) - timedelta(days=settings.days)).strftime(_TIME)
    held, kept, gone = 0, 0, []
    for info in sorted(there, key=lambda info: info.key, reverse=True):
        held, kept = held + info.size, kept + 1
        if info.key.rsplit("/", 1)[1] < last or kept >= MAX_OBJECTS or held + MAX_OBJECT_BYTES > settings.bytes:
            gone.append(info.key)
    if gone:
        store.delete(gone)


def erase(store: ObjectStore) -> int:
    """Delete all lines of a table's log, and return how many objects went.

    Processes that still run do not write erased lines again, except those of the last half minute, which they have not
    written yet.

    :param store: of the table's folder.
    :raises StorageUnavailable: if the store does not answer.
    """
    QUERY_LOG.flush()
    there = [info.key for info in store.list(FOLDER)]
    store.delete(there)
    return len(there)


def erased(receipt: Receipt, store: ObjectStore) -> Receipt:
    """Delete all lines of a table's log (:func:`erase`), and return the receipt of its cleaning with their number."""
    return msgspec.structs.replace(receipt, metrics={**receipt.metrics, "query_log_files_deleted": erase(store)})


QUERY_LOG = QueryLog()
"""The log that all queries of this process are written by."""


os.register_at_fork(after_in_child=QUERY_LOG._begin)


# --- reading ----------------------------------------------------------------------------------------------------------


BEYOND = "objects beyond what is read"
"""The reason for which the oldest objects are left out, where they are too many."""


def read_log(
    store: ObjectStore,
    since: datetime | None = None,
    *,
    most_objects: int = MAX_OBJECTS,
    most_bytes: int = MAX_READ_BYTES,
    each: Callable[[AskedQuery], None] | None = None,
) -> Workload:
    """Return what the log of a table has, newest first as far as it is read; empty if there is none.

    Lines and objects that are damaged are counted by :attr:`~spark_apps.workload.asked.Workload.refused`.

    :param store: of the table's folder. :param since: leave out what was asked before.
    :param most_objects: and ``most_bytes``: that are read. :param each: is given each line.
    :raises StorageUnavailable: if the store does not answer.
    """
    QUERY_LOG.flush()  # with what this process has asked itself
    # An object has lines of an hour, and of what waited longest to be written.
    first = None if since is None else (since - timedelta(seconds=2 * _ROLLED_SECONDS)).strftime(_TIME)
    asked = Workload()
    there = sorted(store.list(FOLDER), key=lambda info: info.key, reverse=True)
    chosen: list[ObjectInfo] = []
    held = 0
    for info in there:
        if not _KEY.fullmatch(info.key):
            asked.refuse("an object that is no part of the log")
        elif first is not None and info.key.rpartition("/")[2] < first:
            continue
        elif len(chosen) >= most_objects or held + info.size > most_bytes:
            asked.refuse(BEYOND)
        else:
            chosen.append(info)
            held += info.size

    def body(info: ObjectInfo) -> bytes | None:
        try:
            return store.get(info.key, MAX_OBJECT_BYTES + MAX_WAITING_BYTES + MAX_LINE_BYTES)
        except StorageUnavailable:
            raise
        except LakeIndexError:  # it went meanwhile, is too large, or leads elsewhere
            return None

    with ThreadPoolExecutor(_THREADS) as pool:
        for start in range(0, len(chosen), _THREADS):
            for found in pool.map(body, chosen[start : start + _THREADS]):
                if found is None:
                    asked.refuse("an object that cannot be read")
                else:
                    _add_lines(asked, found, store.uri, since, each)
    return asked


def _add_lines(
    asked: Workload, body: bytes, uri: str, since: datetime | None, each: Callable[[AskedQuery], None] | None
) -> None:
    for line in body.split(b"\n"):
        if not line.strip():
            continue
        if len(line) > MAX_LINE_BYTES:
            asked.refuse("a line that is too long")
            continue
        try:
            query = from_document(line)
        except LogDamaged:
            asked.refuse("a damaged line")
            continue
        if since is None or query.asked >= since:
            asked.add(query if query.table == uri else replace(query, table=uri))
            if each is not None:
                each(query)
