"""The handler of the ``skipping`` index: a query leaves out file groups of which no file can hold a matching row.

Of each data file, base and delta alike, it keeps what its rows hold of some columns and expressions: the lowest and
the highest value, the values themselves where they are few, a Bloom filter of them, one of the runs of bytes in texts,
how many are null. That is computed from the file alone and stays right as long as the file exists, whatever deltas
follow it; what a delta holds can only add rows to its group, so a group is left out if no file in it can match.
Files that the index does not know are read. If it says so in a property, it keeps the same of the row groups of Parquet
files: a file is left out if none of them can match, and of the others those that can are read where that is possible.

Follows Hive's Index Design (the handler) and ClickHouse's skipping indexes (what is kept of a part).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace as changed
from typing import Any, ClassVar, Literal

from msgspec.structs import replace

from spark_apps.engine.pyspark_names import DataFrame
from spark_apps.indexes.comparison import report
from spark_apps.indexes.file_kinds import Answer, Blocks, Entries, FileKind, groups_with, own_files
from spark_apps.indexes.handler import (
    EXAMPLES,
    Difference,
    Extremes,
    IndexContext,
    IndexWork,
    KeySearch,
    PredicateProbe,
    VerificationReport,
)
from spark_apps.indexes.limits import (
    ALWAYS_RECORDS_BYTES,
    FILES_PER_JOB,
    MAX_FILTER_LOOKUPS,
    MAX_RECORDS_SHARE,
    MAX_ROW_GROUPS_ASKED,
    RECORD_FILE_THREADS,
)
from spark_apps.indexes.lineage import Coverage, stage_id
from spark_apps.indexes.lineage import Part as Covered
from spark_apps.indexes.ranges import Range, Summary
from spark_apps.indexes.skipping.collecting import collect
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
from spark_apps.indexes.skipping.many_keys import Kept, bytes_asked, files_with_keys, is_found
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
from spark_apps.indexes.skipping.row_groups import divide
from spark_apps.indexes.stamps import stamp, stamp_of
from spark_apps.mergetree.blocks import on_driver_alone
from spark_apps.mergetree.schema import column_types
from spark_apps.mergetree.tree import Snapshot
from spark_apps.mergetree.write import lineage as id_of
from spark_apps.storage.errors import InvalidInput
from spark_apps.timeline.files import DataFile, GroupKey
from spark_apps.timeline.model import (
    DATA_TREE,
    AddFile,
    IndexDefinition,
    TableDefinition,
)

RECORDS = "records"
"""File group of the index's files, and its only scope."""


