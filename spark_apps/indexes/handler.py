"""The interface of an index kind: what its code is given and what it returns.

A handler decides what is to be done and stages files; the framework (:mod:`spark_apps.actions`) begins the transaction
and commits what the handler returns, so that none can publish half of something. Kinds of third parties use this same
interface; :mod:`spark_apps.indexes.registry` finds them. Follows Hive's Index Design.

What a build would write and how long it would take is estimated from the footers of some data files, and from reading a
piece of one. Rows are those that the log states. The bytes of the columns that an index holds are taken from the column
chunks of a sample of files, a row's worth each; reading is timed on one row group; what shuffling, sorting and writing
a row takes was measured. The receipt of the build has the real figures beside the estimated ones.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field
from dataclasses import replace as changed
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from msgspec.structs import replace

from spark_apps.engine.spark_utils import cores
from spark_apps.indexes.limits import MAX_SAMPLED_FILES, MAX_TIMED_BYTES
from spark_apps.mergetree.blocks import BlockFile, access_options, open_blocks, read_footers
from spark_apps.mergetree.schema import column_share
from spark_apps.mergetree.tree import Snapshot, Tree
from spark_apps.storage.errors import InvalidInput, StorageError
from spark_apps.storage.parquet.files import column_chunks
from spark_apps.storage.parquet.statistics import column_name
from spark_apps.storage.printing import ALL_ROWS, Grid, Printed, View, counted, size, span
from spark_apps.timeline.commit import KeysConflict
from spark_apps.timeline.files import DataFile, GroupKey
from spark_apps.timeline.model import AnyAction, IndexDefinition, Scope, TableDefinition, Write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

    from spark_apps.indexes.comparison import ArrowReader, Comparison
    from spark_apps.indexes.included_columns import IncludedColumns
    from spark_apps.indexes.ranges import Range

logger = logging.getLogger(__name__)

REPEATED = ("repeated_keys", "rows_of_repeated_keys")
"""Figures of a build over keys of a source that name several rows: of these keys, and of their rows."""

EXAMPLES = 10


@dataclass(frozen=True)
class Difference:
    """A disagreement between the index and the rows.

    ``fault``: "missing", "too many", "wrong partition", "wrong values", "wrong shard" or "unreadable"; ``key`` is that
    of the entry.
    """

    fault: str
    key: dict[str, Any]
    partition: str | None = None
    expected: str | None = None


@dataclass(frozen=True, repr=False)
class VerificationReport(Printed):
    """The result of a comparison of an index with the rows.

    :param rows: rows compared: those of the file groups (or files) that the index covers.
    :param entries: live entries, wherever they point.
    :param stale: entries without a row that need not be gone yet.
    :param uncovered: file groups that the index does not cover, which were not compared.
    :param wrong_values: entries of rows that are there with other values, for kinds that hold values.
    :param wrong_shard: entries and tombstones that are where no lookup of their values reads.
    :param differences: examples, not all of them.
    :param repaired: version of the commit that rebuilt what was wrong.
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
    wrong_values: int = 0
    wrong_shard: int = 0
    repaired: int | None = field(default=None)

    @property
    def ok(self) -> bool:
        """True if the index agrees with the rows wherever it claims to."""
        faults = self.missing, self.too_many, self.wrong_partition, self.wrong_values, self.wrong_shard
        return not self.differences and not any(faults)

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, for JSON and XCom."""
        differences = [
            {**asdict(difference), "key": {name: _plain(value) for name, value in difference.key.items()}}
            for difference in self.differences
        ]
        return {**asdict(self), "differences": differences, "ok": self.ok}

    def view(self) -> View:
        faults = [
            (name.replace("_", " "), getattr(self, name) or None)
            for name in ("missing", "too_many", "wrong_partition", "wrong_values", "wrong_shard")
        ]
        facts = [
            ("rows compared", self.rows),
            ("entries", self.entries),
            *faults,
            ("stale", f"{self.stale:,}, which need not be gone yet" if self.stale else None),
            ("not covered", f"{counted(self.uncovered, 'file group')}, not compared" if self.uncovered else None),
            ("repaired", None if self.repaired is None else f"in version {self.repaired}"),
        ]
        rows = [(one.fault, one.key, one.partition, one.expected) for one in self.differences]
        verdict = "agrees with the rows" if self.ok else "DIFFERS from the rows"
        examples = Grid(("fault", "key", "partition", "expected"), rows, "examples")
        return View(f"index {self.index} {verdict} of version {self.version}", facts, [examples])


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


# --- The interface of an index kind -----------------------------------------------------------------------------------


PARTITION = "__index_partition"
"""Column of index entries that holds the path of a row's partition."""

