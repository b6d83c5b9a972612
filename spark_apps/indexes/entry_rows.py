"""Entries that name rows by key and place, as frames: what tells them apart, and how many there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark_apps.indexes.handler import PARTITION
from spark_apps.mergetree.read import scan
from spark_apps.mergetree.tree import GROUP_ID, FileGroups, Snapshot, Tree
from spark_apps.timeline.files import DataFile, GroupKey, is_merged
from spark_apps.timeline.model import NEW_KEYS, TableDefinition

ROWS_A_SHARD = 1_000_000
_MOST_SHARDS = 256

PLACE = (PARTITION, GROUP_ID)
"""Columns of entries that say where a row lives; the group only where no hash of the key tells it."""


def entry_key(table: TableDefinition, columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that tell apart the entries of an index over ``columns`` of a table.

    Nobody keeps record keys unique in a registered source, so there an entry says that a file holds a value, once, and
    no more.
    """
    if table.source is not None:
        return tuple(dict.fromkeys([*columns, *PLACE]))
    # The partition too: without a record index a record key is unique in its partition only.
    return tuple(dict.fromkeys([*columns, *table.record_key, PARTITION]))


def place_columns(table: TableDefinition) -> tuple[str, ...]:
    """The columns of :data:`PLACE` that entries on a table have."""
    return (PARTITION,) if table.bucketed else PLACE


def live_rows(snapshot: Snapshot, tree: Tree, groups: FileGroups | None = None) -> int:
    """How many rows file groups hold, merged: from the log where no merging is needed, else counted."""
    groups = snapshot.groups(tree.name) if groups is None else groups
    plain = [file for files in groups.values() if is_merged(files) and files[0].rows >= 0 for file in files]
    known = {file.group_key for file in plain}
    merged = {key: files for key, files in groups.items() if key not in known}
    counted = scan(snapshot, tree, merged, tree.key).count() if merged else 0
    return sum(file.rows for file in plain) + counted


def default_shards(rows: int) -> int:
    """How many shards an index over so many rows gets."""
    return max(1, min(_MOST_SHARDS, -(-rows // ROWS_A_SHARD)))


def appended(snapshot: Snapshot, lag: Mapping[GroupKey, int | None]) -> dict[GroupKey, list[DataFile]] | None:
    """The files that lagging file groups lag by, where all that these hold are keys that an index has no entry of:
    groups that came since, and inserts, of which each found that none of its keys was there. ``None`` where another
    change is among them, so that entries may have to go."""
    # Of a source nobody says what a file of a known name held before.
    if snapshot.table.source is not None:
        return None
    groups = snapshot.groups(only=lag.keys())
    found: dict[GroupKey, list[DataFile]] = {}
    for group, through in lag.items():
        files = groups.get(group, [])
        since = [] if through is None or through < 0 else [file for file in files if file.place > through]
        if not since or any(file.kind == "base" for file in since):
            return None
        inserts = all((file.extra or {}).get(NEW_KEYS) and not file.tombstones for file in since)
        if len(since) < len(files) and not inserts:
            return None
        found[group] = since
    return found


def split_lagging(
    snapshot: Snapshot, lag: Mapping[GroupKey, int | None]
) -> tuple[dict[GroupKey, list[DataFile]], dict[GroupKey, list[DataFile]]]:
    """Lagging file groups: those to compare as a whole, and those whose deltas since tell all (with these deltas)."""
    groups = snapshot.groups()
    whole: dict[GroupKey, list[DataFile]] = {}
    deltas: dict[GroupKey, list[DataFile]] = {}
    for group, through in lag.items():
        files = groups.get(group, [])
        since = [] if through is None else [file for file in files if file.place > through]
        # A base written since, or rows that went without a trace, say nothing of what changed.
        if through is None or through < 0 or not since or any(file.kind == "base" for file in since):
            whole[group] = files
        else:
            deltas[group] = since
    return {group: files for group, files in whole.items() if files}, deltas
