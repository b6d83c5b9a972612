"""Indexes compared with the rows of their table: the entries that there should be with those that there are.

A kind says what is compared, as a :class:`Comparison` of frames: of Spark where there is a session, else Arrow tables.
In Spark a first scan of both sides, without a shuffle, gives how many entries there are, two sums of their hashes, and
how many are where no lookup reads. Only where the sums differ are rows and entries paired, which sorts both sides.

Sums are of whole entries, with what they say and which of their values are null, so that nothing that trades places
within an entry or between entries is missed; they are added, not combined by XOR, so that an entry that is there twice
is not missed. Hashes are added in pieces of 22 bits at most, so that no sum overflows below 2**41 entries. Two
different collections of entries agree in both sums about once in 2**128.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Protocol

from spark_apps.engine.pyspark_names import Column, DataFrame, F, T, spark_errors
from spark_apps.engine.spark_utils import cached, with_columns
from spark_apps.indexes.handler import EXAMPLES, Difference, IndexContext, IndexHandler, VerificationReport
from spark_apps.mergetree.schema import column
from spark_apps.mergetree.tree import FileGroups, Tree
from spark_apps.storage.arrow_keys import number_rows
from spark_apps.storage.errors import InvalidInput, StorageError
from spark_apps.timeline.files import DataFile

MARK = "__index_mark"
"""Column of entries: :data:`COVERED` or :data:`LAGS`, by the file group that they refer to; null if that is gone."""

COVERED, LAGS = "covered", "lags"
_GONE = "gone"

HELD = "__index_held"
"""Column of entries: the shard that holds an entry."""

SHARD = "__index_shard"
"""Column of entries: the shard in which a lookup of an entry's values reads."""

MISSING, TOO_MANY, WRONG_SHARD = "missing", "too many", "wrong shard"

_SIDE, _SAID = "__index_side", "__index_said"
_ROWS, _ENTRIES, _MISPLACED = "__index_rows", "__index_entries", "__index_misplaced"
_FAULT, _EXPECTED = "__index_fault", "__index_expected"
_FEWER, _SURPLUS = "__index_fewer", "__index_surplus"
_FOUND = {"missing": "__index_missing", "too_many": "__index_too_many", "other": "__index_other"}
_EXPECTED_SIDE, _STORED_SIDE = 0, 1
_MOST_ROWS = 2**31
"""Of which one entry can be: a block's, each of which a task reads."""