Key = tuple[Any, ...]
"""Values of some columns, ``None`` for null, in the form of :func:`spark_apps.layout.types.normalize`."""


class PredicateProbe(Protocol):
    """The predicate of a query (or a part of it), as a handler may probe it.

    Its text is for people.
    """

    columns: frozenset[str]
    """The table's columns that it names."""

    def keys(self, columns: Sequence[str], limit: int = ...) -> Collection[Key] | CannotPrune:
        """Return all values that these columns can have in a row that satisfies it; empty if there is no such row.

        :param limit: how many there may be.
        """

    def may_match(self, values: Mapping[str, Any]) -> bool:
        """Return whether a row with these values can satisfy it; columns not given may hold anything.

        A value may be a :class:`~spark_apps.indexes.ranges.Range`, for all rows whose values are in it.
        """

    def spares_none(self, column: str, values: Range) -> bool:
        """Return whether what it says of a column holds for every value of a range.

        :param column: the table's. :param values: the range.
        """

    def ends(self, column: str) -> tuple[Any, Any]:
        """Return the lowest and the highest value that a column can have in a row that satisfies it.

        ``None`` for an end that it does not give; with either the column is not null in such a row.
        """


@dataclass(frozen=True)
class IndexContext:
    """The arguments of every call that does work.

    :param snapshot: the table at the version that the transaction began from.
    :param definition: the index.
    :param directory: key of a directory of this attempt where the handler may stage files of this index; a
        handler that writes more than once puts each write into a folder of its own below it.
    """

    snapshot: Snapshot
    definition: IndexDefinition
    directory: str

    @property
    def table(self) -> TableDefinition:
        return self.snapshot.table


@dataclass(frozen=True)
class Changes:
    """The change of a data commit to the rows of the keys that it touches.

    Both frames hold the table's partition columns, its record key, and the columns that any index needs
    (:meth:`IndexHandler.reads`), one row a key at most. ``before``: the row as the snapshot shows it.
    ``after``: as the commit will show it. A key deleted is in ``before`` only, a new one in ``after`` only, one whose
    row did not change in these columns is in both; one moved to another partition is in both, with other partition
    columns. Both are lazy and can be read more than once; reading ``before`` joins the touched file groups with keys.

    :param before: ``None`` where it is known that none of the keys existed.
    :param after: ``None`` where all rows go.
    :param groups: the file groups of the data that the commit writes.
    :param replaced: partitions all of whose rows go (an overwrite, a dropped partition), which ``before`` holds.
    :param located: partition columns and record key of the rows in ``before``, where an index located them; may name
        more.
    :param settled: whether it is known that each key of ``after`` lived where it lives now, and that none goes.
    :param counts: how many rows of ``before`` each file group has, where that is known.
    """

    before: DataFrame | None
    after: DataFrame | None
    groups: frozenset[GroupKey]
    replaced: frozenset[str] = frozenset()
    located: DataFrame | None = None
    settled: bool = False
    counts: Mapping[GroupKey, int] | None = None


@dataclass(frozen=True)
class ChangedRows:
    """The change of a commit of few rows, which the driver holds: what :class:`Changes` says, as Arrow tables.

    Each table has the columns that the frames of :class:`Changes` have, and :data:`PARTITION`, with values in the form
    of :func:`~spark_apps.indexes.keyed.matching.normalize_column`.

    :param before: ``None`` where no index needs it. :param located: record keys with the partitions that an index
        locates them in; ``None`` if none did.
    """

    before: Any | None
    after: Any
    groups: frozenset[GroupKey]
    located: Any | None = None
    settled: bool = False
    counts: Mapping[GroupKey, int] | None = None