class SkippingHandler(FileKind):
    """The kind with one record a data file."""

    kind: ClassVar[str] = "skipping"
    scope: ClassVar[str] = RECORDS
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

    def keys(self, table: TableDefinition, definition: IndexDefinition) -> Sequence[str]:
        return [part.expression.key for part in parts_of(table, definition)]

    # --- Build, refresh, compaction -----------------------------------------------------------------------------------

    def coverable(self, snapshot: Snapshot) -> list[DataFile]:
        return [file for file in snapshot.state.files(DATA_TREE) if file.lineage]

    def entries(self, context: IndexContext, files: Sequence[DataFile]) -> Entries:
        return Entries([_staged(context, self._collected(context, files), files)], coverage=Coverage())

    def follow(self, context: IndexContext, files: Sequence[DataFile]) -> IndexWork:
        if not all(file.lineage for file in files):
            return IndexWork()
        (added,) = self.entries(context, files).files
        metrics = {"files": len(files), "bytes": added.bytes}
        return IndexWork((added,), self.writes(context, (added,), "append"), metrics=metrics)

    def without(self, context: IndexContext, lineages: AbstractSet[int]) -> Entries:
        removed = [file for file in own_files(context) if not Coverage.of([file]).lineages.isdisjoint(lineages)]
        known = [each for each in all_known(_opened(context, removed)) if each.lineage not in lineages]
        return Entries([_staged(context, known)] if known else [], coverage=Coverage(), removed=removed)

    def merged(self, context: IndexContext, mode: Literal["quick", "full"], gone: AbstractSet[int]) -> Entries | None:
        files = own_files(context)
        if len(files) < 2 and not (gone and mode == "full"):
            return None
        # Files of a source may come back as they were; of a keyed table a restore brings them back, and these records.
        drops = mode == "full" or context.table.source is None
        live = frozenset(file.lineage for file in context.snapshot.state.files(DATA_TREE))
        known = all_known(_opened(context, files), live if drops else None)
        metrics = {"dropped": len(gone) if drops else 0}
        return Entries([_staged(context, known)], metrics, Coverage(), removed=files)

    def _collected(self, context: IndexContext, files: Sequence[DataFile]) -> list[Known]:
        parts, settings = parts_of(context.table, context.definition), _settings(context)
        known: list[Known] = []
        for start in range(0, len(files), FILES_PER_JOB):
            some = files[start : start + FILES_PER_JOB]
            divided = divide(context.snapshot, some) if settings.row_groups else {}
            found = collect(context, parts, settings, some, divided)
            known += [bounded(each, file) for each, file in zip(found, some, strict=True)] if divided else found
        return known

    # --- Queries ------------------------------------------------------------------------------------------------------

    def answer(self, context: IndexContext, probe: PredicateProbe) -> Answer:
        asked = _Asked(context, probe)
        return Answer(asked.left, asked.files, lambda: asked.fetched)

    def key_search(self, context: IndexContext, columns: Collection[str]) -> KeySearch | None:
        snapshot, definition = context.snapshot, context.definition
        parts = [part for part in parts_of(context.table, definition)
                 if part.expression.column in columns and is_found(part)]  # fmt: skip
        if not parts:
            return None
        own = own_files(context)
        records = _opened(context, own)
        known: dict[int, tuple[RecordFile, int]] = {}
        for each in records:
            for lineage, number in each.numbers.items():
                known.setdefault(lineage, (each, number))
        lineages, rates, in_tasks = list(known), _settings(context).false_positives, not on_driver_alone(snapshot)

        def places(keys: DataFrame, count: int) -> DataFrame:
            kept = [Kept.of(part, list(known.values()), rates, in_tasks) for part in parts]
            return files_with_keys(keys, kept, count)

        def groups(rows: Sequence[Sequence[Any]]) -> frozenset[GroupKey]:
            of_column: list[set[int]] = [set() for _ in parts]
            for column, number in rows:
                of_column[column].add(lineages[number])
            return groups_with(context, known.keys(), set.intersection(*of_column))

        names = tuple(str(part.expression.column) for part in parts)
        types = tuple(snapshot.data.field(name).dataType for name in names)
        return KeySearch(names, types, places, groups, len(own), sum(bytes_asked(each, parts) for each in records))

    def extremes(self, context: IndexContext, column: str) -> dict[int, Extremes]:
        types = {part.expression.text: part.type for part in parts_of(context.table, context.definition)
                 if part.expression.column == column}  # fmt: skip
        extremes: dict[int, Extremes] = {}
        for records in _opened(context, own_files(context)) if types else ():
            header = records.header
            for at, text in enumerate(header.keys):
                if text not in types or header.types[at] != types[text].text:
                    continue  # another column, or the column as it was
                for record in header.files:
                    one = record.columns[at]
                    if one.low is not None and one.high is not None:
                        low, high = records.value(one.low, at), records.value(one.high, at)
                        extremes[record.lineage] = Extremes(one.filled, low, high)
        return extremes

    def verify(self, context: IndexContext) -> VerificationReport:
        snapshot = context.snapshot
        stored = {each.lineage: each for each in all_known(_opened(context, own_files(context)))}
        parts = parts_of(context.table, context.definition)
        stamp = stamp_of(snapshot.spark, [part.expression for part in parts])
        files = [
            file for file in snapshot.state.files(DATA_TREE)
            if file.lineage in stored and (not stamp or dict(stored[file.lineage].stamp) == stamp)
        ]  # fmt: skip
        differences: list[Difference] = []
        wrong = rows = 0
        for expected in self._collected(context, files):
            rows += expected.rows
            found = _differing(parts, stored[expected.lineage], expected)
            wrong += len(found)
            differences += found
        compared = {file.lineage for file in files}
        members_of_groups = snapshot.groups().values()
        return report(
            context, rows=rows, entries=len(stored), wrong_values=wrong, stale=len(stored) - len(compared),
            uncovered=sum(not all(file.lineage in compared for file in members) for members in members_of_groups),
            differences=tuple(differences[:EXAMPLES]),
        )  # fmt: skip


def bounded(known: Known, file: DataFile) -> Known:
    """Return what is known of a file, without its row groups if this takes too much beside the file."""
    if bytes_of_row_groups(known) <= max(ALWAYS_RECORDS_BYTES, file.bytes * MAX_RECORDS_SHARE):
        return known
    return changed(known, row_groups=())


