"""What commits speak of: the scopes that they read and wrote, and what tables, indexes and sources are.

Frozen structs that turn into JSON and back, as all in :mod:`spark_apps.timeline.model`, which hands them on.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from spark_apps.timeline.checked import (
    Buckets,
    ConfigInstant,
    Group,
    Id,
    Label,
    Name,
    Partition,
    ScopeName,
    Setting,
    TypeText,
    Words,
)

FORMAT_VERSION = 1
"""Version of the log's format that this code writes; a higher one is refused when read."""

DATA_TREE = "data"
"""The merge tree that holds the table's own rows; the others belong to indexes (:attr:`IndexDefinition.tree`)."""


class Struct(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of all that is written down."""


# --- scopes: what a commit read and wrote -----------------------------------------------------------------------


class Scope(Struct, frozen=True):
    """A part of the table. ``table`` holds all others, ``partition`` holds its buckets, ``definition`` without a name
    those of all indexes. Names of indexes that differ in case only are one, as they are in SQL."""

    kind: Literal["table", "partition", "bucket", "shard", "definition", "config", "schema"]
    partition: Partition | None = None
    group: Group | None = None
    name: ScopeName | None = None

    def overlaps(self, other: Scope) -> bool:
        """Whether the two have anything in common."""
        if self.kind == "table" or other.kind == "table":
            return True
        kinds = {self.kind, other.kind}
        if kinds <= {"partition", "bucket"}:
            if self.partition != other.partition:
                return False
            return "partition" in kinds or self.group == other.group
        if kinds == {"definition"}:
            return self.name is None or other.name is None or self.name.lower() == other.name.lower()
        return self == other

    def __str__(self) -> str:
        if self == DEFINITIONS_SCOPE:
            return "the definitions of indexes"
        parts = [part for part in (self.name, self.partition, self.group) if part is not None]
        return f"{self.kind} {'/'.join(parts)}".strip()


WriteMode = Literal["append", "fold", "backdated", "replace", "observed"]
"""How a commit wrote a scope.

``append``: new rows or tombstones on top. ``fold``: the same rows in other files. ``backdated``: entries that tell of
an earlier version (an index build or refresh). ``replace``: rows removed or rewritten. ``observed``: files of a
registered source noted as they were found; two that look at one source write the same of it.
"""

UNKNOWN_ROWS = -1
"""As the number of rows of a source's file: its format does not tell without reading all of it."""


class Write(Struct, frozen=True):
    scope: Scope
    mode: WriteMode = "append"


def table_scope() -> Scope:
    return Scope("table")


def partition_scope(partition: str) -> Scope:
    return Scope("partition", partition=partition)


def group_scope(partition: str, group: str) -> Scope:
    return Scope("bucket", partition=partition, group=group)


def shard_scope(tree: str, group: str) -> Scope:
    return Scope("shard", name=tree, group=group)


def definition_scope(index: str) -> Scope:
    return Scope("definition", name=index)


CONFIG_SCOPE = Scope("config")
SCHEMA_SCOPE = Scope("schema")
DEFINITIONS_SCOPE = Scope("definition")
"""Which indexes there are, and what each is: read by whoever relies on none of them being in the way."""


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
    """Where the rows of a registered table lie: in files that somebody else writes, and that are only read here.

    ``location`` is absolute, a folder, file or glob; ``options`` are those of the format's reader and hold no secret.
    ``version`` is what the source called its state when a commit last told of its files (a Delta version, an Iceberg
    snapshot id); ``None`` for plain files, whose list is their state. ``session``: the settings of Spark that decide on
    what its files mean, as they were when it was registered; ``None`` where that was not written down.
    """

    format: Label
    location: Label
    options: dict[Label, Setting] = {}
    version: Label | None = None
    session: dict[Label, Setting | None] | None = None


class TableDefinition(Struct, frozen=True):
    """What a table is. Columns come, go and change their names; all else is fixed when it is made.

    With a ``source`` the rows are somebody else's; its ``fields`` and ``version`` then change as the source's do.

    ``retired`` are names in files of columns that were dropped: no later column may be stored under them.
    ``positions``: whether deltas tell which rows of the file under them they replace
    (:mod:`spark_apps.mergetree.positions`).
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


class HashingConfig(Struct, frozen=True):
    """Rules for the bucket count of partitions to come, as of one instant (seed: partition-level bucket index)."""

    instant: ConfigInstant
    default: Buckets
    rule: Label = "regex"
    expressions: Words | None = None


IndexState = Literal["creating", "active", "disabled"]


class IndexDefinition(Struct, frozen=True):
    """What an index is. ``index_id`` is new with each creation, so that the files of a dropped index cannot become
    those of a later one with the same name. ``partition_by``: the partition columns that entries are kept apart by, if
    that was said. ``index_table`` is a name for what stores the index; ``location`` is where, outside of the table.
    ``addresses``: whether entries name rows by key, or files, which they know by lineage; the latter are not told of
    the same rows in other files (a compaction) either."""

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
