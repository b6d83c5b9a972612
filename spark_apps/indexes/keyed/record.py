"""The ``record`` index: record key -> the partition that its row lives in.

Where it is kept with the data, a record key is unique in the whole table: writers find a key's old location by it, and
of two that add one key in two partitions at once the second is refused. Follows Hudi's RFC-8.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace as changed
from typing import Any, ClassVar, Literal

from msgspec.structs import replace

from spark_apps.engine.pyspark_names import DataFrame, F, Row, T
from spark_apps.indexes.handler import PARTITION, REPEATED, ChangedRows, Changes, IndexContext, IndexWork
from spark_apps.indexes.keyed.entries import EntryHandler, count_live_rows, entry_key, group_columns
from spark_apps.indexes.keyed.lookup import (
    TooManyEntries,
    lookup_table,
    naming_damage,
    with_group_marks,
    with_partition_path,
)
from spark_apps.indexes.keyed.matching import keys_to_arrow, kinds_of, normalize_column
from spark_apps.indexes.limits import MAX_LOCAL_LOOKUP_ROWS, MAX_LOOKUP_ROWS, MAX_NEW_KEYS
from spark_apps.indexes.registry import find
from spark_apps.layout.types import ColumnType, normalize
from spark_apps.mergetree.integrity import count_duplicates, is_countable
from spark_apps.mergetree.read import read_files, scan_keys, with_keys
from spark_apps.mergetree.schema import column, resolve, struct_type
from spark_apps.mergetree.times import InexactTimes, exact, is_within_years
from spark_apps.mergetree.tree import Snapshot, Tree
from spark_apps.storage.arrow_keys import positions_of_keys
from spark_apps.storage.errors import InvalidInput, InvalidSchema, StorageError, VerificationFailed
from spark_apps.storage.parquet.listed import ParquetFiles
from spark_apps.storage.store import ObjectStore
from spark_apps.timeline.commit import ByKeys, KeysConflict
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import AddFile, Commit, IndexDefinition, Scope, TableDefinition

logger = logging.getLogger(__name__)

_EXAMPLES = 3
_MARK = "__index_mark"
_ROWS = "__index_rows"
COMPRESSION = "compression"
_NONE, _OF_SESSION = "none", "session"


class RecordHandler(EntryHandler):
    """The kind with one entry per record key."""

    kind: ClassVar[str] = "record"
    unique_keys: ClassVar[bool] = True
    changeable: ClassVar[frozenset[str]] = frozenset({COMPRESSION})

    def options(self, table: TableDefinition, definition: IndexDefinition) -> dict[str, str]:
        compression = definition.properties.get(COMPRESSION, _NONE)
        if compression not in (_NONE, _OF_SESSION):
            raise InvalidInput(
                f"The index property {COMPRESSION!r} is {compression!r}.", hint=f"Use one of: {_NONE}, {_OF_SESSION}."
            )
        return {COMPRESSION: compression}

    def tree(self, table: TableDefinition, definition: IndexDefinition) -> Tree:
        tree = super().tree(table, definition)
        # Keys of several columns are never searched in pages.
        compressed = definition.properties.get(COMPRESSION) != _NONE or not tree.unique
        return changed(tree, compressed=compressed)

    def validate(self, table: TableDefinition, definition: IndexDefinition) -> IndexDefinition:
        columns = resolve(definition.columns, struct_type(table.fields).names, f"The index {definition.name!r}")
        if columns and columns != table.record_key:
            raise InvalidInput(
                f"A record index is over the record key, ({', '.join(table.record_key)}), not ({', '.join(columns)}).",
                hint="Leave the columns out, or use kind='secondary'.",
            )
        if not table.record_key:
            raise InvalidInput(
                f"The record index {definition.name!r} is over the record key, and this source was registered without.",
                hint="Register it with record_key=[…], or use kind='secondary' with columns.",
            )
        return super().validate(table, replace(definition, columns=table.record_key))

    def key(self, table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
        return table.record_key if table.source is None else entry_key(table, table.record_key)

    def reads(self, table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
        return ()

    def maintain(self, context: IndexContext, changes: Changes) -> IndexWork:
        if changes.settled:
            return IndexWork(metrics={"entries": 0, "tombstones": 0})
        if changes.located is not None:
            # By the entries of the keys, which may be of any partition, and not by the rows.
            everywhere = changes.replaced | context.snapshot.state.partitions.keys()
            changes = changed(changes, before=changes.located, replaced=everywhere)
        elif changes.before is not None and context.snapshot.state.index(context.definition.name).lag:
            changes = changed(changes, before=self._confirmed_rows(context, changes.before))
        return self._with_conflict(context, super().maintain(context, changes))

    def maintain_rows(self, context: IndexContext, changes: ChangedRows) -> IndexWork | None:
        if changes.settled:
            return IndexWork(metrics={"entries": 0, "tombstones": 0})
        if changes.located is not None:
            changes = changed(changes, before=changes.located)
        elif context.snapshot.state.index(context.definition.name).lag:
            return None  # an entry may be of another row than the one that changed
        work = super().maintain_rows(context, changes)
        return None if work is None else self._with_conflict(context, work)

    def _with_conflict(self, context: IndexContext, work: IndexWork) -> IndexWork:
        """Return the work with the rule for keys that another commit writes too."""
        added = [action for action in work.actions if isinstance(action, AddFile)]
        if not added:
            return work
        tree = self.tree(context.table, context.definition)
        return changed(work, keys_conflict=_keys_conflict(context.snapshot.store, tree, added))

    def _confirmed_rows(self, context: IndexContext, rows: DataFrame) -> DataFrame:
        """Return the rows whose entry has the partition that they are in.

        While there are file groups that the index does not cover, one of them may hold a row of the same key, and the
        entry of that key may be of the other row.
        """
        snapshot, tree = context.snapshot, self.tree(context.table, context.definition)
        located = with_partition_path(rows, snapshot.data, snapshot.state.partitions)
        keys = located.select(*map(column, tree.key)).distinct()
        entries = scan_keys(snapshot, tree, snapshot.groups(tree.name), [*tree.key, PARTITION], keys, tree.key)
        return with_keys(located, entries, tree, [*tree.key, PARTITION]).drop(PARTITION)

    def needs_rows(self, table: TableDefinition, definition: IndexDefinition) -> bool:
        return False

    def locate(self, context: IndexContext, keys: DataFrame) -> DataFrame | None:
        snapshot, tree = context.snapshot, self.tree(context.table, context.definition)
        entries = scan_keys(snapshot, tree, snapshot.groups(tree.name), tree.columns, keys, tree.key)
        lag = snapshot.state.index(context.definition.name).lag
        if lag:
            # Entries of a file group that is not covered may be out of date; the caller reads the group itself.
            located = with_group_marks(entries, snapshot, dict.fromkeys(lag, "lags"), _MARK)
            entries = located.where(F.col(_MARK).isNull()).drop(_MARK)
        return entries.select(*map(column, [*tree.key, *group_columns(context.table)]))

    def places(self, context: IndexContext, keys: Any) -> Any | None:
        snapshot, tree = context.snapshot, self.tree(context.table, context.definition)
        if snapshot.state.index(context.definition.name).lag:
            return None
        times = [name for name in tree.key if isinstance(tree.field(name).dataType, T.TimestampType)]
        if not all(is_within_years(keys.column(name)) for name in times):
            return None  # entries of such keys may have been read as others
        most = MAX_LOCAL_LOOKUP_ROWS if is_countable(snapshot.store, tree) else MAX_LOOKUP_ROWS
        try:
            return lookup_table(snapshot, tree, keys, context.definition.shards, most).table
        except TooManyEntries:
            return None

    # --- Uniqueness ---------------------------------------------------------------------------------------------------

    def repetition(self, context: IndexContext, tree: Tree) -> Literal["none", "merge", "count"]:
        table = context.table
        if table.source is None and not _can_repeat(table):
            return "none"
        return "count" if table.source is None and is_countable(context.snapshot.store, tree) else "merge"

    def check_entries(self, context: IndexContext, entries: int) -> None:
        if not _can_repeat(context.table):
            return
        rows = count_live_rows(context.snapshot, context.snapshot.data)
        if rows > entries:
            entries_of_rows = self.expected(context, context.snapshot.groups())
            _refuse_keys_in_several_partitions(context, entries_of_rows, f"{rows:,} rows have {entries:,} record keys")

    def repeated_keys(
        self, context: IndexContext, tree: Tree, added: Sequence[AddFile], entries: DataFrame
    ) -> Mapping[str, int]:
        table, snapshot = context.table, context.snapshot
        if table.source is None:
            return {}
        counts = [file.rows for file in snapshot.state.files(snapshot.data.name)]
        once_a_file = min(counts, default=0) >= 0 and sum(counts) == sum(action.rows for action in added)
        countable = once_a_file and is_countable(snapshot.store, tree)
        if countable and not count_duplicates(snapshot.store, tree, added, table.record_key):
            return {}
        if once_a_file:  # what was staged is less to read than the source
            staged_files = [DataFile.of(action, snapshot.state.version) for action in added]
            entries = read_files(snapshot, tree, staged_files, table.record_key)
        key = list(map(column, table.record_key))
        repeated = entries.groupBy(*key).agg(F.count(F.lit(1)).alias(_ROWS)).where(F.col(_ROWS) > 1)
        figures = repeated.agg(F.count(F.lit(1)), F.sum(_ROWS)).collect()[0]
        if not figures[0]:
            return {}
        examples = "; ".join(
            ", ".join(f"{name}={row[name]!r}" for name in table.record_key) + f" ({row[_ROWS]} rows)"
            for row in repeated.orderBy(F.col(_ROWS).desc(), *key).limit(_EXAMPLES).collect()
        )
        logger.warning(
            "The record index %r is over keys of which %d name several rows, %d together, such as %s. Each such row is "
            "found by it. If a key should name one row, look at how the files of %s are written.",
            context.definition.name, figures[0], figures[1], examples, table.source.location,
        )  # fmt: skip
        return dict(zip(REPEATED, figures, strict=True))

    def check_appended(self, context: IndexContext, tree: Tree, added: Sequence[AddFile]) -> None:
        if not _can_repeat(context.table) or not added or _are_surely_new(context, tree, added):
            return
        snapshot = context.snapshot
        staged_files = [DataFile.of(action, snapshot.state.version) for action in added]
        keys = read_files(snapshot, tree, staged_files, [*tree.key, PARTITION])
        shards = {file.group for file in staged_files}
        existing = [file for file in snapshot.state.files(tree.name) if file.group in shards]
        all_entries = keys
        if existing:
            # Where new keys are above all others, as in order of time, Spark skips the files by their statistics.
            lowest, highest = keys.agg(F.min(column(tree.key[0])), F.max(column(tree.key[0]))).collect()[0]
            others = read_files(snapshot, tree, existing, [*tree.key, PARTITION])
            others = others.where(column(tree.key[0]).between(F.lit(lowest), F.lit(highest)))
            all_entries = all_entries.unionByName(
                with_keys(others, keys, tree, tree.key, sum(file.rows for file in staged_files))
            )
        # Unmerged entries may be out of date: where they conflict, entries are merged.
        if _keys_in_several_partitions(context, all_entries):
            self.check_additions(context, keys, self.entries(context))

    def check_additions(self, context: IndexContext, new: DataFrame, others: DataFrame) -> None:
        if not _can_repeat(context.table):
            return
        tree = self.tree(context.table, context.definition)
        names = [*tree.key, PARTITION]
        all_entries = new.select(*map(column, names)).unionByName(
            with_keys(others, new, tree, tree.key).select(*map(column, names))
        )
        _refuse_keys_in_several_partitions(context, all_entries, "some record keys are in several partitions")


def _can_repeat(table: TableDefinition) -> bool:
    """Return whether one record key can be in two partitions, where that would be a fault."""
    # Of a source an entry is one of a key and a file, so a key may have several.
    return table.source is None and not set(table.partition_by) <= set(table.record_key)


def _are_surely_new(context: IndexContext, tree: Tree, added: Sequence[AddFile]) -> bool:
    """Return whether the driver has looked for the keys of staged entries, and found each once and without another."""
    snapshot = context.snapshot
    if sum(file.rows for file in added) > MAX_NEW_KEYS or not is_countable(snapshot.store, tree):
        return False
    if count_duplicates(snapshot.store, tree, added):
        return False
    try:
        keys = _read_keys(snapshot.store, tree, added)
        existing = lookup_table(snapshot, tree, keys, context.definition.shards, most_rows=MAX_LOCAL_LOOKUP_ROWS)
    except (TooManyEntries, InexactTimes):
        return False
    return not len(existing.table)


def _keys_in_several_partitions(context: IndexContext, entries: DataFrame) -> list[Row]:
    """Return a few record keys that have entries in several partitions, with these."""
    partitions = F.sort_array(F.collect_set(PARTITION)).alias(PARTITION)
    by_key = entries.groupBy(*map(column, context.table.record_key)).agg(partitions)
    return by_key.where(F.size(PARTITION) > 1).limit(_EXAMPLES).collect()


def _refuse_keys_in_several_partitions(context: IndexContext, entries: DataFrame, reason: str) -> None:
    """Refuse entries of one record key in several partitions.

    :raises VerificationFailed: with examples, if a record key has entries in several partitions.
    """
    key = list(context.table.record_key)
    keys = _keys_in_several_partitions(context, entries)
    if not keys:
        return
    examples = "; ".join(
        ", ".join(f"{name}={row[name]!r}" for name in key) + " in " + " and ".join(map(repr, row[PARTITION][:3]))
        for row in keys
    )
    raise VerificationFailed(
        f"The record index {context.definition.name!r} cannot say where a key lives: {reason}, such as {examples}.",
        outcome="Nothing was changed.",
        hint="delete_repeated_keys() (also an operation of WriteTableOperator) keeps one row of each key, the one "
        "written last; delete() with a predicate that names the partition takes one of your choice. Then try again. Or "
        "make the partition columns part of the key.",
    )


def _keys_conflict(store: ObjectStore, tree: Tree, staged: Sequence[AddFile]) -> KeysConflict:
    """Return whether another commit wrote a key into a shard that this one writes too."""

    def conflict(scope: Scope, commit: Commit) -> bool:
        their_files = [
            action
            for action in commit.actions
            if isinstance(action, AddFile) and action.tree == tree.name and action.group == scope.group
        ]
        our_files = [action for action in staged if action.group == scope.group]
        if not their_files or not our_files:
            return False
        try:
            keys = _read_keys(store, tree, our_files)
            return len(positions_of_keys(keys, _read_keys(store, tree, their_files), keys.column_names)) > 0
        except (StorageError, InexactTimes):
            return True  # what cannot be read may hold a key of this commit; the caller tries again on the new state

    return ByKeys({tree.name: tuple(map(tree.stored, tree.key))}, conflict)


def _read_keys(store: ObjectStore, tree: Tree, files: Sequence[AddFile]) -> Any:
    """Return the keys of files of an index.

    :raises InexactTimes: if they are times that Arrow may have taken for others.
    """
    import pyarrow as pa

    tables = []
    for file in files:
        with naming_damage(file.path):
            read = ParquetFiles(store).open(file).columns(list(map(tree.stored, tree.key)))
        columns = [exact(tree, name, read.column(tree.stored(name))) for name in tree.key]
        tables.append(pa.table(list(map(normalize_column, columns, kinds_of(tree, tree.key))), names=list(tree.key)))
    return pa.concat_tables(tables)


# --- lookup of keys that are given as Python values or Arrow columns --------------------------------------------------


def look_up(snapshot: Snapshot, keys: Any, index: str | None = None) -> Any:
    """Return the entries of a record index for record keys.

    :param keys: an Arrow array (of a key of one column), an Arrow table or batch whose columns are those of the key, or
        Python values: one each, or tuples.
    :param index: name of a record index; the only one if not given.
    :returns: an Arrow table of the keys found, once each: the key columns and ``__index_partition``, and
        ``__index_group`` where no hash of the key gives a row's file group.
    :raises InvalidInput: if there is no such index, or it does not cover all rows.
    :raises InvalidSchema: if a key is not one.
    :raises StorageError: if a file of the index is missing or damaged.
    """
    name = _only_record_index(snapshot) if index is None else index
    entry = snapshot.state.index(name)
    handler = find(entry.definition.kind)
    if not isinstance(handler, EntryHandler) or entry.definition.kind != "record":
        raise InvalidInput(
            f"The index {name!r} is of kind {entry.definition.kind!r}, which does not say where a key lives.",
            hint="Ask a record index, or read(where).",
        )
    if entry.lag:
        raise InvalidInput(
            f"The index {name!r} does not cover {len(entry.lag)} file groups, and would miss keys there.",
            hint=f"Run refresh_index({name!r}), or read(where), which looks there too.",
        )
    tree = handler.tree(snapshot.table, entry.definition)
    return lookup_table(snapshot, tree, keys_of(tree, tree.hash_fields, keys), entry.definition.shards).table


def _only_record_index(snapshot: Snapshot) -> str:
    names = [name for name, entry in snapshot.state.indexes.items() if entry.definition.kind == "record"]
    if len(names) != 1:
        raise InvalidInput(
            f"The table has {len(names)} record indexes.", hint="Create one with create_index, or name one of them."
        )
    return names[0]


def keys_of(tree: Tree, names: Sequence[str], keys: Any) -> Any:
    """Return keys as :func:`look_up` takes them, as an Arrow table with some columns of a tree.

    :raises InvalidSchema: if a key is not one.
    """
    import pyarrow as pa

    kinds = kinds_of(tree, names)
    if isinstance(keys, (pa.Array, pa.ChunkedArray)):
        keys = pa.table([keys], names=["" if len(names) > 1 else names[0]])
    if isinstance(keys, (pa.Table, pa.RecordBatch)):
        if missing := [name for name in names if keys.schema.names.count(name) != 1]:
            raise InvalidSchema(f"The keys have no column {missing[0]!r}.", hint=f"Give ({', '.join(names)}).")
        columns = [_cast(keys.column(name), kind, name) for name, kind in zip(names, kinds, strict=True)]
        return pa.table(columns, names=list(names))
    rows = [_checked(key if isinstance(key, (tuple, list)) else (key,), kinds) for key in keys]
    return keys_to_arrow(tree, rows, names)


def _checked(key: Sequence[Any], kinds: Sequence[ColumnType]) -> tuple[Any, ...]:
    if len(key) != len(kinds):
        raise InvalidSchema(f"The key {key!r} has {len(key)} values, not {len(kinds)}.", hint="Give one a column.")
    return tuple(map(normalize, key, kinds))


def _cast(values: Any, kind: ColumnType, name: str) -> Any:
    import pyarrow as pa

    stored_type = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    try:
        if not _is_compatible(stored_type, kind):
            raise pa.ArrowInvalid(f"{stored_type} values")
        return normalize_column(values, kind)
    except pa.ArrowException as error:
        raise InvalidSchema(
            f"Keys of type {values.type} are not values of the column {name!r}, of type {kind.text!r}: {error}.",
            hint="Cast them first.",
        ) from error


def _is_compatible(stored_type: Any, kind: ColumnType) -> bool:
    """Return whether Arrow values of a type are values of a Spark type: a number is no string, nor the reverse."""
    import pyarrow.types as pt

    if kind.kind == "string":
        return bool(pt.is_string(stored_type) or pt.is_large_string(stored_type) or pt.is_string_view(stored_type))
    if kind.kind == "binary":
        return bool(
            pt.is_binary(stored_type) or pt.is_large_binary(stored_type) or pt.is_fixed_size_binary(stored_type)
        )
    if kind.kind == "boolean":
        return bool(pt.is_boolean(stored_type))
    if kind.kind == "date":
        return bool(pt.is_date32(stored_type))
    if kind.kind in ("timestamp", "timestamp_ntz"):
        return bool(pt.is_timestamp(stored_type)) and (kind.kind == "timestamp" or stored_type.tz is None)
    number = pt.is_integer(stored_type) or (pt.is_floating(stored_type) and kind.kind in ("float", "double"))
    return bool(number or (pt.is_decimal(stored_type) and kind.kind == "decimal"))
