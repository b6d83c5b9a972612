"""Making a table: version 0 of its log, or a new beginning in the log of a dropped one."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

from spark_apps.storage.errors import AlreadyCommitted, InvalidName, LogVanished, StorageError, TableExists
from spark_apps.storage.names import check_txn_id
from spark_apps.storage.store import ObjectStore, Store
from spark_apps.timeline import hashing_config
from spark_apps.timeline.commit import Intent, check_not_committed, commit_changes, new_txn_id
from spark_apps.timeline.delta import publishing
from spark_apps.timeline.log import ROOT, Timeline, commit_key, left_by_a_table
from spark_apps.timeline.model import (
    FORMAT_VERSION,
    AnyAction,
    Commit,
    PutTable,
    Receipt,
    TableDefinition,
    Write,
    table_scope,
)
from spark_apps.timeline.operations import CREATE
from spark_apps.timeline.state import State
from spark_apps.timeline.transactions import DATA

logger = logging.getLogger(__name__)

NOTE = f"{ROOT}/README.txt"
_NOTE = """The folder timeline is the log of the table in the folder above: without it the table is lost.
The other folders hold its indexes, its unfinished transactions, and copies of its bucket rules and counts.
"""


def create_table(
    store: ObjectStore,
    definition: TableDefinition,
    actions: Iterable[AnyAction] = (),
    *,
    txn_id: str | None = None,
    timeline: Timeline | None = None,
) -> tuple[Timeline, Receipt]:
    """Write version 0. Of several at once one wins; the others get :class:`TableExists`.

    Where a table was dropped, its log goes on: the new table is the next version of it, with an id of its own.

    ::

        fields = Field("id", "bigint"), Field("dt", "string")
        timeline, receipt = create_table(Store("/lake/trips"), TableDefinition("trips", fields, ("id",), ("dt",)))

    :param actions: what the table begins with: its hashing config, its indexes.
    :param txn_id: names the intent: a retry finds its own version 0.
    :raises TableExists: if there is a table.
    :raises LogVanished: if there are files of one but no log.
    :raises InvalidName: if the location is among the files of another table.
    """
    _check_not_inside(store)
    timeline = timeline or Timeline(store)
    intent = Intent(
        operation=CREATE.name,
        txn_id=check_txn_id(txn_id) if txn_id is not None else new_txn_id(CREATE.name),
        attempt=1,
        base=-1,
        actions=(PutTable(definition), *actions),
        writes=(Write(table_scope(), "replace"),),
    )
    if store.head(commit_key(0)) is None:
        _check_no_leftovers(store)
        first = Commit(
            format=FORMAT_VERSION,
            version=0,
            instant=timeline.next_instant(),
            operation=intent.operation,
            txn_id=intent.txn_id,
            attempt=intent.attempt,
            base=intent.base,
            writes=intent.writes,
            actions=intent.actions,
        )
        landed = timeline.create(hashing_config.with_files(timeline, State(), first))
        if landed.txn_id == intent.txn_id:
            timeline.refresh()
            _leave_note(store)
            publishing.follow(timeline, landed)
            return timeline, Receipt.of(landed)
    return timeline, _retry_or_recreate(timeline, intent)


def _retry_or_recreate(timeline: Timeline, intent: Intent) -> Receipt:
    """Return the receipt of a retried first creation, or create a table where one was dropped."""

    def dropped(state: State) -> None:
        if not state.dropped:
            raise TableExists(
                f"There is a table at {timeline.store.uri} already.", hint="Load it, or choose another location."
            )

    try:
        check_not_committed(timeline.refresh(), intent.txn_id, timeline)
        dropped(timeline.head)
        return commit_changes(timeline, replace(intent, base=timeline.head.version), dropped)
    except AlreadyCommitted as error:
        return error.receipt


def _check_not_inside(store: ObjectStore) -> None:
    """Refuse a location among the files of another table, with which it would be cleaned away."""
    parts = store.uri.split("/")
    for depth, part in enumerate(parts):
        outer = "/".join(parts[:depth])
        if part not in (DATA, ROOT) or not isinstance(store, Store) or outer.rstrip("/").endswith(":") or not outer:
            continue
        try:
            inside = Store(outer, store.options).head(commit_key(0)) is not None
        except StorageError as error:  # a folder that these credentials do not open holds no table that they can read
            logger.info("Whether there is a table at %s cannot be seen: %s", outer, error.message)
            continue
        if inside:
            raise InvalidName(
                f"{store.uri} is among the files of the table at {outer}, and would be cleaned away with them.",
                hint="Create the table somewhere else.",
            )


def _check_no_leftovers(store: ObjectStore) -> None:
    # Looked for once more behind them: another creation may have landed since, and left more than its log.
    if left_by_a_table(store) and store.head(commit_key(0)) is None:
        raise LogVanished(
            f"There are files of a table at {store.uri} but its log (_index/timeline) is gone.",
            hint="Put the log back from a backup, or create the table somewhere else.",
        )


def _leave_note(store: ObjectStore) -> None:
    """Write a note for people who look into the folder.

    It also distinguishes a table without rows, whose log was deleted, from a creation that ended before its first
    commit.
    """
    try:
        store.put(NOTE, _NOTE.encode())
    except StorageError as error:
        logger.info("%s was not written: %s", NOTE, error.message)
