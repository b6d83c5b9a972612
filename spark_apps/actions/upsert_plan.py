"""The plan of a write: where its rows go, and how it finds the rows that it replaces.

A target is a partition with its number of buckets, or a file group where there are no buckets. An existing key stays in
its file group, which the ``record`` index holds; new keys fill the smallest group of their partition, or groups of
their own once that is full. The ids of groups have no meaning and are never used again.

Rows that are replaced are found by the driver or by Spark, before staging or after. A plan is made once, when the rows
of the batch are counted, from the table's layout, its indexes and some limits; for every step it names the most rows
that the driver takes on itself. The code that follows a plan decides nothing. A plan is logged, and written down
nowhere.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from spark_apps.actions.limits import DEFAULT_GROUP_ROWS, UpsertLimits
from spark_apps.engine.pyspark_names import DataFrame, F
from spark_apps.engine.spark_utils import inline
from spark_apps.indexes.registry import available, find
from spark_apps.layout.partitions import path_of_texts, types_of
from spark_apps.layout.rules import HashingConfig
from spark_apps.mergetree.buckets import Target, partition_condition, value_texts
from spark_apps.mergetree.integrity import is_countable, is_exact, is_exactly_comparable
from spark_apps.mergetree.read import broadcast_rows, same_key
from spark_apps.mergetree.schema import column
from spark_apps.mergetree.tree import DELETED, GROUP_ID, Snapshot, Tree
from spark_apps.storage.errors import InvalidInput
from spark_apps.timeline import model
from spark_apps.timeline.state import IndexEntry, State

logger = logging.getLogger(__name__)

# --- where rows go ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartitionTargets:
    """The partitions of a write. ``new`` are the paths of those that the table does not have yet."""

    targets: tuple[Target, ...]
    new: frozenset[str]

    @property
    def puts(self) -> list[model.PutPartition]:
        """The actions that state each partition's bucket count, by which the timeline refuses a writer with another."""
        return [model.PutPartition(target.path, target.buckets, target.values) for target in self.targets]

    @property
    def reads(self) -> list[model.Scope]:
        return [model.CONFIG_SCOPE] if self.new else []

    def with_more(self, more: PartitionTargets) -> PartitionTargets:
        """Return these partitions, and those of ``more`` that are not among them."""
        known = {target.path for target in self.targets}
        return PartitionTargets(
            (*self.targets, *(target for target in more.targets if target.path not in known)), self.new
        )

    def only(self, paths: Iterable[str]) -> PartitionTargets:
        """Return those of these partitions that are named."""
        named = set(paths)
        return PartitionTargets(tuple(t for t in self.targets if t.path in named), self.new & named)


NOWHERE = PartitionTargets((), frozenset())


def targets_for(snapshot: Snapshot, values: Iterable[tuple[str | None, ...]]) -> PartitionTargets:
    """Return the partitions with these values of the partition columns (as text)."""
    table, known = snapshot.table, snapshot.state.partitions
    types = types_of(table)
    paths = [(path_of_texts(table, texts, types), texts) for texts in values]
    new = frozenset(path for path, _ in paths if path not in known)
    # Only a new partition is given a number of buckets by the rules.
    config = HashingConfig.of(snapshot.state.configs) if new and table.bucketed else None
    buckets = {path: None if config is None else config.count_for(path) for path in new}
    targets = (Target(path, texts, buckets[path] if path in new else known[path].buckets) for path, texts in paths)
    return PartitionTargets(tuple(targets), new)


def existing_targets(snapshot: Snapshot, paths: Iterable[str] | None = None) -> PartitionTargets:
    """Return the partitions that the table has, or those of them that are named."""
    known = snapshot.state.partitions
    named = known if paths is None else [path for path in dict.fromkeys(paths) if path in known]
    return PartitionTargets(tuple(Target(path, known[path].values, known[path].buckets) for path in named), frozenset())


# --- Tables without a bucket layout ---------------------------------------------------------------------------------


GROUP_ROWS = "group_rows"
"""Property of a table: how many rows a file group takes before new keys go into another one."""

_PREFIX = "__index_k_"


