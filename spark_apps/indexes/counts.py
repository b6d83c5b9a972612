"""Holds a whole build of entries in a merge tree against the rows, by number, before it is committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_apps.indexes.handler import IndexContext
from spark_apps.indexes.locating import groups_of
from spark_apps.storage.errors import VerificationFailed
from spark_apps.timeline.model import DATA_TREE

if TYPE_CHECKING:
    from spark_apps.indexes.entries import EntryHandler


def check_counts(context: IndexContext, handler: EntryHandler) -> dict[str, Any]:
    """Compares entries with what they should tell of; returns the figures.

    :raises VerificationFailed: with both figures; such an index does not become active.
    """
    return _by_row(context, handler) if context.table.source is None else _by_file(context, handler)


def _by_row(context: IndexContext, handler: EntryHandler) -> dict[str, Any]:
    from spark_apps.indexes.entry_rows import live_rows

    snapshot = context.snapshot
    entries = live_rows(snapshot, handler.tree(context.table, context.definition))
    rows = live_rows(snapshot, snapshot.data)
    if entries != rows:
        raise VerificationFailed(
            f"The index {context.definition.name!r} would hold {entries:,} entries for {rows:,} rows of version "
            f"{snapshot.state.version}; it does not become active.",
            outcome="Nothing was changed.",
            hint="Build it again; if the figures differ again, verify the table's files.",
        )
    return {"entries": entries, "rows": rows}


def _by_file(context: IndexContext, handler: EntryHandler) -> dict[str, Any]:
    """Over a source an entry is one of a value and a file, so what can be compared is which files have some."""
    from spark_apps.indexes.entry_rows import live_rows

    snapshot = context.snapshot
    data = snapshot.state.files(DATA_TREE)
    told = groups_of(handler.entries(context), snapshot)
    lacking = [file for file in data if file.rows > 0 and file.group_key not in told]
    if lacking:
        raise VerificationFailed(
            f"The index {context.definition.name!r} would hold no entry for {len(lacking):,} of {len(data):,} files, "
            f"such as {lacking[0].path} with {lacking[0].rows:,} rows; it does not become active.",
            outcome="Nothing was changed.",
            hint="Build it again; if it happens again, verify the source's files.",
        )
    return {"entries": live_rows(snapshot, handler.tree(context.table, context.definition)), "files": len(data)}
