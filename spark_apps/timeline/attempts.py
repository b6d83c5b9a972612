"""Reading attempts: which were requested, which may still commit, and when they last gave a sign of life.

Their own files say what was requested; whether they have ended, only the log says.
"""

from __future__ import annotations

import logging
import re

from spark_apps.storage.documents import fetch
from spark_apps.storage.errors import LogDamaged, ObjectNotFound, TransactionNotFound
from spark_apps.storage.names import check_txn_id
from spark_apps.timeline.field_types import HEARTBEAT_BYTES, NOTE_BYTES
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import Heartbeat, Requested
from spark_apps.timeline.state import State

logger = logging.getLogger(__name__)

TRANSACTIONS = "_index/transactions"
DATA = "data"
INDEXES = "_index/indexes"
WITHDRAWN = "withdrawn.json"

_AGAIN = "Begin the transaction again. Whoever cleans or drains ends this attempt once it is silent."
_OF_AN_ATTEMPT = re.compile(rf"{TRANSACTIONS}/(?!.*\.\.)([A-Za-z0-9][A-Za-z0-9._\-]{{0,127}})/([0-9]{{6,18}})/([^/]+)")


def attempt_folder(txn_id: str, attempt: int) -> str:
    return f"{TRANSACTIONS}/{txn_id}/{attempt:06d}"


def attempt_of(key: str) -> tuple[str, int] | None:
    """Return the transaction id and the attempt in whose folder a key lies; ``None`` if it lies in none."""
    match = _OF_AN_ATTEMPT.fullmatch(key)
    if match is None or match[2] != f"{int(match[2]):06d}":
        return None
    return match[1], int(match[2])


def read_requested(timeline: Timeline, txn_id: str, attempt: int) -> Requested:
    """Return the request of an attempt.

    :raises TransactionNotFound: if there is none.
    :raises LogDamaged: if it is there and cannot be read.
    """
    key = _request_key(check_txn_id(txn_id), attempt)
    try:
        requested, _ = fetch(timeline.store, key, Requested, NOTE_BYTES)
    except ObjectNotFound as error:
        raise TransactionNotFound(
            f"{timeline.store.uri} knows no attempt {attempt} of transaction {txn_id}."
        ) from error
    except LogDamaged as error:
        raise LogDamaged(error.message, hint=_AGAIN) from error
    if (requested.txn_id, requested.attempt) != (txn_id, attempt):
        raise LogDamaged(
            f"{timeline.store.uri}/{key} says of itself that it is attempt {requested.attempt} of transaction "
            f"{requested.txn_id}.",
            hint=_AGAIN,
        )
    return requested


def read_heartbeat(timeline: Timeline, txn_id: str, attempt: int) -> Heartbeat | None:
    """Return the newest sign of life of an attempt, or ``None`` if it left none.

    Of one that cannot be read (a machine that lost its power leaves it empty) the time of its writing is returned.
    """
    key = f"{attempt_folder(txn_id, attempt)}/heartbeat.json"
    try:
        return fetch(timeline.store, key, Heartbeat, HEARTBEAT_BYTES)[0]
    except ObjectNotFound:
        return None
    except LogDamaged as error:
        logger.warning("%s It counts as of when it was written.", error.message)
        written = _written_at(timeline, key)
        return None if written is None else Heartbeat(written)


def _unreadable(timeline: Timeline, txn_id: str, attempt: int) -> Requested:
    """Return a stand-in for a request that cannot be read.

    Its attempt may need anything, from the first version on, and write anywhere, for as long as it is not ended.

    :raises TransactionNotFound: if the request has gone meanwhile.
    """
    written = _written_at(timeline, _request_key(txn_id, attempt))
    if written is None:
        raise TransactionNotFound(f"{timeline.store.uri} knows no attempt {attempt} of transaction {txn_id} any more.")
    return Requested(txn_id, attempt, 0, "unreadable", (), written, "")


def _request_key(txn_id: str, attempt: int) -> str:
    return f"{attempt_folder(txn_id, attempt)}/requested.json"


def _written_at(timeline: Timeline, key: str) -> float | None:
    """Return when a key was written, in seconds since 1970 by the store's clock."""
    info = timeline.store.head(key)
    return None if info is None else info.modified.timestamp()


def attempts(timeline: Timeline, txn_id: str | None = None) -> list[tuple[str, int]]:
    """Return (txn id, attempt) of all attempts requested, of one transaction or of all.

    Those that were withdrawn or tidied away are left out.
    """
    prefix = TRANSACTIONS if txn_id is None else f"{TRANSACTIONS}/{txn_id}"
    marked = _marked(timeline, prefix, "requested.json", WITHDRAWN)
    withdrawn = set(marked[WITHDRAWN])
    return [attempt for attempt in marked["requested.json"] if attempt not in withdrawn]


def withdrawn_attempts(timeline: Timeline) -> list[tuple[str, int]]:
    """Return (txn id, attempt) of those that had nothing to do, as long as they are not tidied away."""
    return _marked(timeline, TRANSACTIONS, WITHDRAWN)[WITHDRAWN]


def _marked(timeline: Timeline, prefix: str, *names: str) -> dict[str, list[tuple[str, int]]]:
    """Return the attempts whose folders hold files of these names, by name; in one listing."""
    attempts_of: dict[str, list[tuple[str, int]]] = {name: [] for name in names}
    for info in timeline.store.list(prefix):
        attempt, name = attempt_of(info.key), info.key.rpartition("/")[2]
        if attempt is not None and name in attempts_of:
            attempts_of[name].append(attempt)
    return attempts_of


def is_live(state: State, txn_id: str, attempt: int) -> bool:
    """Test whether an attempt may still commit: neither it nor its transaction has ended by a commit."""
    return txn_id not in state.committed and not state.is_aborted(txn_id, attempt)


def live_attempts_of(timeline: Timeline, txn_id: str | None = None) -> list[int]:
    """Return the attempts of a transaction that may still commit."""
    state = timeline.head
    return [attempt for txn, attempt in attempts(timeline, txn_id) if is_live(state, txn, attempt)]


def live_requests(timeline: Timeline) -> list[Requested]:
    """Return all requests of the table whose attempts may still commit, as of the newest state.

    The timeline is brought to that state.
    """
    while True:
        listed = attempts(timeline)
        state = timeline.refresh()
        try:
            return [_request(timeline, txn, attempt) for txn, attempt in listed if is_live(state, txn, attempt)]
        except TransactionNotFound as error:
            # It has ended since, and a cleaner tidied it away. So the state is older than its commit, which may need
            # files that only its request held: look again.
            logger.info("%s", error.message)


def _request(timeline: Timeline, txn_id: str, attempt: int) -> Requested:
    try:
        return read_requested(timeline, txn_id, attempt)
    except LogDamaged as error:
        logger.warning("%s", error.message)
        return _unreadable(timeline, txn_id, attempt)


def is_presumed_dead(timeline: Timeline, requested: Requested, silent_seconds: float) -> bool:
    """Test whether an attempt has shown no sign of life for ``silent_seconds``, or for its patience if that is longer.

    Only :func:`abort` ends it.
    """
    beat = read_heartbeat(timeline, requested.txn_id, requested.attempt)
    last = requested.requested_at if beat is None else max(beat.at, requested.requested_at)
    return timeline.clock() - last > max(silent_seconds, requested.patience)
