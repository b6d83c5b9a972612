"""Compares an index with a full scan of the rows: entries missing, too many, or pointing to the wrong partition.

Only what the index covers is compared; the rest is scanned by queries anyway. Entries that its kind leaves behind on
purpose (``tombstones`` ``lazy``), and those of partitions that are gone, cost reads and no rows; they are counted, and
are no fault.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_apps.indexes.candidates import SPARK_ERRORS
from spark_apps.indexes.entries import PLACE, EntryHandler
from spark_apps.indexes.handler import IndexContext
from spark_apps.indexes.locating import marked
from spark_apps.indexes.registry import find
from spark_apps.indexes.secondary import is_lazy
from spark_apps.mergetree.cached import cached
from spark_apps.mergetree.schema import column
from spark_apps.mergetree.tree import Snapshot, Tree
from spark_apps.storage.errors import InvalidInput, StorageError

EXAMPLES = 10
_ROW = "__index_row"
_ENTRY = "__index_entry"
_MARK = "__index_mark"
_FAULT = "__index_fault"


@dataclass(frozen=True)
class Difference:
    """A disagreement. ``fault``: "missing", "too many", "wrong partition" or "unreadable"; ``key`` is that of the
    entry."""

    fault: str
    key: dict[str, Any]
    partition: str | None = None
    expected: str | None = None


@dataclass(frozen=True)
class VerificationReport:
    """What a comparison found.

    :param rows: rows of the file groups that the index covers.
    :param entries: live entries, wherever they point.
    :param stale: entries that no row bears out and that need not be gone yet.
    :param uncovered: file groups that the index does not cover, which were not compared.
    :param differences: examples, not all of them.
    """

    index: str
    version: int
    rows: int
    entries: int
    missing: int
    too_many: int
    wrong_partition: int
    stale: int
    uncovered: int
    differences: tuple[Difference, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the index agrees with the rows wherever it claims to."""
        return not self.differences and not (self.missing or self.too_many or self.wrong_partition)

    def to_dict(self) -> dict[str, Any]:
        """Plain types, for JSON and XCom."""
        found = [{**asdict(d), "key": {k: _plain(v) for k, v in d.key.items()}} for d in self.differences]
        return {**asdict(self), "differences": found, "ok": self.ok}


def verify(snapshot: Snapshot, name: str) -> VerificationReport:
    """Compares an index of a version with its rows, by a full scan of both.

    :raises IndexNotFound: :raises InvalidInput: if its kind has no entries to compare.
    """
    entry = snapshot.state.index(name)
    handler = find(entry.definition.kind)
    if not isinstance(handler, EntryHandler):
        raise InvalidInput(
            f"An index of kind {handler.kind!r} cannot be compared by entries.", hint="Refresh it with mode='full'."
        )
    context = IndexContext(snapshot, entry.definition, "")
    tree = handler.tree(snapshot.table, entry.definition)
    try:
        return _compare(context, handler, tree)
    except (*SPARK_ERRORS, StorageError) as error:
        return _unreadable(context, tree, error)


def _compare(context: IndexContext, handler: EntryHandler, tree: Tree) -> VerificationReport:
    snapshot, definition = context.snapshot, context.definition
    index = snapshot.state.index(definition.name)
    groups = snapshot.groups()
    covered = {key: files for key, files in groups.items() if index.covers(key)}
    marks = {key: "covered" if key in covered else "lags" for key in groups}
    entries = marked(handler.entries(context), snapshot, marks, _MARK)
    rows = handler.expected(context, covered).withColumn(_MARK, F.lit("covered"))
    with cached(_paired(tree, rows, entries)) as both:
        counts = {
            row[0]: (row["n"], row["rows"], row["entries"])
            for row in both.groupBy(_FAULT)
            .agg(F.count("*").alias("n"), F.sum(_ROW).alias("rows"), F.sum(_ENTRY).alias("entries"))
            .collect()
        }
        lazy = is_lazy(definition)
        faults = [fault for fault in ("missing", "too many", "wrong partition") if not (lazy and fault == "too many")]
        wrong = both.where(F.col(_FAULT).isin(*faults)).limit(EXAMPLES).collect()
    count = {fault: n for fault, (n, _, _) in counts.items()}
    too_many = count.get("too many", 0)
    return VerificationReport(
        index=definition.name,
        version=snapshot.state.version,
        rows=sum(rows or 0 for _, rows, _ in counts.values()),
        entries=sum(entries or 0 for _, _, entries in counts.values()),
        missing=count.get("missing", 0),
        too_many=0 if lazy else too_many,
        wrong_partition=count.get("wrong partition", 0),
        stale=count.get("of no group", 0) + (too_many if lazy else 0),
        uncovered=len(groups) - len(covered),
        differences=tuple(_difference(tree, row) for row in wrong),
    )


def _paired(tree: Tree, rows: DataFrame, entries: DataFrame) -> DataFrame:
    """One row a key of an entry: how many rows and entries there are, where they say it lives, and what is wrong."""
    names = [*tree.columns, _MARK]
    place = F.concat_ws(" group ", *[column(name) for name in PLACE if name in tree.columns])
    both = rows.select(*map(column, names), F.lit(1).alias(_ROW), F.lit(0).alias(_ENTRY)).unionByName(
        entries.select(*map(column, names), F.lit(0).alias(_ROW), F.lit(1).alias(_ENTRY))
    )
    said = both.groupBy(*map(column, tree.key)).agg(
        F.sum(_ROW).alias(_ROW),
        F.sum(_ENTRY).alias(_ENTRY),
        F.max(F.when(F.col(_ROW) == 1, place)).alias("__index_expected"),
        F.max(F.when(F.col(_ENTRY) == 1, place)).alias("__index_said"),
        F.max(F.when(F.col(_ENTRY) == 1, F.coalesce(F.col(_MARK), F.lit("gone")))).alias(_MARK),
    )
    fault = (
        F.when((F.col(_ROW) == 1) & (F.col(_ENTRY) == 0), "missing")
        .when((F.col(_ROW) == 0) & (F.col(_MARK) == "gone"), "of no group")
        .when((F.col(_ROW) == 0) & (F.col(_MARK) == "lags"), "not compared")
        .when(F.col(_ROW) == 0, "too many")
        .when((F.col(_ROW) > 1) | (F.col("__index_expected") != F.col("__index_said")), "wrong partition")
        .otherwise("agree")
    )
    return said.withColumn(_FAULT, fault)


def _difference(tree: Tree, row: Any) -> Difference:
    key = {name: row[name] for name in tree.key if name not in PLACE}
    return Difference(row[_FAULT], key, row["__index_said"], row["__index_expected"])


def _unreadable(context: IndexContext, tree: Tree, error: Exception) -> VerificationReport:
    """The report on an index with a file that cannot be read; :raises: the error again if it is not the index's."""
    snapshot, files = context.snapshot, context.snapshot.state.files(tree.name)
    broken = [
        file.path for file in files if (found := snapshot.store.head(file.path)) is None or found.size != file.bytes
    ]
    text = str(error)
    broken = broken or [file.path for file in files if file.path.rsplit("/", 1)[1] in text]
    if not broken:
        raise error
    return VerificationReport(
        index=context.definition.name, version=snapshot.state.version, rows=0,
        entries=sum(file.rows - file.tombstones for file in files), missing=0, too_many=0, wrong_partition=0, stale=0,
        uncovered=0, differences=tuple(Difference("unreadable", {"file": path}) for path in broken[:EXAMPLES]),
    )  # fmt: skip


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
