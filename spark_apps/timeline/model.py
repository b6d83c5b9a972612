"""The contents of the log: commits, the actions in them, the scopes they read and wrote.

Every class is a frozen struct that turns into JSON and back; :mod:`spark_apps.timeline.state` defines what the
actions mean when they are folded, :mod:`spark_apps.timeline.commit` when a commit may be made.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from spark_apps.storage.documents import prepare
from spark_apps.storage.printing import Grid, Printed, View, counted, instant_text, metric_facts
from spark_apps.timeline.field_types import (
    Buckets,
    Bytes,
    ConfigInstant,
    ConfigPath,
    Count,
    Feature,
    FolderTxnId,
    Group,
    Hash,
    Id,
    Instant,
    Label,
    MetaPath,
    Moment,
    Name,
    OperationName,
    Partition,
    Rows,
    ScopeName,
    Seconds,
    Setting,
    Short,
    SidecarPath,
    Token,
    Tree,
    TxnId,
    TypeText,
    Version,
    VersionOrNone,
    Words,
)

FORMAT_VERSION = 1
"""The log's format of tables without features (:mod:`spark_apps.timeline.features`)."""

DATA_TREE = "data"
"""The merge tree that holds the table's own rows; the others belong to indexes (:attr:`IndexDefinition.tree`)."""

TOMBSTONES_TREE = "tombstones"
"""The merge tree of the orderings of deletes that outlive a fold, by the file groups of the rows: a file beside each
base that needs one (:mod:`spark_apps.timeline.tombstones`)."""


