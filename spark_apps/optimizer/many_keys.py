"""Finds where a table has rows with keys of a join's other side, where these are too many for the driver to have.

A sample of the keys comes first: if it is found in nearly all files, or if what it leaves out is read sooner than the
rest of the keys is looked up, no more is asked. Else a job of Spark joins the keys with the entries of an index, and
nothing but the names of file groups comes to the driver. What an index of entries does not cover is read, as ever.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from spark_apps.engine.pyspark_names import DataFrame, F
from spark_apps.engine.spark_utils import frame_of_plan
from spark_apps.indexes.keyed.entries import EntryHandler, group_columns
from spark_apps.indexes.keyed.lookup import GroupLocator, group_pairs
from spark_apps.indexes.registry import available
from spark_apps.mergetree.read import scan_keys
from spark_apps.mergetree.schema import column
from spark_apps.optimizer.limits import (
    FEW_SAMPLED,
    MANY_KEYS_WORTH,
    MAX_MANY_KEYS,
    MAX_NAMED_GROUPS,
    MIN_SPARED_SHARE,
    SAMPLED_KEYS,
)
from spark_apps.query.planning import BUCKETS, IndexUse, ReadPlan, read_seconds

if TYPE_CHECKING:
    from collections.abc import Collection

    from spark_apps.mergetree.tree import Tree
    from spark_apps.query.predicates import Filter
    from spark_apps.timeline.files import GroupKey
    from spark_apps.timeline.state import IndexEntry

JOBS_SECONDS = 1.2
"""What the jobs that count keys and look them up take, beyond reading."""


class KeysOfSide(Protocol):
    """A side of a join; see ``KeySide`` of :mod:`spark_apps.optimizer.join_keys`."""

    @property
    def number(self) -> int: ...
    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def null_safe(self) -> tuple[bool, ...]: ...
    @property
    def bytes(self) -> int: ...


class Planned(Protocol):
    """Plans a read of a scan."""

    def __call__(self, where: Filter | None, among: Collection[GroupKey] | None = None, /) -> ReadPlan: ...


class NotFound(Exception):
    """Says why it is not looked for the keys of a side."""


@dataclass(frozen=True)
class ManyKeys:
    """The keys of one side, beside what is read of a scan without them.

    :param request: the ``ScanRequest`` of ``index_rule.java``.
    :param saved: estimates how long reading what a plan names takes, in seconds.
    :param worth: how many times as long that must take as finding the keys; 0 for no matter how long.
    """

    request: Any
    side: KeysOfSide
    plan: ReadPlan
    planned: Planned
    saved: Callable[[ReadPlan], float]
    worth: float = MANY_KEYS_WORTH

    def index(self) -> tuple[IndexEntry, Tree] | None:
        """Return an index whose entries tell in which file groups keys are, with its tree; ``None`` for none."""
        snapshot, table = self.plan.snapshot, self.plan.snapshot.table
        found = []
        for entry in snapshot.state.indexes.values():
            handler = available(entry.definition.kind)
            if not entry.active or not isinstance(handler, EntryHandler):
                continue
            columns = handler.lookup_columns(table, entry.definition)
            if columns and set(columns) <= set(self.side.columns) and not handler.expressions(table, entry.definition):
                tree = handler.tree(table, entry.definition)
                found.append((len(columns), -_bytes(self.plan, tree), entry.definition.name, entry, tree))
        if not found or not (snapshot.data.by_id or GroupLocator(snapshot).is_known):
            return None
        # The more columns, the fewer files; of these the index that takes least to read.
        return max(found, key=lambda one: one[:3])[3:]

    def check_worth(self, share: float = 1.0) -> float:
        """Return the seconds that keys save which leave out a share of the files.

        :raises NotFound: if no index tells where keys are, or if looking them up takes too long beside that.
        """
        index = self.index()
        if index is None:
            raise NotFound("no index has entries of these columns alone")
        spark, (_, tree) = self.plan.snapshot.spark, index
        seconds = share * self.saved(self.plan)
        cost = JOBS_SECONDS + read_seconds(spark, self.side.bytes + _bytes(self.plan, tree))
        if seconds < self.worth * cost:
            raise NotFound(f"looking them up takes about {cost:.2g} s, and reading what they leave out {seconds:.2g} s")
        return seconds

    def check_sample(self, sample: Sequence[Filter]) -> float:
        """Return the seconds that looking all keys up saves, by two halves of a sample of them.

        :raises NotFound: if it saves too little.
        """
        index = self.index()
        assert index is not None
        entry = index[0]
        groups = set(self.plan.groups)
        answers = [self.planned(half) for half in sample]
        if any(entry.definition.name not in {use.name for use in one.used} for one in answers):
            why = answers[0].not_used.get(entry.definition.name)
            raise NotFound("its index was not asked" if why is None else why.reason)
        always = {group for group in groups if not entry.covers(group)}
        first, second = (set(one.groups) - always for one in answers)
        left = len(always) + groups_of_all(len(first), len(second), len(first & second), len(groups))
        share = 1 - min(1.0, left / max(1, len(groups)))
        if share < MIN_SPARED_SHARE:
            raise NotFound("nearly all files hold one of them")
        return self.check_worth(share)

    def narrowed(self, seconds: float) -> tuple[ReadPlan, int, frozenset[GroupKey]]:
        """Return what is read of the scan, how many keys there are at most, and the file groups that hold one.

        :param seconds: that jobs may take.
        :raises NotFound: if they are too many, or not found in time.
        """
        until = time.monotonic() + seconds
        found = self.index()
        assert found is not None
        entry, tree = found
        snapshot = self.plan.snapshot
        names = tree.hash_fields
        keys = self._keys(tree, names)
        count = self._count(keys, until)
        files = snapshot.groups(tree.name)
        places = group_columns(snapshot.table)
        needed = list(dict.fromkeys([*places, *([] if snapshot.data.by_id else snapshot.table.record_key)]))
        entries = scan_keys(snapshot, tree, files, needed, keys, names, count)
        rows = self._rows(group_pairs(entries, snapshot), MAX_NAMED_GROUPS, until)
        if len(rows) == MAX_NAMED_GROUPS:  # there may be more
            raise NotFound(f"they are in {MAX_NAMED_GROUPS:,} file groups")
        named = {(partition, group) for partition, group in rows}
        among = frozenset(group for group in self.plan.groups if group in named or not entry.covers(group))
        plan = self.planned(self.plan.where, among)
        read = [file for members in files.values() for file in members]
        use = IndexUse(entry.definition.name, len(read), _bytes(self.plan, tree), len(among))
        return replace(plan, used=(*plan.used, use)), count, among

    def _keys(self, tree: Tree, names: Sequence[str]) -> DataFrame:
        """Return the keys of the side, under the names and of the types of an index's columns."""
        rows = frame_of_plan(self.plan.snapshot.spark, self.request.keyRows(self.side.number))
        keys = []
        for name in names:
            place = self.side.columns.index(name)
            key, kind = f"key{place}", tree.field(name).dataType
            # Of whole numbers alone there are two types; one that the column cannot have meets no row.
            same = rows.schema[key].dataType == kind
            keys.append((F.col(key) if same else F.expr(f"try_cast({key} AS {kind.simpleString()})")).alias(name))
        found = rows.select(*keys)
        for name in names:
            if not self.side.null_safe[self.side.columns.index(name)]:
                found = found.where(column(name).isNotNull())
        return found

    def _count(self, keys: DataFrame, until: float) -> int:
        """Return how many keys there are at most.

        :raises NotFound: if they are more than are looked up.
        """
        [[count]] = self._rows(keys.agg(F.count(F.lit(1))), 1, until)
        if count > MAX_MANY_KEYS:
            some = keys.distinct().limit(MAX_MANY_KEYS + 1).agg(F.count(F.lit(1)))
            [[count]] = self._rows(some, 1, until)
        if count > MAX_MANY_KEYS:
            raise NotFound(f"they are more than {MAX_MANY_KEYS:,}")
        return int(count)

    def _rows(self, frame: DataFrame, limit: int, until: float) -> list[list[Any]]:
        java: Any = frame
        milliseconds = max(1, int(1000 * (until - time.monotonic())))
        answer = json.loads(self.request.rows(java._jdf.queryExecution().analyzed(), limit, milliseconds))
        if "unknown" in answer:
            raise NotFound(str(answer["unknown"]))
        rows: list[list[Any]] = answer["keys"]
        return rows


