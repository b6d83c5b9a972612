"""Finds where a table has rows with keys of a join's other side, where these are too many for the driver to have.

A sample of the keys comes first: if it is found in nearly all files, or if what it leaves out is read sooner than the
rest of the keys is looked up, no more is asked. Else a job of Spark looks the keys up in an index, as its kind says
(:class:`~spark_apps.indexes.handler.KeySearch`), and nothing but the names of files comes to the driver. What an index
does not cover is read, as ever.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from spark_apps.engine.pyspark_names import DataFrame, F, spark_errors
from spark_apps.engine.spark_utils import frame_of_plan
from spark_apps.engine.spark_versions import message_of
from spark_apps.indexes.handler import CannotPrune, IndexContext, IndexHandler, KeySearch
from spark_apps.indexes.registry import available
from spark_apps.mergetree.schema import column
from spark_apps.optimizer.limits import (
    FEW_SAMPLED,
    MANY_KEYS_WORTH,
    MAX_MANY_KEYS,
    MAX_NAMED_GROUPS,
    MIN_SPARED_SHARE,
    SAMPLED_KEYS,
)
from spark_apps.query.planning import (
    BUCKETS,
    UNREADABLE_INDEX,
    IndexUse,
    ParsedPredicateProbe,
    ReadPlan,
    read_seconds,
    unfit_indexes,
)
from spark_apps.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Collection

    from spark_apps.query.predicates import Filter
    from spark_apps.timeline.files import GroupKey
    from spark_apps.timeline.state import IndexEntry

logger = logging.getLogger(__name__)

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
class Searched:
    """An index that can be searched for the keys.

    :param seconds: that the search takes, by estimate.
    """

    entry: IndexEntry
    handler: IndexHandler
    search: KeySearch
    seconds: float


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

    def indexes(self) -> list[Searched]:
        """Return the indexes that it may pay to search, those first that compare most columns or take the least time.

        :raises NotFound: if there is none, with the reason.
        """
        snapshot = self.plan.snapshot
        unfit = unfit_indexes(snapshot)
        found, why = [], "no index of these columns is searched by a job"
        for name, entry in sorted(snapshot.state.indexes.items()):
            handler = available(entry.definition.kind)
            if not entry.active or handler is None or name in unfit:
                continue
            try:
                search = handler.key_search(IndexContext(snapshot, entry.definition, ""), self.side.columns)
            except UNREADABLE_INDEX as error:
                why = self._unreadable(name, error)
                continue
            if search is not None:
                seconds = JOBS_SECONDS + read_seconds(snapshot.spark, self.side.bytes + search.bytes)
                found.append(Searched(entry, handler, search, seconds))
        worthy = []
        # The more columns, the fewer files; of these the one that takes least to read.
        for one in sorted(found, key=lambda one: (-len(one.search.columns), one.seconds)):
            try:
                self._check_worth(one, 1.0)
            except NotFound as refused:
                why = str(refused)
            else:
                worthy.append(one)
        if not worthy:
            raise NotFound(why)
        return worthy

    def _check_worth(self, index: Searched, share: float) -> float:
        """Return the seconds that keys save which leave out a share of the files.

        :raises NotFound: if looking them up takes too long beside that.
        """
        seconds = share * self.saved(self.plan)
        if seconds < self.worth * index.seconds:
            raise NotFound(
                f"looking them up takes about {index.seconds:.2g} s, and reading what they leave out {seconds:.2g} s"
            )
        return seconds

    def best_of(self, indexes: Sequence[Searched], sample: Sequence[Filter]) -> tuple[Searched, float]:
        """Return the index whose search saves most, and how many seconds, by two halves of a sample of the keys.

        :raises NotFound: if none saves enough, with the reason of the last.
        """
        best: tuple[Searched, float] | None = None
        why = NotFound("no index is of use")
        for index in indexes:
            try:
                seconds = self._check_worth(index, self._share(index, sample))
            except NotFound as refused:
                why = refused
                continue
            if best is None or seconds - index.seconds > best[1] - best[0].seconds:
                best = index, seconds
        if best is None:
            raise why
        return best

    def _share(self, index: Searched, sample: Sequence[Filter]) -> float:
        """Return which share of the files hold none of the keys, by an index's answers on a sample.

        :raises NotFound: if they are too few.
        """
        groups, entry = frozenset(self.plan.groups), index.entry
        always = {group for group in groups if not entry.covers(group)}
        first, second = (self._holding(index, half) & groups - always for half in sample)
        left = len(always) + groups_of_all(len(first), len(second), len(first & second), len(groups))
        share = 1 - min(1.0, left / max(1, len(groups)))
        if share < MIN_SPARED_SHARE:
            raise NotFound("nearly all files hold one of them")
        return share

    def _holding(self, index: Searched, keys: Filter) -> frozenset[GroupKey]:
        """Return the file groups that can hold one of a few keys.

        :raises NotFound: if the index does not tell.
        """
        definition, probe = index.entry.definition, ParsedPredicateProbe(keys.predicate)
        context = IndexContext(self.plan.snapshot, definition, "")
        try:
            refused = index.handler.can_prune(context.table, definition, probe)
            answer = index.handler.prune(context, probe) if refused is None else refused
        except UNREADABLE_INDEX as error:
            raise NotFound(self._unreadable(definition.name, error)) from error
        if not isinstance(answer, CannotPrune):
            return answer.groups
        if answer.code == "no_gain":
            raise NotFound("nearly all files hold one of them")
        raise NotFound(f"the index {definition.name!r} does not tell: {answer.reason}")

    def _unreadable(self, name: str, error: Exception) -> str:
        said = str(error) if isinstance(error, StorageError) else message_of(error)
        why = f"the index {name!r} cannot be read: {said}"
        logger.warning("%s: Keys are not looked up, for %s", self.plan.snapshot.store.uri, why)
        return why

    def narrowed(self, index: Searched, seconds: float) -> tuple[ReadPlan, int, frozenset[GroupKey]]:
        """Return what is read of the scan, how many keys there are at most, and the file groups that hold one.

        :param index: that is searched. :param seconds: that jobs may take.
        :raises NotFound: if they are too many, not found in time, or a file of the index is missing or damaged.
        """
        until = time.monotonic() + seconds
        entry, search = index.entry, index.search
        keys = self._keys(search)
        count = self._count(keys, until)
        try:
            rows = self._rows(search.places(keys, count), MAX_NAMED_GROUPS, until)
        except spark_errors(*UNREADABLE_INDEX) as error:
            raise NotFound(self._unreadable(entry.definition.name, error)) from error
        if len(rows) == MAX_NAMED_GROUPS:  # there may be more
            raise NotFound(f"they are in {MAX_NAMED_GROUPS:,} file groups")
        named = search.groups(rows)
        among = frozenset(group for group in self.plan.groups if group in named or not entry.covers(group))
        plan = self.planned(self.plan.where, among)
        use = IndexUse(entry.definition.name, search.files, search.bytes, len(among))
        return replace(plan, used=(*plan.used, use)), count, among

    def _keys(self, search: KeySearch) -> DataFrame:
        """Return the keys of the side, under the names and of the types of an index's columns."""
        rows = frame_of_plan(self.plan.snapshot.spark, self.request.keyRows(self.side.number))
        keys = []
        for name, kind in zip(search.columns, search.types, strict=True):
            key = f"key{self.side.columns.index(name)}"
            # Of whole numbers alone there are two types; one that the column cannot have meets no row.
            same = rows.schema[key].dataType == kind
            keys.append((F.col(key) if same else F.expr(f"try_cast({key} AS {kind.simpleString()})")).alias(name))
        found = rows.select(*keys)
        for name in search.columns:
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


def halves_of(keys: Collection[Any], most: int | None = None) -> tuple[frozenset[Any], frozenset[Any]]:
    """Return two halves of a sample of keys, taken evenly.

    :param most: of how many keys about; of :data:`SAMPLED_KEYS` by default.
    """
    step = max(1, len(keys) // (SAMPLED_KEYS if most is None else most))
    # The order of a set of texts is another one in each process, and with it the plan of a query would be.
    some = (keys if isinstance(keys, Sequence) else sorted(keys, key=repr))[::step]
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