@dataclass(frozen=True)
class IndexWork:
    """The work that a handler staged, for the framework to commit.

    :param actions: files added and removed, coverage, a changed definition.
    :param writes: scopes written: :func:`~spark_apps.timeline.model.shard_scope` of the index's tree.
    :param reads: scopes that must not change until the commit.
    :param metrics: small numbers for the receipt.
    :param keys_conflict: whether another commit wrote a key of this one into a shard, where keys are unique.
    """

    actions: tuple[AnyAction, ...] = ()
    writes: tuple[Write, ...] = ()
    reads: tuple[Scope, ...] = ()
    metrics: Mapping[str, Any] = field(default_factory=dict)
    keys_conflict: KeysConflict | None = None

    @property
    def empty(self) -> bool:
        return not self.actions


@dataclass(frozen=True, repr=False)
class IndexPlan(Printed):
    """The reads and writes of a build or refresh, for a dry run.

    :param files: data files that it would read, with all their ``bytes``.
    :param estimated_bytes: that it would write, and ``estimated_seconds`` that it would take; ``estimate`` says from
        what. The receipt of the build has the real figures beside both.
    """

    index: str
    mode: str
    groups: tuple[GroupKey, ...]
    files: int
    bytes: int
    reason: str = ""
    estimated_bytes: int = 0
    estimated_seconds: float = 0.0
    estimate: str = ""

    def view(self) -> View:
        written = f"about {size(self.estimated_bytes)} in {span(self.estimated_seconds)} ({self.estimate})"
        facts = [
            ("reads", f"{counted(self.files, 'file')}, {size(self.bytes)}"),
            ("writes", written if self.estimate else None),
            ("why", self.reason),
        ]
        by_partition = Counter(partition for partition, _ in self.groups)
        rows = [(path or ALL_ROWS, count) for path, count in by_partition.items()]
        groups = counted(len(self.groups), "file group")
        return View(f"{self.mode} of index {self.index}: {groups}", facts, [Grid(("partition", "file groups"), rows)])


@dataclass(frozen=True)
class Extremes:
    """The number of values of a column in one data file, and the lowest and highest of them, as an index has them.

    :param filled: rows that have a value.
    :param low: no value is less. :param high: no value is more. Of other types than the column's where an end is not
        known.
    """

    filled: int
    low: Any
    high: Any


@dataclass(frozen=True)
class CannotPrune:
    """The answer of an index that knows nothing on this predicate; the rows must be scanned.

    It is not an empty answer. ``code`` is the reason's code in ``explain``.
    """

    reason: str
    code: str = "cannot_prune"


@dataclass(frozen=True)
class Candidates:
    """The file groups, within what the index covers, where rows that satisfy a predicate can be.

    Everything else that the index covers holds no such row; what it does not cover must be scanned.

    :param groups: file groups of the data that can hold such rows; may be empty, which means that nothing
        matches.
    :param keys: for each of these groups the record keys of such rows, where the index has them and they
        are few.
    :param files: index files read to find out, and the bytes read of them.
    :param blocks: lineage of a data file -> the numbers of its blocks (row groups, stripes) that can hold such rows,
        for files of which the index knows them.
    :param block_counts: lineage of such a file -> how many blocks it has; if it has another number, all of it is read.
    """

    groups: frozenset[GroupKey]
    keys: Mapping[GroupKey, frozenset[Key]] | None = None
    files: int = 0
    bytes: int = 0
    blocks: Mapping[int, frozenset[int]] | None = None
    block_counts: Mapping[int, int] | None = None


@dataclass(frozen=True)
class Buckets:
    """Buckets as Spark's own: how many, by which columns rows are dealt, and the rows as Spark takes them.

    :param rows: as :attr:`CoveringScan.rows`.
    """

    count: int
    columns: tuple[str, ...]
    rows: Callable[[Sequence[str]], DataFrame]


