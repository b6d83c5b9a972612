"""Writing an object exactly once, against stores that answer wrongly about it.

A store may answer an error to a write that landed, and "already exists" to one's own; a request that timed out may land
later. So no answer but success decides anything: the object is read back, and only its bytes decide whose it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from spark_apps.storage.errors import ObjectNotFound, StorageError, StorageUnavailable
from spark_apps.storage.store import ObjectStore

logger = logging.getLogger(__name__)

_TRIES = 5
_BACKOFF_SECONDS = 0.05
_MOST_BYTES = 256 << 20  # as much as a commit may have


class OutcomeUnknown(StorageUnavailable):
    """An object may be there, or appear later: no answer and no reading decided whether it was written."""


def write_once(store: ObjectStore, key: str, body: bytes, sleep: Callable[[float], None]) -> bytes:
    """Create an object and return the bytes that stand there now: ``body``, or what another writer wrote first.

    :param sleep: waits so many seconds between two tries.
    :raises OutcomeUnknown: if the store did not let us find out.
    """
    for tried in range(_TRIES):
        try:
            store.create(key, body)
            return body
        except StorageError as error:
            logger.info("Creating %s: %s It is read back.", key, error.message)
            stored = _read_back(store, key, error, sleep)
            cause = error
        if stored == body:
            _keep(store, key)
        if stored is not None:
            return stored
        sleep(_BACKOFF_SECONDS * 2**tried)
    raise OutcomeUnknown(
        f"{store.uri}/{key} could not be written in {_TRIES} tries: the store answers with errors ({cause.message}) "
        "and shows no such object."
    )


def _keep(store: ObjectStore, key: str) -> None:
    """Sync an object that is there: the error of its creation may have been that it is written and not kept."""
    try:
        store.sync([key])
    except StorageError as error:
        raise OutcomeUnknown(f"{store.uri}/{key} is there, and may get lost: {error.message}") from error


def _read_back(store: ObjectStore, key: str, cause: StorageError, sleep: Callable[[float], None]) -> bytes | None:
    error: StorageError = cause
    for tried in range(_TRIES):
        try:
            return store.get(key, _MOST_BYTES)
        except ObjectNotFound:
            return None
        except StorageError as unreadable:
            error = unreadable
            sleep(_BACKOFF_SECONDS * 2**tried)
    raise OutcomeUnknown(
        f"{store.uri}/{key} was sent ({cause.message}) and could not be read back ({error.message})."
    ) from error
