"""What is written down in the log: commits, the actions in them, the scopes they read and wrote.

Everything here is a frozen struct that turns into JSON and back; what the actions mean when they are folded is
told in :mod:`spark_apps.timeline.state`, and when a commit may be made in :mod:`spark_apps.timeline.conflicts`.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from spark_apps.storage.documents import prepare
from spark_apps.timeline.checked import (
    Buckets,
    Bytes,
    ConfigInstant,
    ConfigPath,
    Count,
    FolderTxnId,
    Group,
    Hash,
    Instant,
    Label,
    MetaPath,
    Moment,
    Name,
    Operation,
    Partition,
    Rows,
    Seconds,
    Short,
    SidecarPath,
    Token,
    Tree,
    TxnId,
    Version,
    VersionOrNone,
    Words,
)
from spark_apps.timeline.definitions import (
    CONFIG_SCOPE,
    DATA_TREE,
    DEFINITIONS_SCOPE,
    FORMAT_VERSION,
    SCHEMA_SCOPE,
    UNKNOWN_ROWS,
    Field,
    HashingConfig,
    IndexDefinition,
    IndexState,
    Scope,
    SourceDefinition,
    Struct,
    TableDefinition,
    Write,
    WriteMode,
    definition_scope,
    group_scope,
    partition_scope,
    shard_scope,
    table_scope,
)

__all__ = [  # handed on; what is defined here is public too
    "CONFIG_SCOPE",
    "DATA_TREE",
    "DEFINITIONS_SCOPE",
    "FORMAT_VERSION",
    "SCHEMA_SCOPE",
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
    """One change of the state."""


COVERS = "covers"
"""In :attr:`AddFile.extra` of an index that addresses files: which ones it tells of
(:mod:`spark_apps.indexes.lineage`)."""

NEW_KEYS = "new_keys"
"""In :attr:`AddFile.extra` of rows that were inserted: none of their keys was in the file group before."""


class AddFile(Action, frozen=True, tag="add"):
    """A data or index file becomes part of a file group.

    ``place`` is its place in the merge order: ``None`` means the version of the commit that publishes it; a compacted
    file takes the highest place of its inputs; an index file built from a snapshot takes that snapshot's version.
    ``tombstones`` counts the rows that remove a key. ``lineage`` is the 64-bit id of the file.
    """

    tree: Short
    partition: Short
    group: Short
    path: Short
    kind: Literal["base", "delta"]
    rows: Rows
    bytes: Bytes
    place: Version | None = None
    tombstones: Count = 0
    lineage: Count = 0
    extra: dict[str, Any] | None = None


class RemoveFile(Action, frozen=True, tag="remove"):
    tree: Short
    path: Short


class PutPartition(Action, frozen=True, tag="partition"):
    """A partition and its bucket count (``None`` without a bucket layout). ``values`` are the partition columns'
    values as strings, ``None`` for null."""

    path: Partition
    buckets: Buckets | None = None
    values: tuple[Words | None, ...] = ()


class DropPartition(Action, frozen=True, tag="drop_partition"):
    """Removes the partition, its count and its data files."""

    path: Partition


class PutTable(Action, frozen=True, tag="table"):
    definition: TableDefinition


class DropTable(Action, frozen=True, tag="drop_table"):
    pass


class PutIndex(Action, frozen=True, tag="index"):
    """A definition, new or changed. ``covered`` tells of a new one whether it covers the table as it is (an empty
    table), else every file group starts uncovered."""

    definition: IndexDefinition
    state: IndexState = "active"
    covered: bool = False


class DropIndex(Action, frozen=True, tag="drop_index"):
    name: Name


class Cover(Action, frozen=True, tag="cover"):
    """The index tells of every file group (or of those of the partitions, or of the groups, listed) all that version
    ``through`` held; with ``None``, all that the commit of this very action holds, its own changes with it."""

    tree: Tree
    through: VersionOrNone | None
    partitions: tuple[Partition, ...] | None = None
    groups: tuple[tuple[Partition, Group], ...] | None = None


class PutHashingConfig(Action, frozen=True, tag="hashing_config"):
    """New rules. Publishing gives them the instant of the commit, and in ``path`` names the ``.hashing_config`` file
    that it wrote (:mod:`spark_apps.timeline.hashing`)."""

    config: HashingConfig
    path: ConfigPath | None = None


class DropHashingConfig(Action, frozen=True, tag="drop_hashing_config"):
    """The rules of ``instant`` are taken back. ``path`` as above."""

    instant: ConfigInstant
    path: ConfigPath | None = None


class HashingMeta(Action, frozen=True, tag="hashing_meta"):
    """Names the ``.hashing_meta`` file that tells the bucket counts of this version; publishing adds it."""

    path: MetaPath


class OpenWindow(Action, frozen=True, tag="open_window"):
    """Opens a stop-write window; its epoch is the version of the commit. Times are seconds since 1970 (UTC).

    ``partitions`` ``None`` means the whole table. ``seconds``: from the opening to the deadline, as its holder counted
    them; the log's instants may be ahead of his clock.
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
    """By its holder."""

    epoch: Version


