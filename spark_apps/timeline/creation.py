"""Making a table: version 0 of its log."""

from __future__ import annotations

from collections.abc import Iterable

from spark_apps.storage.errors import LogVanished, TableExists
from spark_apps.storage.store import ObjectStore
from spark_apps.timeline.log import ROOT, TIMELINE, Timeline, commit_key
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
from spark_apps.timeline.publish import new_txn_id


def create_table(
    store: ObjectStore,
    definition: TableDefinition,
    actions: Iterable[AnyAction] = (),
    *,
    txn_id: str | None = None,
    timeline: Timeline | None = None,
) -> tuple[Timeline, Receipt]:
    """Writes version 0. Of several at once one wins; the others get :class:`TableExists`.

    :param actions: what the table begins with: its hashing config, its indexes.
    :param txn_id: names the intent: a retry finds its own version 0.
    :raises TableExists: if there is a table. :raises LogVanished: if there are files of one but no log.
    """
    timeline = timeline or Timeline(store)
    txn_id = txn_id or new_txn_id("create")
    if store.head(commit_key(0)) is None and any(
        not info.key.startswith(f"{TIMELINE}/") for folder in (ROOT, "data") for info in store.list(folder)
    ):
        raise LogVanished(
            f"There are files of a table at {store.uri} but its log (_index/timeline) is gone.",
            hint="Put the log back from a backup, or create the table somewhere else.",
        )
    mine = Commit(
        format=FORMAT_VERSION,
        version=0,
        instant=timeline.next_instant(),
        operation="create",
        txn_id=txn_id,
        attempt=1,
        base=-1,
        writes=(Write(table_scope(), "replace"),),
        actions=(PutTable(definition), *actions),
    )
    landed = timeline.create(mine)
    if landed.txn_id != txn_id:
        raise TableExists(f"There is a table at {store.uri} already.", hint="Load it, or choose another location.")
    timeline.refresh()
    return timeline, Receipt.of(landed)