def group_rows(properties: dict[str, str]) -> int:
    """Return the value of :data:`GROUP_ROWS`.

    :raises InvalidInput: if it is not a positive number.
    """
    text = properties.get(GROUP_ROWS, str(DEFAULT_GROUP_ROWS))
    if not text.isdigit() or not int(text):
        raise InvalidInput(f"The table property {GROUP_ROWS!r} is {text!r}.", hint="Give a positive number of rows.")
    return int(text)


def with_groups(
    snapshot: Snapshot,
    tree: Tree,
    rows: DataFrame,
    located: DataFrame | None,
    hold: Callable[[DataFrame], DataFrame],
    *,
    fresh: bool = False,
) -> DataFrame:
    """Return the rows, each with the id of its file group.

    Tombstones of keys without a row are left out, but for those whose ordering counts for rows that are yet to come.

    :param rows: one row a record key.
    :param located: where keys of the batch live now, if anywhere.
    :param hold: keeps a frame that is read more than once.
    :param fresh: whether groups that are there are left alone.
    """
    if located is None:
        grouped = rows.withColumn(GROUP_ID, F.lit(None).cast("string"))
    else:
        names = [column(name).alias(_PREFIX + name) for name in tree.identity]
        current = located.select(*names, GROUP_ID)
        grouped = rows.join(current, same_key(rows, current, tree, tree.identity, _PREFIX), "left")
        grouped = grouped.drop(*[_PREFIX + name for name in tree.identity])
    if DELETED in rows.columns:
        wanted = F.col(GROUP_ID).isNotNull() | F.col(DELETED).isNull()
        if tree.ordering is not None and tree.merge_by == "ordering":
            wanted = wanted | column(tree.ordering).isNotNull()  # it counts for rows that are yet to come
        grouped = grouped.where(wanted)
    grouped = hold(grouped)
    homeless = grouped.where(F.col(GROUP_ID).isNull()).groupBy(*value_texts(tree).values()).count().collect()
    opened = []
    for *values, count in homeless:
        if count:
            path = path_of_texts(snapshot.table, values)
            opened.append((",".join(_open(snapshot, tree, path, count, fresh)), *values))
    return _assigned(grouped, tree, opened) if opened else grouped


