"""Looking at attempts: which were requested, which may still commit, and when they last gave a sign of life.

Their own files tell who they are; whether they have ended, only the log tells.
"""

from __future__ import annotations

import logging

import msgspec

from spark_apps.storage.errors import LogDamaged, ObjectNotFound, TransactionNotFound
from spark_apps.storage.names import check_txn_id
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import Heartbeat, Requested
from spark_apps.timeline.state import State

logger = logging.getLogger(__name__)

TRANSACTIONS = "_index/transactions"
DATA = "data"
INDEXES = "_index/indexes"
WITHDRAWN = "withdrawn.json"


def attempt_folder(txn_id: str, attempt: int) -> str:
    return f"{TRANSACTIONS}/{txn_id}/{attempt:06d}"


def read_requested(timeline: Timeline, txn_id: str, attempt: int) -> Requested:
    """:raises TransactionNotFound: :raises LogDamaged: if it is there and cannot be read."""
    try:
        return msgspec.json.decode(timeline.store.get(_request_key(check_txn_id(txn_id), attempt)), type=Requested)
    except ObjectNotFound as error:
        raise TransactionNotFound(
            f"{timeline.store.uri} knows no attempt {attempt} of transaction {txn_id}."
        ) from error
    except msgspec.DecodeError as error:
        raise LogDamaged(
            f"{timeline.store.uri}/{_request_key(txn_id, attempt)} cannot be read: {error}.",
            hint="Begin the transaction again. Whoever cleans or drains ends this attempt once it is silent.",
        ) from error


def read_heartbeat(timeline: Timeline, txn_id: str, attempt: int) -> Heartbeat | None:
    """The newest sign of life of an attempt, or ``None`` if it left none. Of one that cannot be read (a machine that
    lost its power leaves it empty) the time of its writing is left."""
    key = f"{attempt_folder(txn_id, attempt)}/heartbeat.json"
    try:
        return msgspec.json.decode(timeline.store.get(key), type=Heartbeat)
    except ObjectNotFound:
        return None
    except msgspec.DecodeError as error:
        logger.warning("%s/%s cannot be read, and counts as of when it was written: %s", timeline.store.uri, key, error)
        written = _written_at(timeline, key)
        return None if written is None else Heartbeat(written)


def _unreadable(timeline: Timeline, txn_id: str, attempt: int) -> Requested:
    """An attempt whose request cannot be read: it may need anything, from the first version on, and write anywhere, for
    as long as it is not ended. :raises TransactionNotFound: if the request has gone meanwhile."""
    written = _written_at(timeline, _request_key(txn_id, attempt))
    if written is None:
        raise TransactionNotFound(f"{timeline.store.uri} knows no attempt {attempt} of transaction {txn_id} any more.")
    return Requested(txn_id, attempt, 0, "unreadable", (), written, "")


def _request_key(txn_id: str, attempt: int) -> str:
    return f"{attempt_folder(txn_id, attempt)}/requested.json"


def _written_at(timeline: Timeline, key: str) -> float | None:
    """Seconds since 1970, by the store's clock."""
    info = timeline.store.head(key)
    return None if info is None else info.modified.timestamp()


def attempts(timeline: Timeline, txn_id: str | None = None) -> list[tuple[str, int]]:
    """(txn id, attempt) of all attempts requested, neither withdrawn nor tidied away; of one transaction or of all."""
    prefix = TRANSACTIONS if txn_id is None else f"{TRANSACTIONS}/{txn_id}"
    marked = _marked(timeline, prefix, "requested.json", WITHDRAWN)
    withdrawn = set(marked[WITHDRAWN])
    return [attempt for attempt in marked["requested.json"] if attempt not in withdrawn]


def withdrawn_attempts(timeline: Timeline) -> list[tuple[str, int]]:
    """(txn id, attempt) of those that found nothing to do, as long as they are not tidied away."""
    return _marked(timeline, TRANSACTIONS, WITHDRAWN)[WITHDRAWN]


def _marked(timeline: Timeline, prefix: str, *names: str) -> dict[str, list[tuple[str, int]]]:
    """The attempts whose folders hold files of these names, by name; one listing."""
    found: dict[str, list[tuple[str, int]]] = {name: [] for name in names}
    for info in timeline.store.list(prefix):
        parts = info.key.removeprefix(f"{TRANSACTIONS}/").split("/")
        if len(parts) == 3 and parts[2] in found:
            found[parts[2]].append((parts[0], int(parts[1])))
    return found


def is_live(state: State, txn_id: str, attempt: int) -> bool:
    """Whether an attempt may still commit: neither it nor its transaction has ended by a commit."""
    return txn_id not in state.committed and not state.is_aborted(txn_id, attempt)


def live_attempts_of(timeline: Timeline, txn_id: str | None = None) -> list[int]:
    """The attempts of a transaction that may still commit."""
    state = timeline.head
    return [attempt for txn, attempt in attempts(timeline, txn_id) if is_live(state, txn, attempt)]


def live_requests(timeline: Timeline) -> list[Requested]:
    """All attempts of the table that may still commit, as of the newest state, to which the timeline is brought."""
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


def presumed_dead(timeline: Timeline, requested: Requested, silent_seconds: float) -> bool:
    """Whether an attempt has shown no sign of life for so long, or for as long as it asked to be left alone if that is
    longer. Only :func:`abort` makes it so."""
    beat = read_heartbeat(timeline, requested.txn_id, requested.attempt)
    last = requested.requested_at if beat is None else max(beat.at, requested.requested_at)
    return timeline.clock() - last > max(silent_seconds, requested.patience)
