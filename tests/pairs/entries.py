"""What the files of an index hold, read plainly and held against rows: another way than the one that the code takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow.parquet as pq

from spark_apps.indexes.skipping.records import RecordFile
from spark_apps.mergetree.tree import Snapshot
from spark_apps.timeline.files import DataFile, covered_lineages
from spark_apps.timeline.model import DATA_TREE
from spark_apps.timeline.state import IndexEntry

Rows = Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]
"""File group -> its rows."""


def differences(snapshot: Snapshot, rows: Rows) -> Iterator[str]:
    """Rows that an index should tell of, and does not."""
    for name, entry in snapshot.state.indexes.items():
        if entry.definition.kind == "skipping":
            yield from _of_records(snapshot, name, entry)
        elif entry.definition.addresses == "key":
            yield from _by_key(snapshot, name, entry, rows)
        else:
            yield from _by_file(snapshot, name, entry)


def _by_key(snapshot: Snapshot, name: str, entry: IndexEntry, rows: Rows) -> Iterator[str]:
    """The newest word on each value and key decides."""
    definition, table = entry.definition, snapshot.table
    # Of another writer's rows, whose keys may repeat, an entry tells the file; of others the record key.
    by_group = table.source is not None
    record = definition.kind == "record"
    named = ([] if record else list(definition.columns)) + (list(table.record_key) if record or not by_group else [])
    live: dict[tuple[Any, ...], str] = {}
    for files in snapshot.state.groups(definition.tree).values():
        for file in files:
            for row in _read(snapshot, file):
                at = tuple(row.values())[: len(named)] + ((row["__index_group"],) if by_group else ())
                if row.get("__index_deleted"):
                    live.pop(at, None)
                else:
                    live[at] = row["__index_partition"]
    for group, held in rows.items():
        for row in held if entry.covers(group) else ():
            at = tuple(row[column] for column in named) + ((group[1],) if by_group else ())
            if live.get(at) != group[0]:
                yield f"{name} has {live.get(at, 'nothing')} and not {group[0]} for {at}"


def _by_file(snapshot: Snapshot, name: str, entry: IndexEntry) -> Iterator[str]:
    """Each file that the index says it covers has entries for all its values of the indexed columns."""
    definition, table = entry.definition, snapshot.table
    stored = {field.name: field.stored_name for field in table.fields}
    held = [stored.get(column, column) for column in definition.columns]
    files = snapshot.state.files(definition.tree)
    covered = covered_lineages(files)
    entries_by_lineage: dict[int, Counter[tuple[Any, ...]]] = {}
    for file in files:
        for row in _read(snapshot, file) if file.rows else ():
            values = tuple(row.get(column) for column in held)
            entries_by_lineage.setdefault(row["__index_lineage"], Counter())[values] += row.get("__index_rows", 1)
    for file in snapshot.state.files(DATA_TREE):
        if file.lineage not in covered:
            continue
        wanted = Counter(
            tuple(row.get(column) for column in held) for row in _read(snapshot, file) if not row.get("__index_deleted")
        )
        if wanted != entries_by_lineage.get(file.lineage, Counter()):
            yield f"{name} tells {entries_by_lineage.get(file.lineage)} and not {wanted} of {file.path}"


def _of_records(snapshot: Snapshot, name: str, entry: IndexEntry) -> Iterator[str]:
    """Each file that has a record, and each row group that has one, holds what its bounds of a number say."""
    files = {file.lineage: file for file in snapshot.state.files(DATA_TREE)}
    for own in snapshot.state.files(entry.definition.tree):
        for known in RecordFile(snapshot.store, own).known():
            file = files.get(known.lineage)
            if file is None:
                continue
            rows = [row for row in _read(snapshot, file) if not row.get("__index_deleted")]
            told = [known, *known.row_groups]
            whole, at = [rows], 0
            for one in known.row_groups:
                whole.append(rows[at : at + one.rows])
                at += one.rows
            for one, held in zip(told, whole, strict=True):
                numbers = [row["n"] for row in held if row["n"] is not None]
                said = one.rows, one.columns[0].low, one.columns[0].high
                wanted = (len(held), *(f"{edge(numbers)}".encode() if numbers else None for edge in (min, max)))
                if said != wanted:
                    yield f"{name} tells {said} and not {wanted} of {file.path}"


def _read(snapshot: Snapshot, file: DataFile) -> list[dict[str, Any]]:
    path = snapshot.store.spark_path(file.path).removeprefix("file://")
    return pq.ParquetFile(path).read().to_pylist()