@dataclass(frozen=True)
class KeySearch:
    """A search for keys by a job of Spark, which has them: they are too many for the driver.

    :param columns: of the table, those in which the index compares keys; a key may have values of others too.
    :param types: of the values of these columns in the index.
    :param places: takes a frame of keys, with these columns, and how many there are at most; returns a frame of few
        rows that say where they are. These come to the driver, and no key does.
    :param groups: takes those rows, and returns the file groups, within what the index covers, that can hold a row with
        one of the keys.
    :param files: of the index, which the job reads, and their bytes.
    """

    columns: tuple[str, ...]
    types: tuple[DataType, ...]
    places: Callable[[DataFrame, int], DataFrame]
    groups: Callable[[Sequence[Sequence[Any]]], AbstractSet[GroupKey]]
    files: int
    bytes: int


@dataclass(frozen=True)
class EntryFiles:
    """The files of an index that hold rows, for readers without Spark.

    :param read: Parquet files of this package, each with columns of the table by their names; what one lacks is null.
    :param void: data files whose entries may be in them and are not to be read.
    :param marked: whether they hold the column :data:`~spark_apps.indexes.lineage.LINEAGE`.
    """

    read: tuple[DataFile, ...]
    void: frozenset[int]
    marked: bool


@dataclass(frozen=True)
class CoveringScan:
    """Rows that need not be read from the table's files, for the index holds them.

    :param lineages: the data files whose rows the index answers for. The reader merges the later deltas of such a
        file's group.
    :param rows: from columns to a frame of the rows of these files that can satisfy the predicate, perhaps with others
        of these files; called only if the plan takes it.
    :param files: index files that it would read, and an estimate of the bytes that it would read of them.
    :param check: called once the plan takes it; raises a StorageError if what would be read is damaged, for a query
        that runs cannot turn to the table's files any more.
    :param entries: what ``rows`` reads, where that can be read without Spark.
    :param buckets: set where Spark may rely on the rows' bucketing.
    """

    lineages: frozenset[int]
    rows: Callable[[Sequence[str]], DataFrame]
    files: int
    bytes: int
    check: Callable[[], None] = lambda: None
    entries: EntryFiles | None = None
    buckets: Buckets | None = None


