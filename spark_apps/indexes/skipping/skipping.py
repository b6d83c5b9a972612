"""The handler of the ``skipping`` index: a query leaves out file groups of which no file can hold a matching row.

Of each data file, base and delta alike, it keeps what its rows hold of some columns and expressions: the lowest and
the highest value, the values themselves where they are few, a Bloom filter of them, one of the runs of bytes in texts,
how many are null. That is computed from the file alone and stays right as long as there is the file, whatever is
written over it; what a delta holds can only add rows to its group, so a group is left out if no file in it can match.
Files that the index does not know are read. If it says so in a property, it keeps the same of the row groups of Parquet
files: a file is left out if none of them can match, and of the others those that can are read where that is possible.

Follows Hive's Index Design (the handler) and ClickHouse's skipping indexes (what is kept of a part).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace as changed
from typing import Any, ClassVar, Literal

from msgspec.structs import replace

from spark_apps.engine.pyspark_names import spark_errors
from spark_apps.indexes.handler import (
    EXAMPLES,
    Candidates,
    CannotPrune,
    Changes,
    Difference,
    Extremes,
    IndexContext,
    IndexHandler,
    IndexPlan,
    IndexWork,
    PredicateProbe,
    VerificationReport,
    unreadable,
)
from spark_apps.indexes.lineage import Coverage, stage_id
from spark_apps.indexes.lineage import Part as Covered
from spark_apps.indexes.ranges import NOTHING, Range, Summary
from spark_apps.indexes.skipping.collecting import collect, collect_row_groups
from spark_apps.indexes.skipping.collecting_here import Facts, collect_here
from spark_apps.indexes.skipping.definition import (
    Part,
    Settings,
    check_granularity,
    check_types,
    checked_properties,
    parts_of,
    read_parts,
    settings_of,
    shown_part,
    with_types,
)
from spark_apps.indexes.skipping.records import (
    ABOVE,
    ColumnRecord,
    Known,
    RecordFile,
    alike,
    all_known,
    bytes_of_row_groups,
    written,
)
from spark_apps.indexes.skipping.row_groups import Divided, divide
from spark_apps.indexes.stamps import stamp, stamp_of
from spark_apps.mergetree.schema import column_types
from spark_apps.mergetree.tree import Snapshot
from spark_apps.mergetree.write import lineage as id_of
from spark_apps.storage.errors import InvalidInput, StorageError
from spark_apps.timeline.files import DataFile, GroupKey, is_merged, lowest_plain_file
from spark_apps.timeline.model import (
    DATA_TREE,
    AddFile,
    AnyAction,
    IndexDefinition,
    MarkCovered,
    RemoveFile,
    TableDefinition,
    Write,
    WriteMode,
    shard_scope,
)

RECORDS = "records"
"""File group of the index's files, and its only scope."""

_THREADS = 16
_MOST_LOOKUPS = 100_000
"""So often one question looks into filters, which takes some tenths of a second; what is left may match."""

_MOST_ROW_GROUPS_ASKED = 20_000
"""Of so many row groups one question is about, which takes some tenths of a second; files beyond are read whole."""

_FILES_AT_ONCE = 2_000
"""Data files that are read for records by one Spark job."""

_MOST_SHARE, _ALWAYS_BYTES = 10, 64 * 1024
"""The records of a file's row groups are kept if they take no more than such a part of its bytes, or so few bytes."""