class EndWindow(Action, frozen=True, tag="end_window"):
    """By anyone, after the deadline: from here on the holder is fenced off."""

    epoch: Version
    ended_by: Words


class Abort(Action, frozen=True, tag="abort"):
    txn_id: TxnId
    attempt: Count
    reason: Words = ""


class Expire(Action, frozen=True, tag="expire"):
    """Versions below ``below`` are no longer readable."""

    below: Version


class Restore(Action, frozen=True, tag="restore"):
    """The effects of the versions after ``to`` are taken back; the changes that do it are listed beside this action."""

    to: Version


class SetLag(Action, frozen=True, tag="lag"):
    """States for an index exactly what it does not cover: (partition, group) -> covered through version."""

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
    | Cover
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


class Commit(Struct, frozen=True):
    """One file of the log.

    ``instant`` is ``yyyyMMddHHmmssSSS`` in UTC and grows strictly from commit to commit. ``maintained`` names the index
    trees that this commit kept in step with the rows it wrote. Commits with very many actions keep them in ``sidecar``.
    """

    format: Version
    version: Version
    instant: Instant
    operation: Operation
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


class FormatOnly(Struct, frozen=True):
    """The one field that every format, past and to come, can be asked for."""

    format: Version


class Receipt(Struct, frozen=True):
    """What a caller gets for a commit: small enough for XCom.

    ``version`` is ``None`` where there was nothing to do and nothing was committed.
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
        """Plain types, for JSON and XCom."""
        return msgspec.to_builtins(self)

    @classmethod
    def of(cls, commit: Commit) -> Receipt:
        return cls(commit.version, commit.txn_id, commit.operation, commit.metrics, commit.instant, commit.attempt)


class Requested(Struct, frozen=True):
    """The first file of an attempt: from here on the cleaner keeps what version ``base`` and later ones need, and what
    the older version ``protects`` needs where one is given. ``nonce`` tells the attempt's own bytes from another's.
    ``patience``: seconds without a sign of life that are nothing unusual; not before is it presumed dead."""

    txn_id: FolderTxnId
    attempt: Count
    base: VersionOrNone
    operation: Operation
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
    """What one stage produced. ``made_from`` maps the stages it was made from to the hashes of their manifests.

    ``inputs`` tells what it was made of beside them, so that a second try can see whether it is still that. ``unique``
    names the trees of indexes of unique keys that it added entries to, with their key columns as files call them (none
    if that is not known). ``sole`` says that no index kept with the data may be made beside it; ``unique_by`` names the
    tree of the index by which its keys were found to be unique in the table, where it relies on that.
    """

    stage: Name
    actions: tuple[AnyAction, ...] = ()
    reads: tuple[Scope, ...] = ()
    writes: tuple[Write, ...] = ()
    maintained: tuple[Tree, ...] = ()
    made_from: dict[Name, Hash] = {}
    metrics: dict[Label, Any] = {}
    operation: Operation = ""
    inputs: Words = ""
    unique: dict[Tree, tuple[Label, ...]] = {}
    sole: bool = False
    unique_by: str = ""


class StageClaim(Struct, frozen=True):
    """Which try of a stage counts: the newest one. ``token`` names its manifest."""

    token: Token
    at: Moment


prepare(AnyAction, Commit, FormatOnly, Receipt, Requested, Heartbeat, StageManifest, StageClaim)