class IndexHandler(ABC):
    """The code of one kind of index.

    Stateless: one object serves all tables.

    Its methods get the ``table`` and the ``definition`` of the index, or a ``context`` that has both, the version
    that is worked on and the folder to stage files in. ``partitions`` are paths, all where ``None``; ``mode`` is that
    of the user's call; a ``probe`` answers what a predicate allows. What changes an index returns its work: the actions
    to commit.
    """

    kind: ClassVar[str]
    """The registered name."""

    own_storage: ClassVar[bool] = True
    """Whether the index has files in the table's directory. Storage elsewhere can only be deferred."""

    unique_keys: ClassVar[bool] = False
    """Whether an index that is kept with the data makes record keys unique in the whole table (:meth:`locate` finds
    where each lives). A table has at most one such index; without buckets it finds its file groups by it and keeps it.
    """

    follows_renames: ClassVar[bool] = False
    """Whether the index finds its columns in its files, and in the table's, after one was renamed."""

    by_key: ClassVar[bool] = True
    """Whether entries name rows by key and partition, so that they stay right when rows go to other files
    there."""

    maintains: ClassVar[bool] = True
    """Whether the index can change in the commit of a write (:meth:`maintain`). Else it lags behind after one until it
    is refreshed, deferred or not."""

    follows_files: ClassVar[bool] = False
    """Whether the index keeps something of each data file, from that file alone, in the commit that adds it
    (:meth:`follow`); it is asked of a predicate as a whole, and not of its parts."""

    partitioned: ClassVar[bool] = False
    """Whether entries can be kept apart by partition columns (:attr:`IndexDefinition.partition_by`)."""

    by_value: ClassVar[bool] = False
    """Whether the index holds a value once a block of rows and not once a row; for estimates."""

    changeable: ClassVar[frozenset[str]] = frozenset()
    """Properties that may change while the index exists, for they only decide what is done from then on."""

    found: ClassVar[frozenset[str]] = frozenset()
    """Properties that nobody gives: what is found in the rows decides them, with each build anew."""

    @property
    def holds_rows(self) -> bool:
        """True if the index can be read in place of the table's files: the kind has a :meth:`substitute` of its own."""
        return type(self).substitute is not IndexHandler.substitute

    @abstractmethod
    def validate(self, table: TableDefinition, definition: IndexDefinition) -> IndexDefinition:
        """Return the definition, completed with the kind's defaults.

        :raises InvalidInput: (or a subclass) if such an index cannot be on such a table.
        """

    def complete(self, snapshot: Snapshot, definition: IndexDefinition) -> IndexDefinition:
        """Return a new definition that :meth:`validate` gave, completed with what only Spark knows.

        :param snapshot: the table at the version that the index is made over.
        :raises InvalidInput: (or a subclass) if Spark cannot make what it is over.
        """
        return definition

    def alter(
        self, table: TableDefinition, definition: IndexDefinition, properties: Mapping[str, str]
    ) -> IndexDefinition:
        """Return the definition with some properties changed.

        :raises InvalidInput: if one is not known, cannot have that value, or is fixed as long as the index exists.
        """
        altered = self.validate(table, replace(definition, properties={**definition.properties, **properties}))
        fixed = sorted(
            name
            for name in altered.properties
            if altered.properties[name] != definition.properties.get(name) and name not in self.changeable
        )
        if fixed:
            raise InvalidInput(
                f"The property {fixed[0]!r} of the index {definition.name!r} is fixed as long as it exists: what the "
                "index holds was made with it.",
                hint=f"Those that can change: {', '.join(sorted(self.changeable)) or 'none'}. For others drop the "
                "index and create it anew.",
            )
        return replace(definition, properties=altered.properties)

    def evolve(
        self,
        table: TableDefinition,
        definition: IndexDefinition,
        mode: Literal["incremental", "full", "quick"],
        included: IncludedColumns | None,
        schema: str | StructType | None,
    ) -> tuple[IndexDefinition, TableDefinition]:
        """Return the definition with included columns changed, and the table with columns learned by ``schema``.

        :raises InvalidInput: (or a subclass) if the kind has no included columns, or these cannot change so.
        """
        raise InvalidInput(
            f"The index {definition.name!r} of kind {definition.kind!r} has no included columns to change.",
            hint="Leave 'included' and 'schema' out.",
        )

    def proposed(
        self, table: TableDefinition, equal: Sequence[str], bounded: Sequence[str]
    ) -> Sequence[tuple[str, ...]]:
        """Return the columns of each index of this kind that may serve a query, for advice to try.

        :param equal: columns of which the query allows some values. :param bounded: those of which it allows a range.
        """
        return ()

    def tree(self, table: TableDefinition, definition: IndexDefinition) -> Tree | None:
        """Return the merge tree of the entries, or ``None`` if they are not kept in one."""
        return None

    def holds(self, table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
        """Return the columns of which the index may hold values, by the names that it knows them under.

        None of them can be dropped or widened, and none renamed unless the kind :attr:`follows_renames`.
        """
        return (*definition.columns, *definition.included)

    def asked_by(self, table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
        """Return the table's columns that a predicate must compare for the index to be of use."""
        return definition.columns or table.record_key

    def expressions(self, table: TableDefinition, definition: IndexDefinition) -> Mapping[str, str]:
        """Return the expressions that the index holds values of, with their Spark types.

        In the canonical text of :mod:`spark_apps.indexes.expressions`. A probe gets their values under
        :func:`~spark_apps.indexes.expressions.key_of` that text.
        """
        return {}

    def reads(self, table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
        """Return columns beside partition columns and record key that :meth:`maintain` needs in :class:`Changes`."""
        return ()

    def needs_rows(self, table: TableDefinition, definition: IndexDefinition) -> bool:
        """Return whether :meth:`maintain` reads ``before`` of an upsert.

        If no index does, it is ``None`` there.
        """
        return True

    @abstractmethod
    def plan(self, context: IndexContext, mode: str = "full", partitions: Sequence[str] | None = None) -> IndexPlan:
        """Return what :meth:`build` (mode "full") or :meth:`refresh` would do."""

    def priced(self, context: IndexContext, plan: IndexPlan) -> IndexPlan:
        """Return a plan with an estimate of what it would write and how long it would take."""

        table = context.table
        keys = () if self.by_value or table.source is not None else table.record_key
        table_columns = {field.name for field in table.fields}
        columns = [
            name for name in dict.fromkeys([*self.holds(table, context.definition), *keys]) if name in table_columns
        ]
        cost = estimate(context.snapshot, plan.groups, columns, values=self.by_value)
        return changed(
            plan,
            estimated_bytes=cost.bytes,
            estimated_seconds=cost.seconds,
            estimate=cost.text if plan.groups else "",
        )

    @abstractmethod
    def build(self, context: IndexContext) -> IndexWork:
        """Stage entries of all rows of the snapshot.

        :returns: the files that were staged, as actions.
        """

    @abstractmethod
    def maintain(self, context: IndexContext, changes: Changes) -> IndexWork:
        """Stage what a data commit changes in the index; it is published in the same commit.

        :returns: the files that were staged, as actions.
        """

    def maintain_rows(self, context: IndexContext, changes: ChangedRows) -> IndexWork | None:
        """Stage what a commit of few rows changes in the index, as :meth:`maintain` does, without a Spark job.

        :returns: the files that were staged, as actions; ``None`` to be asked by :meth:`maintain` instead.
        """
        return None

    def follow(self, context: IndexContext, files: Sequence[DataFile]) -> IndexWork:
        """Stage what data files mean to the index that a commit adds; it is published in the same commit.

        For a kind that :attr:`follows_files`, on keyed tables. If it fails, the index lags behind and the rows are
        written.

        :param files: all that the commit adds, with the sequence numbers that they will have.
        :returns: the files that were staged, as actions; nothing if the index is to lag behind.
        """
        return IndexWork()

    @abstractmethod
    def refresh(
        self,
        context: IndexContext,
        mode: Literal["incremental", "full", "quick"] = "incremental",
        partitions: Sequence[str] | None = None,
    ) -> IndexWork:
        """Stage what makes the index cover the snapshot again.

        :returns: the files that were staged, as actions.
        """

    def compact(self, context: IndexContext, mode: Literal["quick", "full"] = "quick") -> IndexWork:
        """Stage fewer, larger files with the same entries.

        :returns: the files that were staged, as actions.
        """
        return IndexWork()

    @abstractmethod
    def can_prune(
        self, table: TableDefinition, definition: IndexDefinition, probe: PredicateProbe
    ) -> CannotPrune | None:
        """Return why :meth:`prune` would be of no use for a predicate; ``None`` if it may be of use.

        Nothing is read for it.
        """

    @abstractmethod
    def prune(self, context: IndexContext, probe: PredicateProbe) -> Candidates | CannotPrune:
        """Return where rows can be that satisfy a predicate.

        :raises StorageError: if a file of the index is missing or damaged; the caller scans the rows then.
        """

    def key_search(self, context: IndexContext, columns: Collection[str]) -> KeySearch | None:
        """Return how a job of Spark finds many keys in the index, ``None`` for a kind without such a search.

        :param columns: of the table, of which each key has a value; an index over others of them too is of no use.
        :raises StorageError: if a file of the index is missing or damaged.
        """
        return None

    def extremes(self, context: IndexContext, column: str) -> Mapping[int, Extremes]:
        """Return lineage of a data file -> the lowest and highest value of a column of the table in it.

        A file whose values the index does not know is left out. The values are those of the rows in the file itself,
        whatever later deltas replace or remove.

        :raises StorageError: if a file of the index is missing or damaged.
        """
        return {}

    def substitute(
        self,
        context: IndexContext,
        probe: PredicateProbe | None,
        columns: Sequence[str],
        groups: Collection[GroupKey],
    ) -> CoveringScan | CannotPrune:
        """Return rows of file groups out of the index itself, for a kind that holds columns of its own.

        :param probe: ``None`` if all rows are read.
        :param columns: what the query needs, the predicate's columns among them.
        :param groups: the file groups that are left to read.
        :raises StorageError: if a file of the index is missing or damaged; the rows are read then.
        """
        return CannotPrune("it holds no rows")

    def locate(self, context: IndexContext, keys: DataFrame) -> DataFrame | None:
        """Return where records live, for a kind whose keys are unique in the whole table.

        ``None`` if the kind cannot locate them.

        :param keys: record keys, each once.
        :returns: the record key columns and :data:`PARTITION` (without a bucket layout also the id of the file group,
            :data:`~spark_apps.mergetree.tree.GROUP_ID`), for those keys that live in a file group which the index
            covers; the caller looks for them in the others itself. May name a key that was there: the caller only
            writes tombstones by it.
        """
        return None

    def places(self, context: IndexContext, keys: Any) -> Any | None:
        """Return where records live as :meth:`locate` does, without Spark.

        ``None`` if the driver cannot, or if Spark is quicker for this number of keys; also where the index does not
        cover everything.

        :param keys: an Arrow table with the record key columns, each key once.
        :returns: an Arrow table with these columns and :data:`PARTITION`.
        :raises StorageError: if a file of the index is missing or damaged.
        """
        return None

    def check_built(self, context: IndexContext) -> Mapping[str, Any]:
        """Compare a whole build with the rows by numbers, before it is committed: what was read and what was staged.

        :param context: with a snapshot that shows the index as the commit will.
        :returns: figures for the receipt.
        :raises VerificationFailed: with both figures; such an index does not become active.
        """
        return {}

    def comparison(self, context: IndexContext, reader: ArrowReader | None = None) -> Comparison | None:
        """Return the entries that the index should have by the rows that it covers, and those that it has.

        They are compared by :mod:`spark_apps.indexes.comparison`, which makes the report. A kind that compares its
        entries otherwise implements :meth:`verify` instead.

        :param reader: reads both as Arrow tables if there is no Spark session.
        :returns: ``None`` if the kind is not compared, or only in Spark.
        """
        return None

    def verify(self, context: IndexContext) -> VerificationReport:
        """Compare what the index holds with a full scan of what it covers; of a kind without :meth:`comparison`.

        :raises InvalidInput: if the kind has no way to do so.
        :returns: what agrees and what differs.
        """
        raise InvalidInput(
            f"An index of kind {self.kind!r} cannot be compared with the rows.",
            hint="Refresh it with mode='full'.",
        )

    def drop_partitions(self, context: IndexContext, partitions: Collection[str]) -> IndexWork:
        """Return what goes with these partitions of an index that does not follow single rows.

        In the commit that drops the partitions of the table, for a kind without :attr:`maintains`. Entries that remain
        must be void by themselves.
        """
        return IndexWork()

    def drop(self, context: IndexContext) -> None:
        """Remove what the index keeps outside of the table; its own files the framework removes.

        Called once the drop of the index, or of its table, is committed: whatever fails, the index is gone. Called
        again when that is tried again, so that what does not exist any more is no error.

        :param context: the table as it was before; without a directory to stage files in.
        """
        return None


# --- Estimates of a build ---------------------------------------------------------------------------------------------


# Set by builds of a record and a secondary index over 1,000,000 rows, 5.1 and 6.2 s on two cores that had other work.
_START_SECONDS = 2.0
_CORE_SECONDS_PER_ROW = 5e-6
"""Of shuffling, sorting, writing and counting a row."""

_BYTES_PER_SECOND = 50e6
"""Of reading, where no piece of a file could be timed."""

_ROW_BYTES = 100
_PATH_BYTES = 0.2
"""What the path of a row's partition takes in an entry: a dictionary holds it."""


@dataclass(frozen=True)
class Estimate:
    """The cost of a build: what it would read and write.

    :param rows: that it would read.
    :param read: bytes of the columns that it would read of the data files.
    :param bytes: that it would write.
    :param seconds: that it would take.
    :param sampled: files sampled.
    """

    rows: int
    read: int
    bytes: int
    seconds: float
    sampled: int

    @property
    def text(self) -> str:
        return (
            f"about {self.bytes:,} bytes and {self.seconds:.1f} s, for {self.rows:,} rows in {self.read:,} bytes of "
            f"columns; from {self.sampled} files"
        )


def estimated_rows(file: DataFile) -> int:
    """Return the rows of a file.

    Of a source's file whose format does not give them, about as many as its bytes let expect.
    """
    return file.bytes // _ROW_BYTES if file.rows < 0 else file.rows - file.tombstones


def estimate(
    snapshot: Snapshot, groups: Collection[GroupKey], columns: Sequence[str], *, values: bool = False
) -> Estimate:
    """Return the cost of an index over some file groups.

    :param snapshot: the table at the version that is indexed.
    :param groups: the file groups that an index is to cover.
    :param columns: of the table, that the index holds.
    :param values: whether it holds each value once a block and not once a row.
    """
    files = [file for group_files in snapshot.groups(only=groups).values() for file in group_files]
    rows = sum(map(estimated_rows, files))
    total = sum(file.bytes for file in files)
    if not files or not rows:
        return Estimate(rows, total, 0, 0.0 if not files else _START_SECONDS, 0)
    footers = _footers(snapshot, files)
    sampled_bytes = sum(footer.file.bytes for footer in footers)
    stored = [snapshot.data.stored(name) for name in columns]
    if sampled_bytes:
        column_bytes = sum(footer.bytes(stored) for footer in footers)
        index_bytes = sum(_dictionary_bytes(footer, stored) for footer in footers) if values else column_bytes
        read, written = total * column_bytes / sampled_bytes, total * index_bytes / sampled_bytes
    else:
        read = total * column_share(snapshot.data.fields, set(columns))
        written = read / 10 if values else read
    written += rows * _PATH_BYTES if not values else 0
    parallelism = cores(snapshot.spark) if snapshot.has_spark else 2
    speed = _bytes_per_second(snapshot, footers, stored)
    seconds = _START_SECONDS + (read / speed + rows * _CORE_SECONDS_PER_ROW) / parallelism
    return Estimate(rows, round(read), round(written), round(seconds, 1), len(footers))


def _footers(snapshot: Snapshot, files: Sequence[DataFile]) -> list[BlockFile]:
    step = max(1, len(files) // MAX_SAMPLED_FILES)
    try:
        return read_footers(snapshot, files[::step][:MAX_SAMPLED_FILES])
    except StorageError as error:
        logger.warning("Footers could not be read for an estimate: %s", error)
        return []  # the build itself will raise what is wrong, if it matters


def _dictionary_bytes(footer: BlockFile, names: Sequence[str]) -> int:
    """Return the bytes of the dictionaries of some columns, which hold each value of a row group once.

    Of a column without a dictionary, all that it takes.
    """
    if footer.format != "parquet":
        return footer.bytes(names) // 10
    total = 0
    stored_names = {footer.held(name) for name in names}
    for block in range(footer.blocks):
        for number, chunk in enumerate(column_chunks(footer.parsed, block)):
            if column_name(footer.parsed.schema.column(number)) in stored_names:
                start = chunk.dictionary_page_offset
                total += chunk.total_compressed_size if start is None else max(0, chunk.data_page_offset - start)
    return total


def _bytes_per_second(snapshot: Snapshot, footers: Sequence[BlockFile], names: Sequence[str]) -> float:
    """Return the bytes of these columns that one core reads in a second, timed on one row group."""
    for footer in footers:
        stored = [name for name in names if footer.format == "parquet" and footer.held(name) is not None]
        if not stored or not footer.blocks or not 0 < footer.bytes(stored, [0]) <= MAX_TIMED_BYTES:
            continue
        start = time.perf_counter()
        try:
            opened = open_blocks(footer.format, footer.address, footer.file.bytes, access_options(snapshot))
            opened.read_group(0, [str(footer.held(name)) for name in stored])
        except OSError:
            break
        return footer.bytes(stored, [0]) / max(time.perf_counter() - start, 1e-3)
    return _BYTES_PER_SECOND
