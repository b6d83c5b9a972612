"""What the state of a table is made of: its open windows, partitions and indexes, and what one commit did to them."""

from __future__ import annotations

from spark_apps.timeline.checked import Buckets, InstantOrNone, Moment, Partition, Version, VersionOrNone, Words
from spark_apps.timeline.definitions import IndexDefinition, IndexState, Scope, Struct
from spark_apps.timeline.files import GroupKey


class Window(Struct, frozen=True):
    """An open stop-write window. ``epoch`` is the version that opened it; times are seconds since 1970 (UTC)."""

    epoch: Version
    holder: Words
    deadline: Moment
    last_moment: Moment
    partitions: tuple[Partition, ...] | None = None

    def covers(self, scope: Scope) -> bool:
        """Whether a write to ``scope`` falls into this window. A window over partitions leaves index shards alone."""
        if self.partitions is None or scope.kind == "table":
            return True
        return scope.partition is not None and scope.partition in self.partitions

    @property
    def scope_text(self) -> str:
        return "the whole table" if self.partitions is None else "partitions " + ", ".join(map(repr, self.partitions))


class PartitionEntry(Struct, frozen=True):
    """A partition: its bucket count (``None`` without a bucket layout), its columns' values as strings, and the
    instant of the commit that gave it this count."""

    buckets: Buckets | None = None
    values: tuple[Words | None, ...] = ()
    since: InstantOrNone = ""


class IndexEntry(Struct, frozen=True):
    """An index as of a version.

    ``lag`` names the file groups it does not cover: covered through which version. ``dirty`` tells of each of these the
    newest version whose change the index was not told of: who covers it through there has covered all, because later
    changes, if any, brought their own entries. An index that addresses files lags in a group whenever a file of it is
    new to the index, whatever its rows. ``gone`` tells of some of these groups the newest version in which rows went
    without the index being told: only who compares the group as a whole, as of that version or later, rids it of their
    entries.
    """

    definition: IndexDefinition
    state: IndexState = "active"
    lag: dict[GroupKey, int] = {}
    dirty: dict[GroupKey, int] = {}
    created: VersionOrNone = 0
    refreshed: VersionOrNone = 0
    gone: dict[GroupKey, int] = {}

    def covers(self, group: GroupKey) -> bool:
        """Whether the index tells all of a file group."""
        return group not in self.lag

    @property
    def active(self) -> bool:
        return self.state == "active"

    @property
    def by_file(self) -> bool:
        """Whether entries name files; those of a file that is gone are known to be void."""
        return self.definition.addresses == "file"


def all_told(known: IndexEntry, now: IndexEntry, since: int) -> bool:
    """Whether an index is the one that was known at version ``since``, and each commit after it that changed rows told
    it so: who looked something up in it then need not do so again."""
    same = known.definition.tree == now.definition.tree and now.refreshed <= max(since, known.refreshed)
    return same and all(version <= since for version in now.dirty.values())


class Effect:
    """What one commit did to the groups of the table's own rows, gathered while it is folded in."""

    def __init__(self) -> None:
        self.changed: set[GroupKey] = set()
        self.moved: set[GroupKey] = set()
        self.filled: set[GroupKey] = set()
        self.arrived: set[GroupKey] = set()
        self.born: set[GroupKey] = set()
        self.cut: set[GroupKey] = set()
        # Tree of an index -> the groups of which it was told, by a stage of its own, what this commit does.
        self.told: dict[str, set[GroupKey]] = {}
        self.restored = False

    def told_of(self, entry: IndexEntry) -> set[GroupKey]:
        return self.told.get(entry.definition.tree, set())
