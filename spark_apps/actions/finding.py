"""Where the keys of a staged upsert live: in the file groups that it writes, or elsewhere.

The rows are staged first, for most keys stay where they are. If an index needs the rows as they were, these are read,
and every key found there is settled; only the others are asked of the ``record`` index: on the driver where they are
few, or the index lies on its disk, else by a Spark join. If no index needs them, no row is read at all. Not for tables
without buckets, whose keys must be found before they can be staged, nor where an older row may win, nor for few rows
whose old ones are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame

from spark_apps.actions.maintenance import (
    as_files,
    changes_of,
    needs_rows,
    rows_in,
    rows_of_staged,
    touched_groups,
)
from spark_apps.actions.moves import FEW, Moves, located_at, look_up, tombstones, unique_index
from spark_apps.actions.moves import locate as locate_all
from spark_apps.actions.partitions import spread
from spark_apps.actions.template import Attempt
from spark_apps.indexes.handler import PARTITION, Changes
from spark_apps.mergetree.placing import value_texts
from spark_apps.mergetree.read import read_files, with_keys
from spark_apps.mergetree.repeated import plain
from spark_apps.mergetree.schema import column
from spark_apps.mergetree.tree import Snapshot, Tree
from spark_apps.timeline.model import AddFile

Hold = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True)
class Places:
    """What is known of the keys of staged files.

    :param before: their rows as they were in the file groups that the files go into; ``None`` if there were none, or
        nobody needs them.
    :param located: partition columns and record key of all keys that live anywhere; ``None`` if ``settled``, or if none
        does.
    :param settled: whether every key lives in the partition that it was written into.
    :param moves: the places that are left.
    """

    before: DataFrame | None
    located: DataFrame | None
    settled: bool
    moves: Moves


@dataclass(frozen=True)
class _Rest:
    """Keys that were not found in the rows: where the index says that they live, and how many of them where they were
    written to."""

    located: DataFrame | None
    staying: int
    elsewhere: DataFrame | None
    left: Sequence[tuple[str | None, ...]]


def find_places(attempt: Attempt, tree: Tree, staged: Sequence[AddFile], columns: Sequence[str], hold: Hold) -> Places:
    """Where the keys of staged files live.

    :param columns: of the rows as they were, beside those that name them, for those who need them.
    :param hold: keeps a frame that is read more than once.
    """
    snapshot = attempt.snapshot
    count = sum(action.rows for action in staged)
    touched = touched_groups(snapshot, staged)
    keys = read_files(snapshot, tree, as_files(snapshot, staged), tree.identity)
    before, found, rest = None, 0, keys
    if touched and needs_rows(snapshot.state):
        attempt.phase("read the old values")
        names = list(dict.fromkeys([*tree.place, *columns]))
        before = hold(rows_of_staged(snapshot, tree, staged, touched, names))
        found = before.count()
        if 0 < found < count:
            rest = with_keys(keys, before, tree, tree.identity, found, without=True)
    other = _NOTHING
    if found < count and snapshot.state.partitions:
        attempt.phase("find the keys")
        other = _looked_up(attempt, tree, rest, count - found) or _joined(
            attempt, tree, hold(rest) if found else rest, count - found, hold
        )
    settled = found + other.staying == count and not any(action.tombstones for action in staged)
    parts = [] if before is None else [before.select(*map(column, tree.identity))]
    parts += [] if other.located is None else [other.located]
    located = None if settled or not parts else reduce(DataFrame.unionByName, parts)
    targets = spread(snapshot, other.left)
    targets = targets.only({target.path for target in targets.targets} - targets.new)
    moves = Moves(keys)
    if other.elsewhere is not None and targets.targets:
        moves = Moves(keys, tombstones(other.elsewhere, tree), targets)
    return Places(before if found else None, located, settled, moves)


_NOTHING = _Rest(None, 0, None, ())


def _looked_up(attempt: Attempt, tree: Tree, rest: DataFrame, count: int) -> _Rest | None:
    """Keys that the index is asked for on the driver; ``None`` if it cannot be asked there."""
    snapshot = attempt.snapshot
    found = look_up(attempt, tree, rest, count)
    if found is None:
        return None
    known = snapshot.state.partitions
    paths = set(found.gone.column(PARTITION).to_pylist())
    left = sorted((known[path].values for path in paths if path in known), key=repr)
    staying = len(found.places) - len(found.gone)
    return _Rest(located_at(snapshot, tree, found.places), staying, located_at(snapshot, tree, found.gone), left)


def _joined(attempt: Attempt, tree: Tree, rest: DataFrame, count: int, hold: Hold) -> _Rest:
    """Keys, joined with the entries of the index by Spark."""
    located = hold(locate_all(attempt, tree, rest, count))
    elsewhere = hold(with_keys(located, rest, tree, tree.identity, count, without=True))
    left = [tuple(row) for row in elsewhere.groupBy(*value_texts(tree).values()).count().collect()]
    staying = located.count() - sum(row[-1] for row in left)
    return _Rest(located, staying, elsewhere if left else None, [row[:-1] for row in left])


def changes_by(
    snapshot: Snapshot, tree: Tree, staged: Sequence[AddFile], left: Sequence[AddFile], columns: Sequence[str],
    places: Places, hold: Hold,
) -> Changes:  # fmt: skip
    """What an upsert does to the rows of its keys, from what is known of them.

    :param left: the tombstones for places that are left.
    """
    names = list(dict.fromkeys([*tree.place, *columns]))
    before = places.before
    if left and needs_rows(snapshot.state):
        moved = changes_of(snapshot, tree, left, columns).before
        if moved is not None:
            before = hold(moved) if before is None else before.unionByName(hold(moved))
    groups = frozenset((action.partition, action.group) for action in (*staged, *left))
    after = rows_in(snapshot, tree, staged, names)
    return Changes(before, after, groups, located=places.located, settled=places.settled)


def finds_late(snapshot: Snapshot, tree: Tree, count: int) -> bool:
    """Whether the rows of an upsert are staged before it is known where their keys live.

    Few rows are not, if the rows as they were are needed: their keys are then asked for on the driver, and the indexes
    read in one job what they need, which takes less than the two jobs of the other way.

    :param count: of the rows.
    """
    state = snapshot.state
    if not tree.partition_by or tree.by_id or tree.merge_by != "commit" or unique_index(state) is None:
        return False
    return count > FEW or (not needs_rows(state) and plain(tree))