def _bytes(plan: ReadPlan, tree: Tree) -> int:
    return sum(file.bytes for file in plan.snapshot.state.files(tree.name))


def halves_of(keys: Collection[Any], most: int | None = None) -> tuple[frozenset[Any], frozenset[Any]]:
    """Return two halves of a sample of keys, taken evenly.

    :param most: of how many keys about; of :data:`SAMPLED_KEYS` by default.
    """
    step = max(1, len(keys) // (SAMPLED_KEYS if most is None else most))
    some = list(keys)[::step]
    return frozenset(some[::2]), frozenset(some[1::2])


def check_few_first(
    keys: Collection[Any],
    plan: ReadPlan,
    planned: Callable[[frozenset[Any]], ReadPlan],
    saved: Callable[[ReadPlan], float],
) -> None:
    """Check by a few keys that looking all of them up on the driver leaves enough out.

    :param planned: plans a read of rows with some keys.
    :raises NotFound: if they are in so many files that it does not.
    """
    halves = halves_of(keys, FEW_SAMPLED)
    answers = [planned(half) for half in halves]
    first, second = (set(one.groups) for one in answers)
    all_groups, snapshot = max(1, len(plan.groups)), plan.snapshot
    # A key is in as many files as each of the few, and none of them in more than there are.
    most = min(float(all_groups), len(keys) * len(first) / len(halves[0]))
    share = 1 - groups_of_all(len(first), len(second), len(first & second), all_groups) / all_groups
    share = max(share, 1 - most / all_groups)
    trees = {snapshot.state.index(use.name).definition.tree for use in answers[0].used if use.name != BUCKETS}
    held = sum(file.bytes for tree in trees for file in snapshot.state.files(tree))
    if share * saved(plan) < MANY_KEYS_WORTH * read_seconds(snapshot.spark, held):
        raise NotFound("a few of them are in so many files that looking up the others saves nothing")


def groups_of_all(first: int, second: int, both: int, most: int) -> float:
    """Estimate how many file groups have one of all keys, by those that two halves of a sample have.

    As animals are counted of which some are caught twice: keys that no row has do not count.

    :param both: file groups that have a key of either half. :param most: of all file groups.
    """
    if not first and not second:
        return 0.0
    return float(most) if not both else min(float(most), first * second / both)