class SkippingHandler(IndexHandler):
    """The kind with one record a data file."""

    kind: ClassVar[str] = "skipping"
    by_key: ClassVar[bool] = False
    maintains: ClassVar[bool] = False
    follows_files: ClassVar[bool] = True
    by_value = True

    # --- Definition ---------------------------------------------------------------------------------------------------

    def validate(self, table: TableDefinition, definition: IndexDefinition) -> IndexDefinition:
        label = f"The skipping index {definition.name!r}"
        if definition.included:
            raise InvalidInput(f"{label} has no included columns.", hint="Use kind='covering' for those.")
        if not definition.columns:
            raise InvalidInput(
                f"{label} keeps nothing.", hint="Say what, as in columns=['minmax(ts)', 'bloom(user_id)']."
            )
        check_granularity(table, definition, label)
        parts = read_parts(definition.columns, column_types(table.fields), label)
        columns = tuple(dict.fromkeys(shown_part(kind, expression) for kind, expression in parts))
        return replace(
            definition, columns=columns, addresses="file", partition_by=(), shards=1,
            properties=checked_properties(definition.properties, label),
        )  # fmt: skip

    def complete(self, snapshot: Snapshot, definition: IndexDefinition) -> IndexDefinition:
        label = f"The skipping index {definition.name!r}"
        completed = replace(definition, properties=with_types(snapshot, definition, label))
        check_types(snapshot.table, completed, label)
        return completed

    def holds(self, table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for part in parts_of(table, definition) for name in part.expression.columns))

    def asked_by(self, table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
        return self.holds(table, definition)

    def expressions(self, table: TableDefinition, definition: IndexDefinition) -> dict[str, str]:
        parts = parts_of(table, definition)
        return {part.expression.text: part.type.text for part in parts if part.expression.column is None}

    # --- Build and refresh --------------------------------------------------------------------------------------------

    def plan(self, context: IndexContext, mode: str = "full", partitions: Sequence[str] | None = None) -> IndexPlan:
        name = context.definition.name
        if mode == "quick":
            return IndexPlan(name, mode, (), 0, 0, "a quick refresh reads and writes nothing")
        files = _files_to_index(context, mode == "full", partitions)
        groups = tuple(dict.fromkeys(file.group_key for file in files))
        reason = "all files" if mode == "full" else f"{len(files)} files are not covered"
        return IndexPlan(name, mode, groups, len(files), sum(file.bytes for file in files), reason)

    def build(self, context: IndexContext) -> IndexWork:
        return self._index(context, _files_to_index(context, True, None), None)

    def maintain(self, context: IndexContext, changes: Changes) -> IndexWork:
        return IndexWork()

    def follow(self, context: IndexContext, files: Sequence[DataFile]) -> IndexWork:
        if not all(file.lineage for file in files):
            return IndexWork()
        added = _staged(context, self._collected(context, files), files)
        return _work(context, [added], "append", {"files": len(files), "bytes": added.bytes})

    def refresh(
        self,
        context: IndexContext,
        mode: Literal["incremental", "full", "quick"] = "incremental",
        partitions: Sequence[str] | None = None,
    ) -> IndexWork:
        lag = context.snapshot.state.index(context.definition.name).lag
        if mode == "quick":
            return IndexWork(metrics={"lagging_groups": len(lag)})
        files = _files_to_index(context, mode == "full", partitions)
        if mode == "full":
            return self._rebuild(context, files, partitions)
        if not files and not lag:
            return IndexWork()
        return self._index(context, files, partitions)

    def compact(self, context: IndexContext, mode: Literal["quick", "full"] = "quick") -> IndexWork:
        files = _own_files(context)
        live = _live(context)
        gone = Coverage.of(files).lineages - live
        if len(files) < 2 and not (gone and mode == "full"):
            return IndexWork()
        # Files of a source may come back as they were; of a keyed table a restore brings them back, and these records.
        keep = live if mode == "full" or context.table.source is None else None
        known = all_known(_opened(context, files), keep)
        added = _staged(context, known)
        metrics = {"mode": mode, "files_before": len(files), "files_after": 1, "rows": len(known),
                   "dropped": len(gone) if keep is not None else 0}  # fmt: skip
        return _work(context, [*_remove_files(files), added], "fold", metrics)

    def _index(self, context: IndexContext, files: Sequence[DataFile], partitions: Sequence[str] | None) -> IndexWork:
        """Stage records of these files beside those that there are."""
        cover = MarkCovered(
            context.definition.tree, context.snapshot.state.version, None if partitions is None else tuple(partitions)
        )
        if not files:
            return _work(context, [cover], "backdated", {"files": 0})
        added = _staged(context, self._collected(context, files), files)
        return _work(context, [added, cover], "backdated", {"files": len(files)})

    def _rebuild(self, context: IndexContext, files: Sequence[DataFile], partitions: Sequence[str] | None) -> IndexWork:
        """Stage the records of all files anew, or of those in some partitions, in place of the earlier ones."""
        old = _own_files(context)
        known: list[Known] = []
        if partitions is not None:
            if not files:
                return IndexWork()
            again = {file.lineage for file in files}
            known = [each for each in all_known(_opened(context, old)) if each.lineage not in again]
        known += self._collected(context, files)
        cover = MarkCovered(
            context.definition.tree, context.snapshot.state.version, None if partitions is None else tuple(partitions)
        )
        staged = [_staged(context, known)] if known else []
        return _work(context, [*_remove_files(old), *staged, cover], "fold", {"files": len(files)})

    def _collected(self, context: IndexContext, files: Sequence[DataFile]) -> list[Known]:
        parts, settings = parts_of(context.table, context.definition), _settings(context)
        known: list[Known] = []
        for start in range(0, len(files), _FILES_AT_ONCE):
            known += _known(context, parts, settings, files[start : start + _FILES_AT_ONCE])
        return known

    # --- Queries ------------------------------------------------------------------------------------------------------

    def can_prune(
        self, table: TableDefinition, definition: IndexDefinition, probe: PredicateProbe
    ) -> CannotPrune | None:
        parts = parts_of(table, definition)
        named = any(not probe.columns.isdisjoint(part.expression.columns) for part in parts)
        if not named or probe.may_match(dict.fromkeys((part.expression.key for part in parts), NOTHING)):
            return CannotPrune("the predicate does not bound its expressions", "no_keys")
        return None

    def prune(self, context: IndexContext, probe: PredicateProbe) -> Candidates | CannotPrune:
        asked = _Asked(context, probe)
        left: set[GroupKey] = set()
        groups = context.snapshot.groups()
        for group, members in groups.items():
            # What a delta replaces or deletes can only go: the rows of a group are among those of its files.
            if any(asked.may_match(file) for file in members):
                left.add(group)
        if asked.unknown and not asked.known:
            return CannotPrune("it tells of none of the files", "covers_nothing")
        row_groups = {
            file.lineage: asked.left[file.lineage]
            for group in left
            for file in _read_by_row_groups(context.table, groups[group])
            if file.lineage in asked.left
        }
        blocks = {lineage: some for lineage, (some, count) in row_groups.items() if len(some) < count}
        if len(left) == len(groups) and groups and not blocks:
            return CannotPrune(f"it rules out none of the {asked.known:,} files that it tells of", "no_gain")
        counts = {lineage: row_groups[lineage][1] for lineage in blocks}
        return Candidates(frozenset(left), None, asked.files, asked.fetched, blocks or None, counts or None)

    def extremes(self, context: IndexContext, column: str) -> dict[int, Extremes]:
        types = {part.expression.text: part.type for part in parts_of(context.table, context.definition)
                 if part.expression.column == column}  # fmt: skip
        told: dict[int, Extremes] = {}
        for records in _opened(context, _own_files(context)) if types else ():
            header = records.header
            for at, text in enumerate(header.keys):
                if text not in types or header.types[at] != types[text].text:
                    continue  # another column, or the column as it was
                for record in header.files:
                    one = record.columns[at]
                    if one.low is not None and one.high is not None:
                        low, high = records.value(one.low, at), records.value(one.high, at)
                        told[record.lineage] = Extremes(one.filled, low, high)
        return told

    def verify(self, context: IndexContext) -> VerificationReport:
        files = _own_files(context)
        try:
            return self._compared(context, files)
        except spark_errors(StorageError) as error:
            return unreadable(context, files, error)

    def _compared(self, context: IndexContext, own: Sequence[DataFile]) -> VerificationReport:
        snapshot = context.snapshot
        stored = {each.lineage: each for each in all_known(_opened(context, own))}
        parts = parts_of(context.table, context.definition)
        here = stamp_of(snapshot.spark, [part.expression for part in parts])
        files = [
            file for file in snapshot.state.files(DATA_TREE)
            if file.lineage in stored and (not here or dict(stored[file.lineage].stamp) == here)
        ]  # fmt: skip
        differences: list[Difference] = []
        wrong = rows = 0
        for expected in self._collected(context, files):
            rows += expected.rows
            found = _differing(parts, stored[expected.lineage], expected)
            wrong += len(found)
            differences += found
        compared = {file.lineage for file in files}
        return VerificationReport(
            index=context.definition.name,
            version=snapshot.state.version,
            rows=rows,
            entries=len(stored),
            missing=0,
            too_many=0,
            wrong_partition=0,
            wrong_values=wrong,
            stale=len(stored) - len(compared),
            uncovered=sum(
                not all(file.lineage in compared for file in members) for members in snapshot.groups().values()
            ),
            differences=tuple(differences[:EXAMPLES]),
        )


def _known(context: IndexContext, parts: Sequence[Part], settings: Settings, files: Sequence[DataFile]) -> list[Known]:
    """Return what is to be known of data files: read by Arrow what it can, and by Spark the rest."""
    divided = divide(context.snapshot, files) if settings.row_groups else {}
    known = _known_of_files(context, parts, settings, files, divided)
    return [bounded(each, file) for each, file in zip(known, files, strict=True)] if divided else known


def _known_of_files(
    context: IndexContext,
    parts: Sequence[Part],
    settings: Settings,
    files: Sequence[DataFile],
    divided: Mapping[int, Divided],
) -> list[Known]:
    units = {lineage: each.units for lineage, each in divided.items()}
    found, here = collect_here(context, parts, settings, files, units)
    left = [number for number in range(len(parts)) if number not in here]
    by_spark = [parts[number] for number in left] if here else parts
    others = collect(context, by_spark, settings, files) if by_spark else []
    if here and any(each.rows != other.rows for each, other in zip(found, others, strict=False)):
        by_spark, here = parts, frozenset()  # Arrow and Spark do not see the same rows
        others = collect(context, parts, settings, files)
    row_groups = collect_row_groups(context, by_spark, settings, list(divided.values())) if by_spark else {}
    if not here:
        return [changed(each, row_groups=tuple(row_groups.get(each.lineage, ()))) for each in others]
    stamped = stamp_of(context.snapshot.spark, [part.expression for part in parts])

    def joined(each: Facts, other: Known | None) -> Known:
        columns, filters = dict(each.columns), each.arrays()
        if other is not None:
            columns.update(zip(left, other.columns, strict=True))
            filters.update({(left[number], kind): made for (number, kind), made in other.filters.items()})
        ordered = tuple(columns[number] for number in range(len(parts)))
        return Known(each.lineage, each.rows, stamped, ordered, filters)

    known = []
    for at, each in enumerate(found):
        mine: Sequence[Known | None] = row_groups.get(each.lineage, ()) if left else [None] * len(each.row_groups)
        whole = joined(each, others[at] if others else None)
        if len(mine) == len(each.row_groups):
            whole = changed(whole, row_groups=tuple(map(joined, each.row_groups, mine)))
        known.append(whole)
    return known


def bounded(known: Known, file: DataFile) -> Known:
    """Return what is known of a file, without its row groups if this takes too much beside the file."""
    if bytes_of_row_groups(known) <= max(_ALWAYS_BYTES, file.bytes // _MOST_SHARE):
        return known
    return changed(known, row_groups=())


# --- What a query asks ------------------------------------------------------------------------------------------------


class _Asked:
    """A predicate that is put to the records of data files."""

    def __init__(self, context: IndexContext, probe: PredicateProbe) -> None:
        self._probe = probe
        own = _own_files(context)
        self._records = _opened(context, own)
        self.files, self.known, self.unknown = len(own), 0, 0
        self._of = {
            record.lineage: (file, number)
            for file in reversed(self._records)
            for number, record in enumerate(file.header.files)
        }
        parts = parts_of(context.table, context.definition)
        self._parts = [part for part in parts if not probe.columns.isdisjoint(part.expression.columns)]
        stamped = any(part.expression.stamped for part in self._parts)
        self._lookups = self._row_groups_asked = 0
        self.left: dict[int, tuple[frozenset[int], int]] = {}
        """Lineage of a file that was asked of -> its row groups that may match, and how many it has, if it is known."""
        self._stamp = stamp(context.snapshot.spark) if stamped and context.snapshot.has_spark else None

    @property
    def fetched(self) -> int:
        return sum(file.fetched for file in self._records)

    def may_match(self, file: DataFile) -> bool:
        """Tell whether a data file may hold a row that satisfies the predicate."""
        found = self._of.get(file.lineage) if file.lineage else None
        if found is None:
            self.unknown += 1
            return True
        self.known += 1
        records, number = found
        record = records.header.files[number]
        matches = self._probe.may_match(self._values(records, number, record.rows, record.columns, record.stamp))
        count = records.row_groups_of(number)
        if count is None or (file.rows >= 0 and record.rows != file.rows - file.tombstones):
            return matches
        left = frozenset[int]()
        if matches:
            if self._row_groups_asked + count > _MOST_ROW_GROUPS_ASKED:
                return True
            self._row_groups_asked += count
            left = frozenset(
                at
                for at, (unit, rows, columns) in enumerate(records.row_groups(number))
                if self._probe.may_match(self._values(records, unit, rows, columns, record.stamp))
            )
        self.left[file.lineage] = left, count
        return bool(left)

    def _values(
        self, records: RecordFile, number: int, rows: int, columns: Sequence[ColumnRecord], stamped: int
    ) -> dict[str, Any]:
        """Return what a record says of a file or row group, by the keys of expressions.

        :param number: of its filters. :param stamped: number of the stamp of the session that computed it.
        """
        header = records.header
        values: dict[str, Any] = {}
        for part in self._parts:
            text = part.expression.text
            if text not in header.keys:
                continue
            at = header.keys.index(text)
            if header.types[at] != part.type.text:
                continue  # of the column as it was
            if part.expression.stamped and self._stamp != header.stamps[stamped]:
                continue  # this session may compute other values
            values[part.expression.key] = self._summary(rows, columns[at], records, number, at)
        return values

    def _summary(self, rows: int, record: ColumnRecord, records: RecordFile, number: int, at: int) -> Summary:
        """Return what a record says of the values of an expression."""
        low, high = record.low, record.high
        span = None
        if low is not None:
            span = Range(records.value(low, at), ABOVE if high is None else records.value(high, at), nulls=False)
        values = None if record.values is None else frozenset(records.value(value, at) for value in record.values)

        def may_equal(value: Any) -> bool:
            self._lookups += 1
            return self._lookups > _MOST_LOOKUPS or records.may_equal(number, at, value)

        def may_contain(text: str) -> bool:
            self._lookups += 1
            return self._lookups > _MOST_LOOKUPS or records.may_contain(number, at, text)

        return Summary(
            nulls=record.filled < rows,
            filled=record.filled > 0,
            span=span,
            values=values,
            may_equal=may_equal if records.has(number, at, "bloom") else None,
            may_contain=may_contain if records.has(number, at, "ngrams") else None,
        )


def _read_by_row_groups(table: TableDefinition, members: Sequence[DataFile]) -> Sequence[DataFile]:
    """Return the files of a file group of which row groups without a match may be left out.

    A row that does not match may hide one that does: in a delta, and by an ordering in the file below as well.
    """
    if is_merged(members):
        return members
    lowest = lowest_plain_file(members)
    return () if lowest is None or table.merge_by == "ordering" else (lowest,)


# --- Files ------------------------------------------------------------------------------------------------------------


def _own_files(context: IndexContext) -> list[DataFile]:
    return context.snapshot.state.files(context.definition.tree)


def _live(context: IndexContext) -> frozenset[int]:
    return frozenset(file.lineage for file in context.snapshot.state.files(DATA_TREE))


def _files_to_index(context: IndexContext, all_files: bool, partitions: Sequence[str] | None) -> list[DataFile]:
    """Return the files to be indexed: all, or those that the index does not cover."""
    covered = frozenset[int]() if all_files else Coverage.of(_own_files(context)).lineages
    files = {
        file.lineage: file
        for file in context.snapshot.state.files(DATA_TREE)
        if file.lineage and file.lineage not in covered and (partitions is None or file.partition in partitions)
    }
    return list(files.values())


def _opened(context: IndexContext, files: Sequence[DataFile]) -> list[RecordFile]:
    if not files:
        return []
    with ThreadPoolExecutor(min(_THREADS, len(files))) as pool:
        return list(pool.map(lambda file: RecordFile(context.snapshot.store, file), files))


def _settings(context: IndexContext) -> Settings:
    return settings_of(context.definition.properties, f"The skipping index {context.definition.name!r}")


def _staged(context: IndexContext, known: Sequence[Known], files: Iterable[DataFile] = ()) -> AddFile:
    """Stage one file with what is known of some data files, which covers them.

    :param files: some of them, those at least that the snapshot does not have. A commit gives all, so that it costs no
        more on a larger table.
    """
    definition, snapshot = context.definition, context.snapshot
    parts = parts_of(context.table, definition)
    texts, types = [part.expression.text for part in parts], [part.type.text for part in parts]
    data = written(texts, types, _settings(context).gram_bytes, known)
    path = f"{context.directory}/records.skipping"
    snapshot.store.put(path, data)
    sizes = {file.lineage: file.bytes for file in files}
    if any(each.lineage not in sizes for each in known):
        sizes |= {file.lineage: file.bytes for file in snapshot.state.files(DATA_TREE)}
    covered = {each.lineage: sizes.get(each.lineage, 0) for each in known}
    coverage = Coverage([Covered(stage_id(context.directory), definition.columns, (), covered)])
    return AddFile(
        definition.tree, "", RECORDS, path, "base", len(known), len(data), snapshot.state.version, 0, id_of(path),
        coverage.to_extra(),
    )  # fmt: skip


def _remove_files(files: Iterable[DataFile]) -> list[AnyAction]:
    return [RemoveFile(file.tree, file.path) for file in files]


def _work(
    context: IndexContext, actions: Sequence[AnyAction], mode: WriteMode, metrics: Mapping[str, Any]
) -> IndexWork:
    return IndexWork(tuple(actions), (Write(shard_scope(context.definition.tree, RECORDS), mode),), metrics=metrics)


def _differing(parts: Collection[Part], stored: Known, expected: Known) -> list[Difference]:
    """Return what a record, and those of row groups, say otherwise than the rows of their file."""
    found = _disagreements(parts, stored, expected)
    if stored.row_groups and expected.row_groups:  # where they are kept
        if len(stored.row_groups) != len(expected.row_groups):
            found.append(("row groups", f"{len(stored.row_groups):,}", f"{len(expected.row_groups):,}"))
        for number, (was, now) in enumerate(zip(stored.row_groups, expected.row_groups, strict=False)):
            found += [
                (f"{what} in row group {number}", said, rows) for what, said, rows in _disagreements(parts, was, now)
            ]
    return [
        Difference("wrong values", {"lineage": expected.lineage, "of": what}, said, rows) for what, said, rows in found
    ]


def _disagreements(parts: Collection[Part], stored: Known, expected: Known) -> list[tuple[str, str, str]]:
    """Return of what a record speaks otherwise than the rows, what it says, and what these do."""
    found = []
    if stored.rows != expected.rows:
        found.append(("rows", f"{stored.rows:,}", f"{expected.rows:,}"))
    for number, part in enumerate(parts):
        was, now = stored.columns[number], expected.columns[number]
        if not alike(was, now, part.type):
            found.append((part.expression.shown, str(was), str(now)))
        for kind in ("bloom", "ngrams"):
            one, other = stored.filters.get((number, kind)), expected.filters.get((number, kind))
            same = one is other if one is None or other is None else one.shape == other.shape and (one == other).all()
            if not same:
                found.append((f"{kind} of {part.expression.shown}", "other bits", "those of the rows"))
    return found