def _open(snapshot: Snapshot, tree: Tree, path: str, count: int, fresh: bool) -> list[str]:
    """Return the groups that new keys of a partition go into."""
    limit = group_rows(snapshot.table.properties)
    sizes: dict[str, int] = {}
    for file in () if fresh else snapshot.state.files(tree.name, path):
        sizes[file.group] = sizes.get(file.group, 0) + file.rows
    smallest = min(sizes, key=lambda group: (sizes[group], group), default=None)
    if smallest is not None and sizes[smallest] + count <= limit:
        return [smallest]
    return [secrets.token_hex(8) for _ in range(-(-count // limit))]


def _assigned(grouped: DataFrame, tree: Tree, opened: Sequence[tuple[str | None, ...]]) -> DataFrame:
    """Give each row without a group one of those opened for its partition, by the hash of its key."""
    names = list(value_texts(tree))
    ddl = ", ".join(["__index_open string", *(f"{name} string" for name in names)])
    known = inline(grouped.sparkSession, opened, ddl)
    same = partition_condition(tree, known) if names else F.lit(True)
    ids = F.split(F.col("__index_open"), ",")
    position = F.pmod(F.xxhash64(*map(column, tree.key)), F.size(ids)) + 1
    chosen = F.coalesce(F.col(GROUP_ID), F.element_at(ids, position.cast("int")))
    joined = grouped.join(F.broadcast(known), same, "left").withColumn(GROUP_ID, chosen)
    return joined.drop("__index_open", *names)


# --- how the replaced rows are found ----------------------------------------------------------------------------------


Order = Literal["stage", "locate, stage", "stage, locate"]
"""Whether a write looks for where its keys live: not at all, before its rows are staged, or after."""

Given = Literal["rows", "keys", "matches", "partitions"]
"""What a batch holds: rows, with their partition columns; record keys alone; rows of the table that match a predicate;
or all rows of some partitions, which need not stay where others of their keys are."""


@dataclass(frozen=True)
class UpsertPlan:
    """The way in which a write finds the rows that it replaces.

    :param operation: of the action that writes.
    :param rows: of the batch, each key once; ``None`` if they are not counted before they are staged.
    :param order: whether and when the keys are located.
    :param unique_index: name of the index by which keys are unique in the whole table; ``None`` if there is none.
    :param indexes: names of the indexes that change in the same commit.
    :param columns: what these need to see of a changed row beside partition columns and record key.
    :param reads_old_rows: whether any of them needs the rows that an upsert replaces.
    :param rewrites: whether touched file groups are written anew in the same commit.
    :param lookup_keys: the most keys that the driver looks up in that index; Spark joins more.
    :param broadcast_keys: the most keys that are broadcast to Spark's tasks.
    :param search_rows: the most staged rows that the driver searches for in file groups; Spark joins more.
    :param not_searched: columns whose values the driver does not take as Spark would.
    :param position_rows: the most staged rows that get the positions of the rows that they replace; ``None`` if the
        table keeps no positions.
    :param on_driver: whether the driver has the rows, and writes them.
    """

    operation: str
    rows: int | None
    order: Order
    unique_index: str | None
    indexes: tuple[str, ...]
    columns: tuple[str, ...]
    reads_old_rows: bool
    rewrites: bool
    lookup_keys: int
    broadcast_keys: int
    search_rows: int
    not_searched: frozenset[str]
    position_rows: int | None
    on_driver: bool = False

    @property
    def locates(self) -> bool:
        """True if other partitions, or file groups found by their id, are searched for the keys of the batch."""
        return self.order != "stage"

    def looks_up(self, keys: int) -> bool:
        """Return whether the driver looks this number of keys up in the record index."""
        return self.unique_index is not None and keys <= self.lookup_keys

    def broadcasts(self, keys: int | None) -> bool:
        """Return whether this number of keys is broadcast to Spark's tasks."""
        return keys is not None and keys <= self.broadcast_keys

    def searches(self, rows: int, columns: Collection[str] = ()) -> bool:
        """Return whether the driver finds the rows that staged rows replace, and these columns of them.

        :param rows: the number of staged rows.
        """
        return 0 < rows <= self.search_rows and self.not_searched.isdisjoint(columns)

    def positions(self, rows: int) -> bool:
        """Return whether this number of staged rows gets the positions of the rows that they replace."""
        return self.position_rows is not None and rows <= self.position_rows

    def __str__(self) -> str:
        """Return the plan in one line, as it is logged."""
        rows = "rows not counted" if self.rows is None else f"{self.rows:,} rows"
        parts = [f"{self.operation} of {rows}: {'written by the driver' if self.on_driver else self.order}"]
        if self.locates and self.unique_index is not None:
            parts.append(f"keys by the index {self.unique_index!r}, {_by_whom(self.lookup_keys, self.rows)}")
        elif self.locates:
            parts.append("keys by a scan")
        if self.reads_old_rows and self.indexes:
            most = self.search_rows if self.not_searched.isdisjoint(self.columns) else 0
            parts.append(f"old rows {_by_whom(most, self.rows)}")
        if self.position_rows is not None:
            parts.append(f"positions up to {self.position_rows:,} rows, {_by_whom(self.search_rows, self.rows)}")
        if self.rewrites:
            parts.append("touched file groups are written anew")
        parts.append(f"indexes {', '.join(self.indexes) or 'none'}")
        return "; ".join(parts)


def _by_whom(most: int, rows: int | None) -> str:
    if most <= 0:
        return "by Spark"
    if rows is None:
        return f"by the driver up to {most:,} rows, by Spark beyond"
    return "by the driver" if rows <= most else f"by Spark (the driver takes {most:,})"


def plan_upsert(
    snapshot: Snapshot,
    rows: int | None,
    limits: UpsertLimits,
    *,
    operation: str = "upsert",
    given: Given = "rows",
    stage_first: bool = True,
    on_driver: bool = False,
) -> UpsertPlan:
    """Return how a write finds the rows that it replaces; nothing is read for it.

    :param rows: of the batch, if they are counted.
    :param limits: with ``broadcast_keys`` given, no Spark session is needed.
    :param given: what the batch holds.
    :param stage_first: whether the operation may stage rows before it knows where their keys live.
    :param on_driver: whether the driver has the rows, and writes them.
    """
    tree, table, state = snapshot.data, snapshot.table, snapshot.state
    unique, reads_old_rows, columns = unique_index(state), needs_rows(state), tuple(wanted_columns(snapshot))
    order = _order(snapshot, rows, limits, given, stage_first)
    broadcast = limits.broadcast_keys if limits.broadcast_keys is not None else broadcast_rows(snapshot.spark)
    local = limits.local_files and is_countable(snapshot.store, tree)
    lookup = limits.lookup_keys
    if order == "stage, locate" and given == "rows":
        # Arrow compares the keys that are found with the paths they are written into, which it does for plain types.
        lookup = max(lookup, broadcast if local else 0) if is_exactly_comparable(tree) else 0
    keeps_positions = table.positions and tree.merge_by == "commit"
    return UpsertPlan(
        operation=operation,
        rows=rows,
        order=order,
        unique_index=None if unique is None else unique.definition.name,
        indexes=tuple(entry.definition.name for entry in kept(state)),
        columns=columns,
        reads_old_rows=reads_old_rows,
        rewrites=table.write_mode == "copy_on_write",
        lookup_keys=lookup,
        broadcast_keys=broadcast,
        search_rows=broadcast if local and tree.merge_by == "commit" else 0,
        not_searched=frozenset(name for name in tree.columns if not is_exact(tree.type_of(name))),
        position_rows=broadcast if keeps_positions else None,
        on_driver=on_driver,
    )


def _order(snapshot: Snapshot, rows: int | None, limits: UpsertLimits, given: Given, stage_first: bool) -> Order:
    """Return whether and when a write locates its keys.

    Few rows are not staged first if the rows as they were are needed: their keys are then looked up by the driver, and
    the indexes read in one job what they need, which takes less than the two jobs of the other way.
    """
    tree, anywhere = snapshot.data, keys_are_located(snapshot)
    if given == "matches" or (given != "keys" and not anywhere):
        return "stage"
    if given == "partitions":
        return "stage, locate"
    if not stage_first or tree.by_id or tree.merge_by != "commit":
        return "locate, stage"
    many = rows is not None and rows > limits.lookup_keys
    return (
        "stage, locate" if many or (not needs_rows(snapshot.state) and is_exactly_comparable(tree)) else "locate, stage"
    )


def keys_are_located(snapshot: Snapshot) -> bool:
    """Return whether a key that is written may live in another partition, or in a file group found by its id."""
    tree = snapshot.data
    return tree.by_id or (bool(tree.partition_by) and unique_index(snapshot.state) is not None)


def log_plan(txn_id: str, plan: UpsertPlan) -> UpsertPlan:
    """Log the plan of a transaction and return it."""
    logger.info("plan of transaction %s: %s", txn_id, plan)
    return plan


# --- The indexes that a write keeps in step ---------------------------------------------------------------------------


def kept(state: State) -> list[IndexEntry]:
    """Return the indexes that change in the same commit as the rows.

    One whose code is not installed lags behind instead.
    """
    active = [entry for entry in state.indexes.values() if entry.active and not entry.definition.deferred]
    handlers = {entry.definition.kind: available(entry.definition.kind) for entry in active}
    return [entry for entry in active if (handler := handlers[entry.definition.kind]) is not None and handler.maintains]


def unique_index(state: State) -> IndexEntry | None:
    """Return the index by which keys are unique in the whole table, if one is kept with the data."""
    return next((entry for entry in kept(state) if find(entry.definition.kind).unique_keys), None)


def wanted_columns(snapshot: Snapshot) -> list[str]:
    """Return the columns that any kept index needs to see of a changed row."""
    names: dict[str, None] = {}
    for entry in kept(snapshot.state):
        names.update(dict.fromkeys(find(entry.definition.kind).reads(snapshot.table, entry.definition)))
    return list(names)


def needs_rows(state: State) -> bool:
    """Return whether any kept index needs to see the rows that an upsert replaces."""
    entries = kept(state)
    return any(find(entry.definition.kind).needs_rows(state.table, entry.definition) for entry in entries)