_WHOLE_TIMES = {
    "timestampFormat": "G yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "G yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""How times in nested values are written: Spark's default ends with milliseconds."""


class ArrowReader(Protocol):
    """Reads rows and entries as Arrow tables, for comparisons without Spark."""

    def merged(self, tree: Tree, groups: FileGroups, columns: Sequence[str]) -> Any:
        """Return the rows of file groups, merged by key.

        :param tree: the table's own, of a table that is no registered source, or an index's.
        :param columns: of the tree; and :data:`~spark_apps.indexes.handler.PARTITION`,
            :data:`~spark_apps.mergetree.tree.GROUP_ID` and :data:`HELD`, which are the file group's where the tree has
            no such column.
        """

    def unmerged(
        self,
        tree: Tree,
        files: Sequence[DataFile],
        columns: Sequence[str],
        held: Callable[[DataFile], Sequence[str]] | None = None,
    ) -> Any:
        """Return the rows of files as they are stored, merged with nothing.

        :param columns: of the tree; and :data:`~spark_apps.mergetree.tree.LINEAGE`,
            :data:`~spark_apps.mergetree.tree.GROUP_ID` and :data:`~spark_apps.mergetree.blocks.BLOCK`, which are the
            file's and block's where the tree has no such column.
        :param held: gives the columns of the tree that a file has, the others are null; all by default.
        """


@dataclass(frozen=True)
class Part:
    """Entries of like columns.

    :param identity: columns that name what an entry is of; the same in all parts.
    :param said: columns with what it says of that.
    :param expected: the entries that there should be, with these columns.
    :param stored: those that there are. May also have :data:`HELD` and :data:`SHARD`.
    :param uncounted: the rows that the expected entries count, a frame of Spark with the same columns but
        :attr:`Comparison.rows`. Then sums are taken of these, each stored entry weighs as many rows as it says, and the
        rows are grouped only where the sums differ.
    """

    identity: tuple[str, ...]
    said: tuple[str, ...]
    expected: Any
    stored: Any
    uncounted: Any = None


@dataclass(frozen=True)
class Comparison:
    """The frames of an index that are compared, and how.

    :param parts: frames of Spark if there is a session, else Arrow tables. Parts have no identity in common.
    :param shown: columns of the identity -> the names under which examples show them; others are not shown.
    :param text: gives the text of what an entry says, from its identity and its said values as texts.
    :param other: the fault of an entry that says something else than it should: ``"wrong values"`` or
        ``"wrong partition"``.
    :param uncovered: file groups that are not compared.
    :param once: whether an identity has one entry; then faults are counted by identity.
    :param merged: whether the same entry twice reads as one, and is no fault.
    :param keeps_old: whether entries of rows that changed may stay.
    :param held: entries in the files that are compared; those that are not among the stored ones are stale.
    :param rows: column of the expected entries with the number of rows of each; without it each is of one row.
    :param unmerged: unmerged entries, with the columns of the identity, :data:`HELD` and :data:`SHARD`, where those
        that are stored do not have the last two.
    :param marked: adds :data:`MARK` to a frame of stored entries; without it all are :data:`COVERED`.
    :param mark: gives the mark of one of an Arrow table's entries.
    """

    parts: Sequence[Part]
    shown: Mapping[str, str]
    text: Callable[[Mapping[str, Any], Sequence[str | None]], str] = lambda identity, texts: ", ".join(map(str, texts))
    other: str = "wrong values"
    uncovered: int = 0
    once: bool = True
    merged: bool = False
    keeps_old: bool = False
    held: int | None = None
    rows: str | None = None
    unmerged: Any = None
    marked: Callable[[Any], Any] | None = None
    mark: Callable[[Mapping[str, Any]], str | None] | None = None


@dataclass
class _Found:
    """Figures of a comparison. ``gone``: entries of file groups that are gone."""

    rows: int = 0
    entries: int = 0
    missing: int = 0
    too_many: int = 0
    other: int = 0
    gone: int = 0
    misplaced: int = 0
    differences: list[Difference] = field(default_factory=list)


def verify(
    handler: IndexHandler, context: IndexContext, reader: ArrowReader | None = None
) -> VerificationReport | None:
    """Compare an index with the rows that it covers.

    :param reader: if there is no Spark session.
    :returns: the report; ``None`` if only Spark can compare the index, and there is no session.
    :raises InvalidInput: if the kind cannot be compared.
    """
    files = context.snapshot.state.files(context.definition.tree)
    try:
        comparison = handler.comparison(context, reader)
        if comparison is not None:
            return compare(context, comparison)
        return handler.verify(context) if reader is None else None
    except spark_errors(StorageError) as error:
        return _unreadable(context, files, error)


def compare(context: IndexContext, comparison: Comparison) -> VerificationReport:
    """Return what differs between the entries that there should be and those that there are."""
    found = (_in_spark if context.snapshot.has_spark else _in_arrow)(comparison)
    old = found.too_many if comparison.keeps_old else 0
    elsewhere = 0 if comparison.held is None else max(0, comparison.held - found.entries)
    wrong = {comparison.other.replace(" ", "_"): found.other}
    return report(
        context, rows=found.rows, entries=found.entries, missing=found.missing, too_many=found.too_many - old,
        stale=found.gone + old + elsewhere, uncovered=comparison.uncovered, differences=tuple(found.differences),
        wrong_shard=found.misplaced, **wrong,
    )  # fmt: skip


def report(context: IndexContext, **figures: Any) -> VerificationReport:
    """Return the report on an index of a version.

    :param figures: fields of the report; those of faults that were not found may be left out.
    """
    none = dict.fromkeys(("missing", "too_many", "wrong_partition"), 0)
    return VerificationReport(
        **{"index": context.definition.name, "version": context.snapshot.state.version, **none, **figures}
    )


def _unreadable(context: IndexContext, files: Sequence[DataFile], error: Exception) -> VerificationReport:
    """Return the report on an index with a file that cannot be read.

    :param files: of the index.
    :raises: the error again if it is not the index's.
    """
    store = context.snapshot.store
    broken = [file.path for file in files if (info := store.head(file.path)) is None or info.size != file.bytes]
    text = str(error)
    broken = broken or [file.path for file in files if file.path.rsplit("/", 1)[1] in text]
    if not broken:
        raise error
    return report(
        context, rows=0, entries=sum(file.rows - file.tombstones for file in files), stale=0, uncovered=0,
        differences=tuple(Difference("unreadable", {"file": path}) for path in broken[:EXAMPLES]),
    )  # fmt: skip


def _faults(once: bool, rows: Any, entries: Any, fewer: Any, surplus: Any, where: Any) -> dict[str, Any]:
    """Return of each identity how many of its entries are missing, too many, and other than they should be.

    :param rows: how many entries it should have. :param entries: how many it has. :param fewer: how many of these that
        say the same are missing. :param surplus: how many there are beside them.
    :param where: gives one of two values by a condition. All are of Spark's columns, or of numpy's arrays.
    """
    if once:
        other = (rows > 0) & (entries > 0) & (fewer + surplus > 0)
        return {"missing": where(entries == 0, 1, 0), "too_many": where(rows == 0, 1, 0), "other": where(other, 1, 0)}
    other = where(fewer < surplus, fewer, surplus)
    return {"missing": fewer - other, "too_many": surplus - other, "other": other}


def _misplaced(comparison: Comparison, entry: Mapping[str, Any]) -> Difference:
    """Return the difference that an entry in another shard than its own is."""
    key = {shown: entry[name] for name, shown in comparison.shown.items()}
    return Difference(WRONG_SHARD, key, f"shard {entry[HELD]}", f"shard {entry[SHARD]}")


# --- In Spark ---------------------------------------------------------------------------------------------------------


def _in_spark(comparison: Comparison) -> _Found:
    found = _Found()
    if not comparison.parts:
        return found
    # Which file groups entries refer to is only looked for if some may lag or be gone.
    marked = (True,) if comparison.uncovered else (False, True)
    if comparison.marked is None or comparison.keeps_old:
        marked = marked[:1]
    if not any(_sums_agree(comparison, found, marks) for marks in marked):
        found.gone = 0
        with cached(_paired(comparison)) as differing:
            _count_faults(comparison, differing, found)
    unmerged = comparison.parts[0].stored
    if comparison.unmerged is not None:
        unmerged = comparison.unmerged
        found.misplaced = unmerged.where(F.col(HELD) != F.col(SHARD)).count()
    if found.misplaced:
        examples = unmerged.where(F.col(HELD) != F.col(SHARD)).limit(EXAMPLES).collect()
        found.differences += [_misplaced(comparison, row.asDict()) for row in examples]
    return found


def _stored(comparison: Comparison, part: Part) -> DataFrame:
    return part.stored if comparison.marked is None else comparison.marked(part.stored)


def _sums_agree(comparison: Comparison, found: _Found, marked: bool = True) -> bool:
    """Return whether there are as many entries as there should be, with the same sums of hashes.

    Counts rows, entries, those of file groups that are gone, and those in another shard than their own. One scan.

    :param marked: whether entries of file groups that lag or are gone are left out.
    """
    sums = []
    for part in comparison.parts:
        sums += [
            _sums(comparison, part, part.expected if part.uncounted is None else part.uncounted, _EXPECTED_SIDE),
            _sums(comparison, part, _stored(comparison, part) if marked else part.stored, _STORED_SIDE),
        ]
    rows = reduce(DataFrame.union, sums).collect()
    names = [name for name in rows[0].asDict() if name not in (_SIDE, MARK, _ROWS, _ENTRIES, _MISPLACED)]

    def total(name: str, side: int, *marks: str | None) -> int:
        return sum(row[name] or 0 for row in rows if row[_SIDE] == side and (not marks or row[MARK] in marks))

    found.rows = total(_ROWS, _EXPECTED_SIDE)
    found.entries = total(_ENTRIES, _STORED_SIDE)
    found.gone = total(_ENTRIES, _STORED_SIDE, None)
    found.misplaced = total(_MISPLACED, _STORED_SIDE)
    if any(total(name, _EXPECTED_SIDE) != total(name, _STORED_SIDE, COVERED) for name in names):
        return False
    left_out = found.entries - total(_ENTRIES, _STORED_SIDE, COVERED)
    return not left_out or not any(_has_others(comparison, part) for part in comparison.parts)


def _has_others(comparison: Comparison, part: Part) -> bool:
    """Return whether an entry that is left out of the sums is of something that has an entry within them, too."""
    if not comparison.once or not part.said:
        return False
    left_out = _stored(comparison, part).where(~F.col(MARK).eqNullSafe(F.lit(COVERED)))
    names = [f"__index_identity_{number}" for number in range(len(part.identity))]
    both = (
        side.select(*(column(name).alias(as_name) for name, as_name in zip(part.identity, names, strict=True)))
        for side in (part.expected, left_out)
    )
    return bool(reduce(lambda expected, others: expected.join(others, names, "left_semi"), both).limit(1).count())


def _sums(comparison: Comparison, part: Part, entries: DataFrame, side: int) -> DataFrame:
    """Return of each mark how many entries of a side there are, the sums of two hashes of them, and how many rows."""
    kinds = {field.name: field.dataType for field in entries.schema.fields}
    uncounted = part.uncounted is not None
    names = [
        name for name in dict.fromkeys([*part.identity, *part.said]) if not (uncounted and name == comparison.rows)
    ]
    if uncounted and side == _EXPECTED_SIDE:
        entries = with_columns(entries, {name: _as_grouped(column(name), kinds[name]) for name in names})
    values = [hashed for name in names for hashed in _hashed(column(name), kinds[name])]
    nulls = [column(name).isNull() for name in names]  # which Spark's hash leaves out
    # Stored entries need not say of how many rows they are, and rows that nothing counted do not.
    says_rows = comparison.rows if uncounted is (side == _STORED_SIDE) else None
    rows = F.lit(1) if says_rows is None else column(says_rows)
    misplaced = F.when(F.col(HELD) != F.col(SHARD), 1).otherwise(0) if HELD in kinds else F.lit(0)
    by_mark = [F.col(MARK)] if MARK in kinds else []
    hashes = [F.xxhash64(F.lit(seed), *values, *nulls).alias(f"h{seed}") for seed in (0, 1)]
    digests = entries.select(
        *by_mark, *hashes, rows.cast("bigint").alias(_ROWS), misplaced.alias(_MISPLACED), F.lit(1).alias(_ENTRIES)
    )
    weight = F.lit(1)
    if uncounted and side == _STORED_SIDE:
        # Entries that share their rows, or say impossible ones, are counted apart: there should be none.
        digests = digests.groupBy(*by_mark, "h0", "h1").agg(
            F.max(F.when(F.col(_ROWS).between(1, _MOST_ROWS), F.col(_ROWS))).alias(_ROWS),
            *(F.sum(name).alias(name) for name in (_MISPLACED, _ENTRIES)),
        )
        weight = F.when(F.col(_ENTRIES) == 1, F.col(_ROWS))
    pieces = {f"h{seed}_{at}": piece for seed in (0, 1) for at, piece in enumerate(_pieces(F.col(f"h{seed}")))}
    totals = {"n": F.sum(weight), **{name: F.try_sum(piece * weight) for name, piece in pieces.items()}}
    totals["unfit"] = F.count(F.when(weight.isNull(), 1))
    totals |= {name: F.sum(name) for name in (_ROWS, _ENTRIES, _MISPLACED)}
    summed = digests.groupBy(*by_mark).agg(*(total.alias(name) for name, total in totals.items()))
    mark = F.col(MARK) if by_mark else F.lit(COVERED)
    return summed.select(F.lit(side).alias(_SIDE), mark.alias(MARK), *totals)


def _as_grouped(value: Column, kind: T.DataType) -> Column:
    """Return a value as it is after rows were grouped by it: with one zero."""
    return F.when(value == 0, F.lit(0).cast(kind)).otherwise(value) if isinstance(kind, T.FractionalType) else value


def _pieces(hashed: Column) -> list[Column]:
    """Return the bits of a hash as numbers that are small enough to be added up."""
    rest = F.shiftrightunsigned(hashed, 22)
    return [hashed.bitwiseAND(F.lit(0x3FFFFF)), rest.bitwiseAND(F.lit(0x1FFFFF)), F.shiftrightunsigned(rest, 21)]


def _hashed(value: Column, kind: T.DataType) -> list[Column]:
    """Return what is hashed of a value: as it is where Spark hashes each value of the type differently."""
    exact = (T.BinaryType, T.BooleanType, T.IntegralType, T.DecimalType, T.DateType, T.TimestampType)
    if isinstance(kind, exact):
        return [value]
    if isinstance(kind, (T.FloatType, T.DoubleType)):  # of which 0.0 and -0.0 may have one hash
        return [value, F.when(value == 0, value.cast("string"))]
    return [_text(value, kind)]


def _paired(comparison: Comparison) -> DataFrame:
    """Return the identities whose entries differ, with how many are missing, too many or other, and what they say."""
    sides = [_as_texts(comparison, part, side) for part in comparison.parts for side in (_EXPECTED_SIDE, _STORED_SIDE)]
    identity = [column(name) for name in comparison.parts[0].identity]
    rows, entries = F.col(_ROWS), F.col(_ENTRIES)
    by_entry = (
        reduce(DataFrame.union, sides)
        .repartition(*identity)  # once for both groupings
        .groupBy(*identity, _SAID)
        .agg(F.sum(_ROWS).alias(_ROWS), F.sum(_ENTRIES).alias(_ENTRIES), F.max(MARK).alias(MARK))
    )
    surplus = F.greatest(entries - rows, F.lit(0))
    surplus = F.when(rows > 0, 0).otherwise(surplus) if comparison.merged else surplus
    by_entry = by_entry.withColumns({_FEWER: F.greatest(rows - entries, F.lit(0)), _SURPLUS: surplus})
    by_identity = by_entry.groupBy(*identity).agg(
        *(F.sum(name).alias(name) for name in (_ROWS, _ENTRIES, _FEWER, _SURPLUS)),
        F.max(F.when(entries > 0, F.col(MARK))).alias(MARK),
        *_said_of(comparison, _FEWER, _ROWS, _EXPECTED),
        *_said_of(comparison, _SURPLUS, _ENTRIES, _SAID),
    )
    counted = _faults(comparison.once, rows, entries, F.col(_FEWER), F.col(_SURPLUS),
                      lambda condition, one, other: F.when(condition, one).otherwise(other))  # fmt: skip
    found = {_FOUND[name]: value.cast("bigint") for name, value in counted.items()}
    fault = (
        F.when(F.col(_FOUND["other"]) > 0, comparison.other)
        .when(F.col(_FOUND["missing"]) > 0, MISSING)
        .when(F.col(_FOUND["too_many"]) > 0, F.when(F.col(MARK) == COVERED, TOO_MANY).otherwise(F.col(MARK)))
    )
    return by_identity.withColumns(found).withColumn(_FAULT, fault).where(F.col(_FAULT).isNotNull())


def _as_texts(comparison: Comparison, part: Part, side: int) -> DataFrame:
    """Return the entries of one side, each as its identity, what it says as one text, its mark, and its side."""
    entries = part.expected if side == _EXPECTED_SIDE else _stored(comparison, part)
    kinds = {field.name: field.dataType for field in entries.schema.fields}
    texts = [_text(column(name), kinds[name]) for name in part.said]
    said = F.to_json(F.array(*texts), {"ignoreNullFields": "false"}) if texts else F.lit("[]")
    mark = F.lit(COVERED) if side == _EXPECTED_SIDE or MARK not in kinds else F.coalesce(F.col(MARK), F.lit(_GONE))
    sides = (F.lit(1 - side).cast("bigint").alias(_ROWS), F.lit(side).cast("bigint").alias(_ENTRIES))
    return entries.select(*map(column, part.identity), said.alias(_SAID), mark.alias(MARK), *sides)


def _text(value: Column, kind: T.DataType) -> Column:
    if isinstance(kind, T.BinaryType):
        return F.hex(value)
    if isinstance(kind, (T.ArrayType, T.StructType, T.MapType)):
        return F.to_json(F.struct(value.alias("v")), _WHOLE_TIMES)
    return value.cast("string")


def _said_of(comparison: Comparison, differing: str, there: str, name: str) -> list[Column]:
    """Return what the entries of one side say of an identity: one that differs, else, of one entry, that one."""
    said = F.max(F.when(F.col(differing) > 0, F.col(_SAID)))
    return [(F.coalesce(said, F.max(F.when(F.col(there) > 0, F.col(_SAID)))) if comparison.once else said).alias(name)]


def _count_faults(comparison: Comparison, differing: DataFrame, found: _Found) -> None:
    counts = {row[0]: row for row in differing.groupBy(_FAULT).agg(*map(F.sum, _FOUND.values())).collect()}
    for fault, row in counts.items():
        _, missing, too_many, other = row
        found.missing, found.other = found.missing + missing, found.other + other
        if fault == _GONE:
            found.gone += too_many
        elif fault != LAGS:
            found.too_many += too_many
    shown = [fault for fault in counts if fault in _shown_faults(comparison)]
    if shown:
        examples = differing.where(F.col(_FAULT).isin(*shown)).limit(EXAMPLES).collect()
        found.differences += [_difference(comparison, row.asDict()) for row in examples]


def _shown_faults(comparison: Comparison) -> tuple[str, ...]:
    """Return the faults of which examples are given."""
    return (MISSING, comparison.other) if comparison.keeps_old else (MISSING, TOO_MANY, comparison.other)


def _difference(comparison: Comparison, row: Mapping[str, Any]) -> Difference:
    key = {shown: row[name] for name, shown in comparison.shown.items()}
    said, expected = (
        None if row[name] is None else comparison.text(row, json.loads(row[name])) for name in (_SAID, _EXPECTED)
    )
    return Difference(row[_FAULT], key, said, expected)


# --- In Arrow ---------------------------------------------------------------------------------------------------------


def counted(rows: Any, name: str) -> Any:
    """Return the different rows of an Arrow table, with a column ``name`` that says how many there are of each."""
    import numpy as np
    import pyarrow as pa

    numbers = number_rows([_numbered(values) for values in rows.columns])
    _, first, counts = np.unique(numbers, return_index=True, return_counts=True)
    return rows.take(first).append_column(name, pa.array(counts, pa.int64()))


def _in_arrow(comparison: Comparison) -> _Found:
    import pyarrow.compute as pc

    found = _Found()
    for part in comparison.parts:
        rows = comparison.rows
        found.rows += len(part.expected) if rows is None else pc.sum(part.expected[rows]).as_py() or 0
        found.entries += len(part.stored)
        if len(part.expected) or len(part.stored):
            _PairedTables(comparison, part).count(found)
        if HELD in part.stored.column_names:
            astray = part.stored.filter(pc.not_equal(part.stored[HELD], part.stored[SHARD]))
            found.misplaced += len(astray)
            found.differences += [_misplaced(comparison, row) for row in astray.slice(0, EXAMPLES).to_pylist()]
    return found


class _PairedTables:
    """The entries of both sides of a part, numbered: by what they are of, and by that with what they say of it."""

    def __init__(self, comparison: Comparison, part: Part) -> None:
        import numpy as np
        import pyarrow as pa

        self._comparison, self._part = comparison, part
        names = tuple(dict.fromkeys([*part.identity, *part.said]))
        self._entries = pa.concat_tables([part.expected.select(names), part.stored.select(names)])
        identities = number_rows([_numbered(self._entries[name]) for name in part.identity])
        numbers = number_rows([_numbered(self._entries[name]) for name in names])
        distinct, self._first = np.unique(numbers, return_index=True)
        self._identities = identities[self._first]
        """The identity of each different entry."""
        self._first_of = np.unique(identities, return_index=True)[1]
        self._expected, self._stored = (
            np.bincount(side, minlength=len(distinct)) for side in np.split(numbers, [len(part.expected)])
        )
        self._fewer = np.maximum(self._expected - self._stored, 0)
        self._surplus = np.maximum(self._stored - self._expected, 0)
        if comparison.merged:
            self._surplus = np.where(self._expected > 0, 0, self._surplus)

    def count(self, found: _Found) -> None:
        """Count the faults, and describe some."""
        import numpy as np

        of_entries = (self._expected, self._stored, self._fewer, self._surplus)
        rows, entries, fewer, surplus = (np.bincount(self._identities, each).astype(np.int64) for each in of_entries)
        faults = _faults(self._comparison.once, rows, entries, fewer, surplus, np.where)
        found.missing += int(faults["missing"].sum())
        found.other += int(faults["other"].sum())
        shown = _shown_faults(self._comparison)
        for number in np.flatnonzero(sum(faults.values())).tolist():
            missing, too_many, other = (int(faults[name][number]) for name in ("missing", "too_many", "other"))
            fault = self._comparison.other if other else MISSING if missing else TOO_MANY
            mark = self._mark(number) if too_many else COVERED
            found.gone += too_many if mark is None else 0
            found.too_many += too_many if mark == COVERED else 0
            if mark == COVERED and fault in shown and len(found.differences) < EXAMPLES:
                found.differences.append(_difference(self._comparison, {**self._described(number), _FAULT: fault}))

    def _mark(self, identity: int) -> str | None:
        mark = self._comparison.mark
        return COVERED if mark is None else mark(_row(self._entries, int(self._first_of[identity])))

    def _described(self, identity: int) -> dict[str, Any]:
        """Return the values of an identity, and what its entries of both sides say: one that differs, as in Spark."""
        row = _row(self._entries, int(self._first_of[identity]))
        for name, differing, there in (
            (_EXPECTED, self._fewer, self._expected),
            (_SAID, self._surplus, self._stored),
        ):
            said = self._row(identity, differing)
            said = self._row(identity, there) if self._comparison.once and not said else said
            texts = [None if said[each] is None else str(said[each]) for each in self._part.said] if said else None
            row[name] = None if texts is None else json.dumps(texts)
        return row

    def _row(self, identity: int, counts: Any) -> dict[str, Any]:
        """Return the first entry of an identity that counts; nothing if there is none."""
        import numpy as np

        of_identity = np.flatnonzero((self._identities == identity) & (counts > 0))
        return _row(self._entries, int(self._first[of_identity[0]])) if len(of_identity) else {}


def _numbered(values: Any) -> Any:
    """Return values of an Arrow column in a form in which they can be compared: nested ones as texts.

    :raises InvalidInput: if a nested one has a value that Python does not know, such as a date after the year 9999.
    """
    import pyarrow as pa

    if not pa.types.is_nested(values.type):
        return values
    try:
        return pa.array([None if value is None else repr(value) for value in values.to_pylist()], pa.string())
    except (OverflowError, ValueError) as error:
        raise InvalidInput(
            f"A column of type {values.type} that the index holds has a value that Python does not know: {error}.",
            hint="Use IndexedTable.load(spark, …).verify(name), or VerifyIndexOperator.",
        ) from error


def _row(table: Any, position: int) -> dict[str, Any]:
    """Return a row of an Arrow table; of a value that Python does not know its number or bytes."""
    import pyarrow as pa

    row = {}
    for name, values in zip(table.column_names, table.columns, strict=True):
        try:
            row[name] = values[position].as_py()
        except (OverflowError, ValueError):
            number = pa.int32() if pa.types.is_date32(values.type) else pa.int64()
            plain = number if pa.types.is_temporal(values.type) else pa.binary()
            row[name] = values[position].cast(plain).as_py()
    return row