# --- What a query asks ------------------------------------------------------------------------------------------------


class _Asked:
    """A predicate that is put to the records of data files."""

    def __init__(self, context: IndexContext, probe: PredicateProbe) -> None:
        self._probe = probe
        own = own_files(context)
        self._records = _opened(context, own)
        self.files = len(own)
        parts = parts_of(context.table, context.definition)
        self._parts = [part for part in parts if not probe.columns.isdisjoint(part.expression.columns)]
        stamped = any(part.expression.stamped for part in self._parts)
        self._lookups = self._row_groups_asked = 0
        self._stamp = stamp(context.snapshot.spark) if stamped and context.snapshot.has_spark else None
        self._by_records = [
            (records, records.numbers, self._ruled_out(records), bool(records.header.row_groups))
            for records in self._records
        ]

    def _ruled_out(self, records: RecordFile) -> Any:
        """Return which files have ends of a column beyond those that the predicate gives it, by their numbers.

        All at once: to put the predicate to each of thousands of files takes far longer.
        """
        import numpy as np

        ruled_out = np.zeros(len(records.header.files), bool)
        for part, at in self._told_by(records):
            low, high = self._probe.ends(part.expression.key)
            if part.expression.stamped or (low is None and high is None):
                continue
            least, most, sure = records.ends(at)
            known = np.flatnonzero(sure & ~ruled_out)
            try:
                beyond = np.zeros(len(known), bool)
                if low is not None:
                    beyond |= np.asarray(most[known] < low, bool)
                if high is not None:
                    beyond |= np.asarray(least[known] > high, bool)
            except TypeError:
                continue  # each is asked by itself, which knows what cannot be compared
            ruled_out[known[beyond]] = True
        return ruled_out.tolist()

    def _told_by(self, records: RecordFile) -> list[tuple[Part, int]]:
        """Return the parts that records hold as they are now, each with its place among their columns."""
        header = records.header
        named = ((part, part.expression.text) for part in self._parts)
        places = [(part, header.keys.index(text)) for part, text in named if text in header.keys]
        return [(part, at) for part, at in places if header.types[at] == part.type.text]

    @property
    def fetched(self) -> int:
        return sum(file.fetched for file in self._records)

    def left(self, file: DataFile) -> Blocks | bool | None:
        """Return what of a data file may hold a row that satisfies the predicate; ``None`` if there is no record."""
        for records, numbers, ruled_out, divided in self._by_records:
            number = numbers.get(file.lineage)
            if number is not None:
                outside = ruled_out[number]
                return False if outside and not divided else self._left_of(file, records, number, outside)
        return None

    def _left_of(self, file: DataFile, records: RecordFile, number: int, outside: bool) -> Blocks | bool:
        record = records.header.files[number]
        matches = not outside and self._probe.may_match(
            self._values(records, number, record.rows, record.columns, record.stamp)
        )
        count = records.row_groups_of(number)
        if count is None or (file.rows >= 0 and record.rows != file.rows - file.tombstones):
            return matches
        if not matches:
            return Blocks(frozenset(), count)
        if self._row_groups_asked + count > MAX_ROW_GROUPS_ASKED:
            return True
        self._row_groups_asked += count
        numbers = frozenset(
            at
            for at, (unit, rows, columns) in enumerate(records.row_groups(number))
            if self._probe.may_match(self._values(records, unit, rows, columns, record.stamp))
        )
        return Blocks(numbers, count)

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
            return self._lookups > MAX_FILTER_LOOKUPS or records.may_equal(number, at, value)

        def may_contain(text: str) -> bool:
            self._lookups += 1
            return self._lookups > MAX_FILTER_LOOKUPS or records.may_contain(number, at, text)

        return Summary(
            nulls=record.filled < rows,
            filled=record.filled > 0,
            span=span,
            values=values,
            may_equal=may_equal if records.has(number, at, "bloom") else None,
            may_contain=may_contain if records.has(number, at, "ngrams") else None,
        )


# --- Files ------------------------------------------------------------------------------------------------------------


def _opened(context: IndexContext, files: Sequence[DataFile]) -> list[RecordFile]:
    if not files:
        return []
    with ThreadPoolExecutor(min(RECORD_FILE_THREADS, len(files))) as pool:
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


def _differing(parts: Collection[Part], stored: Known, expected: Known) -> list[Difference]:
    """Return the differences between a record, with those of row groups, and the rows of their file."""
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
    """Return each summary in which a record differs from the rows, with what it says and what they do."""
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
