"""The folder in which a job that outlives its task meets those that wait: ``<log>/_index/jobs/<job id>/``.

The app leaves signs of life (``beat.json``), the attempts that it began, and its end (``outcome.json``). The waiting
side leaves a lease (``wanted.json``), and ``cancelled.json`` when the app is to stop. No cluster manager is asked, and
no clock of one machine is compared with another's for less than minutes.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from spark_apps.jobs.job import Outcome, decode_outcome, encode_outcome
from spark_apps.storage.documents import fetch, prepare
from spark_apps.storage.errors import AlreadyCommitted, InvalidInput, LogDamaged, ObjectNotFound, TableNotFound
from spark_apps.storage.store import ObjectInfo, ObjectStore, Store
from spark_apps.storage.units import format_seconds
from spark_apps.timeline.field_types import Moment
from spark_apps.timeline.limits import MAX_HEARTBEAT_BYTES, MAX_NOTE_BYTES
from spark_apps.timeline.locations import locate
from spark_apps.timeline.log import ROOT, TIMELINE, Timeline
from spark_apps.timeline.transactions import BegunAttempt, abort

logger = logging.getLogger(__name__)

T = TypeVar("T")

JOBS = f"{ROOT}/jobs"
HEARTBEAT_SECONDS = 5.0
"""How often an app shows that it lives."""
LEASE_SECONDS = 600.0
"""How long a lease holds; it is renewed before half of it has passed."""
GRACE_SECONDS = 900.0
"""For how long an app works on after the lease has run out: a triggerer may be started anew."""
KEPT_SECONDS = 86_400.0
"""How long the folder of a job stays that its waiting side has not removed."""


_LONGEST_SECONDS = 1e9
_LONGEST_TEXT = 200
_UNPRINTED = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")


def one_line(text: str) -> str:
    """Return a text of a job's folder as it can be written to a log, and not too long.

    It loses line ends, control characters and writing directions, which would make it look like lines of others.
    """
    return _UNPRINTED.sub(" ", text).strip()[:_LONGEST_TEXT]


class JobHeartbeat(msgspec.Struct, frozen=True, omit_defaults=True):
    """A heartbeat: how far the app is.

    ``done`` of ``total`` in ``unit``; ``rate`` in units a second.
    """

    at: Moment
    phase: str = ""
    done: int | None = None
    total: int | None = None
    unit: str = ""
    rate: float | None = None
    seconds_left: float | None = msgspec.field(default=None, name="left")
    pid: int = 0
    host: str = ""
    ui: str = ""
    history: str = ""
    log: str = ""

    def line(self) -> str:
        """Return the same for people: ``write the rows: 12 of 40 tasks, 3.1/s, about 9 s left``."""
        text = one_line(self.phase) or "at work"
        if self.done is None:
            return text
        text += f": {self.done}" if self.total is None else f": {self.done} of {self.total}"
        if self.unit:
            text += f" {one_line(self.unit)}"
        if self.rate:
            text += f", {self.rate:.3g}/s"
        if self.seconds_left is None or not 0 <= self.seconds_left < _LONGEST_SECONDS:
            return text
        return f"{text}, about {format_seconds(self.seconds_left)} left"


class _Lease(msgspec.Struct, frozen=True):
    until: Moment


class _Mark(msgspec.Struct, frozen=True):
    at: Moment
    reason: str = ""


class JobFolder:
    """The folder of one job.

    :param store: where the job's ``jobs_at`` points to.
    """

    def __init__(self, store: ObjectStore, job_id: str, clock: Callable[[], float] = time.time) -> None:
        self.store = store
        self.job_id = job_id
        self.clock = clock

    def key(self, name: str) -> str:
        """Return the key of an object of the folder."""
        return f"{JOBS}/{self.job_id}/{name}"

    # --- the side that waits ----------------------------------------------------------------------------------

    def renew_lease(self, seconds: float = LEASE_SECONDS) -> None:
        """Write that the job is waited for, for so long."""
        self._put("wanted.json", _Lease(self.clock() + seconds))

    def cancel(self, reason: str) -> None:
        """Write the mark by which the app stops.

        The app reads it every few seconds, and before it relies on an attempt.
        """
        self._put("cancelled.json", _Mark(self.clock(), reason))

    def heartbeat(self) -> JobHeartbeat | None:
        """Return the newest heartbeat.

        :raises LogDamaged: if it cannot be read.
        """
        return self._read("beat.json", JobHeartbeat)

    def outcome(self) -> Outcome | None:
        """Return how the app ended; ``None`` while it works, or if it could not write that.

        :raises EnvironmentMismatch: if it is of a newer format.
        """
        body = self._get("outcome.json")
        return None if body is None else decode_outcome(body)

    def attempts(self) -> list[BegunAttempt]:
        """Return the attempts that the app has begun, ended ones too; a note that cannot be read is passed over."""
        attempts = []
        for info in self.store.list(f"{JOBS}/{self.job_id}"):
            if "/attempt-" not in info.key:
                continue
            try:
                attempts.append(fetch(self.store, info.key, BegunAttempt, MAX_HEARTBEAT_BYTES)[0])
            except LogDamaged as error:
                logger.warning("%s It is passed over.", error.message)
        return attempts

    def remove(self) -> None:
        """Remove the folder."""
        self.store.delete([info.key for info in self.store.list(f"{JOBS}/{self.job_id}")])

    # --- the app's side ---------------------------------------------------------------------------------------

    def write_heartbeat(self, heartbeat: JobHeartbeat) -> None:
        """Write a heartbeat."""
        self._put("beat.json", heartbeat)

    def finish(self, outcome: Outcome) -> None:
        """Write how the app ended; after it the app commits nothing more."""
        self.store.put(self.key("outcome.json"), encode_outcome(outcome))

    def note_attempt(self, attempt: BegunAttempt) -> None:
        """Note an attempt, so that a canceller of the job can end it.

        Read :meth:`cancelled` after it: either the canceller sees this note, or the app sees the mark.
        """
        self._put(f"attempt-{secrets.token_hex(4)}.json", attempt)

    def cancelled(self) -> str | None:
        """Return why the job is to stop, or ``None`` if it is not."""
        mark = self._read("cancelled.json", _Mark)
        return None if mark is None else mark.reason

    def leased_until(self) -> float | None:
        """Return seconds since 1970 until which the job is waited for; ``None`` without a lease."""
        lease = self._read("wanted.json", _Lease)
        return None if lease is None else lease.until

    def _put(self, name: str, document: msgspec.Struct) -> None:
        self.store.put(self.key(name), msgspec.json.encode(document))

    def _read(self, name: str, kind: type[T]) -> T | None:
        try:
            return fetch(self.store, self.key(name), kind, MAX_HEARTBEAT_BYTES)[0]
        except ObjectNotFound:
            return None

    def _get(self, name: str) -> bytes | None:
        try:
            return self.store.get(self.key(name), MAX_NOTE_BYTES)
        except ObjectNotFound:
            return None


def new_job_id(intent: str, number: int) -> str:
    """Return a name that no other submission has.

    ``intent`` names the piece of work, alike for all tries with the same inputs; ``number`` the try.
    """
    return f"{intent}.{number}.{secrets.token_hex(4)}"


def list_jobs(store: ObjectStore) -> dict[str, dict[str, ObjectInfo]]:
    """Return all jobs below a store, by one listing: job id -> name of the object -> the object."""
    jobs: dict[str, dict[str, ObjectInfo]] = {}
    for info in store.list(JOBS):
        job_id, _, name = info.key.removeprefix(f"{JOBS}/").rpartition("/")
        if job_id:
            jobs.setdefault(job_id, {})[name] = info
    return jobs


def unfinished(listed: dict[str, dict[str, ObjectInfo]], prefix: str) -> list[str]:
    """Return the jobs whose intents begin with a prefix, which have not reported their end and were not cancelled."""
    return [
        job_id
        for job_id, objects in listed.items()
        if job_id.startswith(prefix) and "outcome.json" not in objects and "cancelled.json" not in objects
    ]


def sweep(
    store: ObjectStore,
    listed: dict[str, dict[str, ObjectInfo]],
    seconds: float = KEPT_SECONDS,
    clock: Callable[[], float] = time.time,
) -> int:
    """Remove folders in which nothing has happened for so long; return how many."""
    before = datetime.fromtimestamp(clock() - seconds, UTC)
    old = [objects for objects in listed.values() if all(info.modified < before for info in objects.values())]
    store.delete([info.key for objects in old for info in objects.values()])
    return len(old)


def end_job(
    folder: JobFolder, open_log: Callable[[str], ObjectStore], reason: str, tables: Iterable[str] = ()
) -> list[BegunAttempt]:
    """Cancel a job: leave the mark, then end by commits the attempts that the app had begun.

    After it nothing of the job can commit, whether or not its process is still there: an attempt begun later meets the
    mark before it does anything. Notes in the folder list the attempts, and any writer to that folder could name any
    log in one. So only those are ended whose log is where the job works.

    :param open_log: gives the store of a table's log.
    :param tables: locations of the tables that the job works on, where it does not keep below its folder's store.
    :returns: the attempts that were ended.
    """
    folder.cancel(reason)
    roots = (folder.store.uri, *tables)
    inside: list[BegunAttempt] = []
    stray: list[BegunAttempt] = []
    for attempt in folder.attempts():
        (inside if _lies_in(attempt.log, roots) else stray).append(attempt)
    for attempt in stray:
        logger.warning(
            "A note of the job %s speaks of the log %s, where the job does not work; it is passed over.",
            folder.job_id, one_line(attempt.log),
        )  # fmt: skip
    return end_attempts(inside, open_log, reason)


def _lies_in(log: str, roots: Iterable[str]) -> bool:
    """Test whether a log is that of one of the tables, beside one that is a source, or below it."""
    try:
        # Addresses as stores spell them lead nowhere else; a look must not make a folder.
        if Store(log).uri != log or ("://" not in log and not Path(log, TIMELINE).is_dir()):
            return False
        return any(_is_log_of(log, Store(root).uri) for root in roots)
    except InvalidInput:
        return False


def _is_log_of(log: str, table: str) -> bool:
    try:
        beside = locate(table).default_log()
    except InvalidInput:  # it is in no folder
        beside = table
    return log in (table, beside) or log.startswith(f"{table.rstrip('/')}/")


def end_attempts(
    attempts: Iterable[BegunAttempt], open_log: Callable[[str], ObjectStore], reason: str
) -> list[BegunAttempt]:
    """End by commits those of the attempts that have not ended; return them."""
    ended = []
    for attempt in attempts:
        try:
            timeline = Timeline.load(open_log(attempt.log))
            if attempt.txn_id in timeline.head.committed or timeline.head.is_aborted(attempt.txn_id, attempt.attempt):
                continue
            abort(timeline, attempt.txn_id, attempt.attempt, reason)
            ended.append(attempt)
        except (AlreadyCommitted, TableNotFound) as error:
            logger.info("%s", error.message)
    return ended


prepare(JobHeartbeat, BegunAttempt, _Lease, _Mark)