class Struct(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of all that is written down."""


# --- scopes: what a commit read and wrote -----------------------------------------------------------------------


class Scope(Struct, frozen=True):
    """A part of the table.

    ``table`` holds all others, ``partition`` holds its buckets, ``definition`` without a name those of all indexes, and
    with a partition what an index holds of it.
    Names of indexes that differ in case only are one, as they are in SQL.
    """

    kind: Literal["table", "partition", "bucket", "shard", "definition", "config", "schema"]
    partition: Partition | None = None
    group: Group | None = None
    name: ScopeName | None = None

    def overlaps(self, other: Scope) -> bool:
        """Test whether the two have anything in common."""
        if self.kind == "table" or other.kind == "table":
            return True
        kinds = {self.kind, other.kind}
        if kinds <= {"partition", "bucket"}:
            if self.partition != other.partition:
                return False
            return "partition" in kinds or self.group == other.group
        if kinds == {"definition"}:
            if self.partition is not None and other.partition is not None and self.partition != other.partition:
                return False
            return self.name is None or other.name is None or self.name.lower() == other.name.lower()
        return self == other

    def __str__(self) -> str:
        if self == DEFINITIONS_SCOPE:
            return "the definitions of indexes"
        parts = [part for part in (self.name, self.partition, self.group) if part is not None]
        return f"{self.kind} {'/'.join(parts)}".strip()


WriteMode = Literal["append", "fold", "backdated", "replace", "observed"]
"""How a commit wrote a scope.

``append``: new rows or tombstones on top. ``fold``: the same rows in other files. ``backdated``: entries as of
an earlier version (an index build or refresh). ``replace``: rows removed or rewritten. ``observed``: files of a
registered source recorded as they are; two commits that record one source write the same.
"""

UNKNOWN_ROWS = -1
"""As the number of rows of a source's file: its format has no count without reading all of it."""


class Write(Struct, frozen=True):
    """A scope that a commit wrote, and how it did: this decides which other commits go together with it."""

    scope: Scope
    mode: WriteMode = "append"


def table_scope() -> Scope:
    return Scope("table")


def partition_scope(partition: str) -> Scope:
    return Scope("partition", partition=partition)


def group_scope(partition: str, group: str) -> Scope:
    return Scope("bucket", partition=partition, group=group)


def shard_scope(tree: str, group: str) -> Scope:
    """Return the scope of one file group of a tree: of an index its shard."""
    return Scope("shard", name=tree, group=group)


def definition_scope(index: str, partition: str | None = None) -> Scope:
    """Return the scope of an index's definition, or of what the index holds of one partition."""
    return Scope("definition", partition, name=index)


CONFIG_SCOPE = Scope("config")
SCHEMA_SCOPE = Scope("schema")
DEFINITIONS_SCOPE = Scope("definition")
"""The set of indexes and their definitions: read by a commit that relies on none of them being in the way."""


# --- definitions ------------------------------------------------------------------------------------------------


class Field(Struct, frozen=True):
    """A column: ``type`` in Spark's words ("bigint", "decimal(10,2)", "struct<a:int>").

    ``stored`` is its name in files, where that is another: it is what the column was first called, and stays.
    """

    name: Label
    type: TypeText
    nullable: bool = True
    stored: Label | None = None

    @property
    def stored_name(self) -> str:
        return self.name if self.stored is None else self.stored


class SourceDefinition(Struct, frozen=True):
    """The rows of a registered table: they are in files of another writer, which this package only reads.

    ``location`` is absolute, a folder, file or glob; ``options`` are those of the format's reader and hold no secret.
    ``version`` is the source's own name of its state when a commit last recorded its files (a Delta version, an Iceberg
    snapshot id); ``None`` for plain files, whose list is their state. ``session``: the settings of Spark that decide on
    what its files mean, as they were when it was registered; ``None`` where they were not written down. ``identity``:
    the format's own id of the table, which another one at the location does not have; ``None`` where it is not known.
    ``mark``: what tells whether the source's own log goes on from ``version``, so that a refresh asks it for what came
    since; ``None`` where the files that are listed may not be all of that version, or the format has no such log.
    """

    format: Label
    location: Label
    options: dict[Label, Setting] = {}
    version: Label | None = None
    session: dict[Label, Setting | None] | None = None
    identity: Label | None = None
    mark: Label | None = None


class TableDefinition(Printed, Struct, frozen=True):
    """The definition of a table. Columns come, go and change their names; all else is fixed when it is made.

    With a ``source`` the rows belong to another writer; ``fields`` and ``version`` then change as the source's do.

    ``retired`` are names in files of columns that were dropped: no later column may be stored under them.
    ``positions``: whether deltas mark which rows of the file under them they replace
    (:mod:`spark_apps.mergetree.read`).
    """

    table_id: Label
    fields: tuple[Field, ...]
    record_key: tuple[Label, ...]
    partition_by: tuple[Label, ...] = ()
    ordering_column: Label | None = None
    merge_by: Literal["commit", "ordering"] = "commit"
    write_mode: Literal["merge_on_read", "copy_on_write"] = "merge_on_read"
    hash_fields: tuple[Label, ...] = ()
    hash_function: Setting = "xxhash64"
    bucketed: bool = True
    properties: dict[Label, Setting] = {}
    source: SourceDefinition | None = None
    retired: tuple[Label, ...] = ()
    positions: bool = False

    def view(self) -> View:
        layout = f"buckets by {self.hash_function} of {', '.join(self.hash_fields or self.record_key)}"
        facts = [
            ("source", None if self.source is None else f"{self.source.format} at {self.source.location}"),
            ("record key", self.record_key),
            ("partitioned by", self.partition_by),
            ("ordering", self.ordering_column),
            ("newest by", None if self.source else self.merge_by),
            ("layout", None if self.source else layout if self.bucketed else "file groups found by the record index"),
            ("writes", None if self.source else self.write_mode.replace("_", " ")),
            ("positions", self.positions or None),
            ("properties", self.properties),
        ]
        columns = [(field.name, field.type, "" if field.nullable else "never null") for field in self.fields]
        return View(f"{counted(len(self.fields), 'column')}", facts, [Grid(("column", "type", ""), columns)])


class HashingConfig(Struct, frozen=True):
    """Rules for the bucket count of partitions to come, as of one instant (Hudi's RFC-89)."""

    instant: ConfigInstant
    default: Buckets
    rule: Label = "regex"
    expressions: Words | None = None


IndexState = Literal["creating", "active", "disabled"]

HUDI = "hudi"
"""The engine of indexes that are a Hudi table's own; their kinds begin with it, as ``hudi:record``."""

OWN_ENGINE = "lakeindex"
"""The engine of all other indexes: this package keeps them."""


class IndexDefinition(Printed, Struct, frozen=True):
    """The definition of an index.

    ``index_id`` is new with each creation, so that the files of a dropped index cannot become those of a later one with
    the same name. ``partition_by``: the partition columns that entries are kept apart by, if any were given.
    ``index_table`` is a name for what stores the index; ``location`` is where, outside of the table. ``addresses``:
    whether entries name rows by key, or files, which they know by lineage; a commit that only moves rows to other files
    (a compaction) does not concern the latter.
    """

    name: Name
    kind: Label
    columns: tuple[Label, ...]
    index_id: Id
    included: tuple[Label, ...] = ()
    deferred: bool = False
    shards: Buckets = 1
    hash_function: Setting = "xxhash64"
    properties: dict[Label, Setting] = {}
    comment: Words | None = None
    partition_by: tuple[Label, ...] | None = None
    index_table: Label | None = None
    location: Label | None = None
    addresses: Literal["key", "file"] = "key"

    @property
    def tree(self) -> str:
        """Name of the merge tree that holds the index's entries."""
        return f"index/{self.name}@{self.index_id}"

    @property
    def engine(self) -> str:
        """Name of the engine that keeps the index: this package, or ``hudi`` for one that a Hudi table has itself."""
        engine, _, kind = self.kind.partition(":")
        return engine if kind and engine == HUDI else OWN_ENGINE

    def view(self) -> View:
        facts = [
            ("engine", None if self.engine == OWN_ENGINE else self.engine),
            ("columns", self.columns),
            ("included", self.included),
            ("kept", "by a refresh (deferred)" if self.deferred else "with the data"),
            ("shards", self.shards if self.shards > 1 else None),
            ("properties", self.properties),
            ("partitioned by", self.partition_by),
            ("stored as", self.index_table),
            ("location", self.location),
            ("comment", self.comment),
        ]
        return View(f"{self.kind} index {self.name}", facts)


# --- What is written down in the log --------------------------------------------------------------------------------


__all__ = [  # handed on; what this module defines is public too
    "CONFIG_SCOPE",
    "DATA_TREE",
    "DEFINITIONS_SCOPE",
    "FORMAT_VERSION",
    "SCHEMA_SCOPE",
    "TOMBSTONES_TREE",
    "UNKNOWN_ROWS",
    "Field",
    "HashingConfig",
    "IndexDefinition",
    "IndexState",
    "Scope",
    "SourceDefinition",
    "Struct",
    "TableDefinition",
    "Write",
    "WriteMode",
    "definition_scope",
    "group_scope",
    "partition_scope",
    "shard_scope",
    "table_scope",
]

# --- actions ----------------------------------------------------------------------------------------------------


class Action(Struct, frozen=True, tag_field="action"):
    """A change of the state."""


COVERS = "covers"
"""In :attr:`AddFile.extra` of an index that addresses files: which ones it covers
(:mod:`spark_apps.indexes.lineage`)."""

NEW_KEYS = "new_keys"
"""In :attr:`AddFile.extra` of rows that were inserted: none of their keys was in the file group before."""


ORDERED = "ordered"
"""In :attr:`AddFile.extra` of a delta: its tombstones take part in the order of the ordering column by the value that
they have there; one without a value removes whatever was committed before it."""

KEPT = "kept"
"""In :attr:`AddFile.extra` of a file of :data:`TOMBSTONES_TREE`: when it was written, in seconds since 1970 (UTC)."""

REPLACED = "replaced"
"""In :attr:`AddFile.extra` of a delta: how many rows of its file group, as it was, its keys replace or delete."""


class AddFile(Action, frozen=True, tag="add"):
    """A data or index file becomes part of a file group.

    ``sequence_number`` is the order of the file in merging: ``None`` means the version of the commit that publishes
    it; a compacted file takes the highest of its inputs; an index file built from a snapshot takes that snapshot's
    version. ``tombstones`` counts the rows that remove a key. ``lineage`` is the 64-bit id of the file.
    """

    tree: Short
    partition: Short
    group: Short
    path: Short
    kind: Literal["base", "delta"]
    rows: Rows
    bytes: Bytes
    sequence_number: Version | None = msgspec.field(default=None, name="place")
    tombstones: Count = 0
    lineage: Count = 0
    extra: dict[str, Any] | None = None

    @property
    def group_key(self) -> tuple[str, str]:
        return self.partition, self.group


class RemoveFile(Action, frozen=True, tag="remove"):
    """Removal of a file from a tree."""

    tree: Short
    path: Short


class PutPartition(Action, frozen=True, tag="partition"):
    """A partition and its bucket count (``None`` without a bucket layout).

    ``values`` are the partition columns' values as strings, ``None`` for null.
    """

    path: Partition
    buckets: Buckets | None = None
    values: tuple[Words | None, ...] = ()


class DropPartition(Action, frozen=True, tag="drop_partition"):
    """Removal of a partition, its count and its data files."""

    path: Partition


class PutTable(Action, frozen=True, tag="table"):
    definition: TableDefinition


class DropTable(Action, frozen=True, tag="drop_table"):
    pass


class PutIndex(Action, frozen=True, tag="index"):
    """A definition, new or changed.

    ``covered``: whether a new one covers the table as it is (an empty table); else every file group starts uncovered.
    """

    definition: IndexDefinition
    state: IndexState = "active"
    covered: bool = False


class DropIndex(Action, frozen=True, tag="drop_index"):
    name: Name


class MarkCovered(Action, frozen=True, tag="cover"):
    """A mark that an index covers all that version ``through`` held of the file groups listed.

    Listed are groups, or partitions with all of their groups; neither means all. ``through`` ``None`` means all that
    the commit of this very action holds, its own changes with it.
    """

    tree: Tree
    through: VersionOrNone | None
    partitions: tuple[Partition, ...] | None = None
    groups: tuple[tuple[Partition, Group], ...] | None = None


Cover = MarkCovered
"""The name that index kinds of others import."""


class PutHashingConfig(Action, frozen=True, tag="hashing_config"):
    """New rules.

    Publishing gives them the instant of the commit, and in ``path`` names the ``.hashing_config`` file that it wrote
    (:mod:`spark_apps.timeline.hashing_config`).
    """

    config: HashingConfig
    path: ConfigPath | None = None


class DropHashingConfig(Action, frozen=True, tag="drop_hashing_config"):
    """The rules of ``instant`` are taken back. ``path`` as in :class:`PutHashingConfig`."""

    instant: ConfigInstant
    path: ConfigPath | None = None


class HashingMeta(Action, frozen=True, tag="hashing_meta"):
    """The name of the ``.hashing_meta`` file with the bucket counts of this version; publishing adds it."""

    path: MetaPath


class OpenWindow(Action, frozen=True, tag="open_window"):
    """Opening of a stop-write window; its epoch is the version of the commit.

    Times are seconds since 1970 (UTC). ``partitions`` ``None`` means the whole table. ``seconds``: from the opening to
    the deadline, as its holder counted them; the log's instants may be ahead of the holder's clock.
    """

    holder: Words
    deadline: Moment
    last_moment: Moment
    partitions: tuple[Partition, ...] | None = None
    seconds: Seconds | None = None


class RenewWindow(Action, frozen=True, tag="renew_window"):
    epoch: Version
    deadline: Moment


class CloseWindow(Action, frozen=True, tag="close_window"):
    """Closing of a window by its holder."""

    epoch: Version


class EndWindow(Action, frozen=True, tag="end_window"):
    """Ending of a window by any process, after the deadline: from this version on the holder is fenced off."""

    epoch: Version
    ended_by: Words


class Abort(Action, frozen=True, tag="abort"):
    txn_id: TxnId
    attempt: Count
    reason: Words = ""


class Expire(Action, frozen=True, tag="expire"):
    """Expiry: versions below ``below`` are no longer readable."""

    below: Version


class Restore(Action, frozen=True, tag="restore"):
    """Restore: the effects of the versions after ``to`` are taken back.

    The changes that do it are listed beside this action.
    """

    to: Version


class SetLag(Action, frozen=True, tag="lag"):
    """Exactly what an index does not cover: (partition, group) -> covered through version."""

    tree: Tree
    groups: tuple[tuple[Partition, Group, VersionOrNone], ...]


AnyAction = (
    AddFile
    | RemoveFile
    | PutPartition
    | DropPartition
    | PutTable
    | DropTable
    | PutIndex
    | DropIndex
    | MarkCovered
    | PutHashingConfig
    | DropHashingConfig
    | HashingMeta
    | OpenWindow
    | RenewWindow
    | CloseWindow
    | EndWindow
    | Abort
    | Expire
    | Restore
    | SetLag
)


# --- commits ----------------------------------------------------------------------------------------------------


Features = Annotated[tuple[Feature, ...], msgspec.Meta(max_length=1000)]
"""Names of what a table has that not every version of this package knows."""


class Commit(Struct, frozen=True):
    """A file of the log.

    ``instant`` is ``yyyyMMddHHmmssSSS`` in UTC and grows strictly from commit to commit. ``maintained`` names the index
    trees that this commit kept in step with the rows it wrote. Commits with very many actions keep them in ``sidecar``.
    ``reader_features`` and ``writer_features`` are those that the table has from this version on.
    """

    format: Version
    version: Version
    instant: Instant
    operation: OperationName
    txn_id: TxnId
    attempt: Count
    base: VersionOrNone
    reads: tuple[Scope, ...] = ()
    writes: tuple[Write, ...] = ()
    epoch: Version | None = None
    maintained: tuple[Tree, ...] = ()
    actions: tuple[AnyAction, ...] = ()
    sidecar: SidecarPath | None = None
    metrics: dict[Label, Any] = {}
    reader_features: Features = ()
    writer_features: Features = ()


class FormatOnly(Struct, frozen=True):
    """The fields that every format, past and to come, has; those of features may be left out."""

    format: Version
    reader_features: Features = ()
    writer_features: Features = ()


class Receipt(Printed, Struct, frozen=True):
    """The result of a commit for its caller, small enough for XCom.

    ``version`` is ``None`` if there was nothing to do and nothing was committed.
    """

    version: int | None
    txn_id: str
    operation: str
    metrics: dict[str, Any] = {}
    instant: str | None = None
    attempt: int = 0

    @property
    def committed(self) -> bool:
        return self.version is not None

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, for JSON and XCom."""
        return msgspec.to_builtins(self)

    def view(self) -> View:
        if self.version is not None:
            outcome = f"committed version {self.version}"
        else:
            outcome = f"staged in {self.metrics['stage']}" if "staged" in self.metrics else "nothing to do"
        facts = [("instant", instant_text(self.instant)), ("transaction", self.txn_id)]
        return View(f"{self.operation}: {outcome}", [*facts, *metric_facts(self.metrics)])

    @classmethod
    def of(cls, commit: Commit) -> Receipt:
        return cls(commit.version, commit.txn_id, commit.operation, commit.metrics, commit.instant, commit.attempt)


class Requested(Struct, frozen=True):
    """The first file of an attempt.

    Once it is written the cleaner keeps what version ``base`` and later ones need, and what the older version
    ``protects`` needs where one is given. ``nonce`` distinguishes the attempt's own bytes from another's. ``patience``:
    seconds without a sign of life after which, and not before, it is presumed dead.
    """

    txn_id: FolderTxnId
    attempt: Count
    base: VersionOrNone
    operation: OperationName
    stages: tuple[Name, ...]
    requested_at: Moment
    nonce: Token
    scopes: tuple[Scope, ...] | None = None
    epoch: Version | None = None
    protects: Version | None = None
    inputs: dict[Label, Any] = {}
    patience: Seconds = 0.0

    @property
    def oldest_needed(self) -> int:
        """The oldest version whose files the attempt may read."""
        return self.base if self.protects is None else min(self.base, self.protects)


class Heartbeat(Struct, frozen=True):
    """The last sign of life of an attempt. ``done`` of ``total`` in the phase's own unit (rows or files)."""

    at: Moment
    phase: Words = ""
    done: Count | None = None
    total: Count | None = None
    note: Words = ""


class StageManifest(Struct, frozen=True):
    """The product of one stage.

    ``made_from`` maps the stages it was made from to the hashes of their manifests. ``inputs`` describes what it was
    made of beside them, so that a second try can see whether it is still that. ``unique`` names the trees of indexes of
    unique keys that it added entries to, with their key columns as files call them (none if that is not known).
    ``sole``: no index kept with the data may be made beside it; ``unique_by`` names the tree of the index by which its
    keys were seen to be unique in the table, where it relies on that.
    """

    stage: Name
    actions: tuple[AnyAction, ...] = ()
    reads: tuple[Scope, ...] = ()
    writes: tuple[Write, ...] = ()
    maintained: tuple[Tree, ...] = ()
    made_from: dict[Name, Hash] = {}
    metrics: dict[Label, Any] = {}
    operation: OperationName = ""
    inputs: Words = ""
    unique: dict[Tree, tuple[Label, ...]] = {}
    sole: bool = False
    unique_by: str = ""


class StageClaim(Struct, frozen=True):
    """A claim of a stage by one of its tries: the newest one counts. ``token`` names its manifest."""

    token: Token
    at: Moment


prepare(AnyAction, Commit, FormatOnly, Receipt, Requested, Heartbeat, StageManifest, StageClaim)
