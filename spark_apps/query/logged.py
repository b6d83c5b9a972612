"""Leaves a line in a table's query log for what was planned: what was asked, what is read, which indexes were used.

The log itself is :mod:`spark_apps.workload.query_log`. A failure of it fails no query.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from spark_apps.query.limits import MAX_SIZED_STATES
from spark_apps.query.planning import BUCKETS, ReadPlan
from spark_apps.query.predicate_text import text_of_predicate
from spark_apps.storage.store import ObjectStore
from spark_apps.timeline.files import GroupKey
from spark_apps.timeline.model import DATA_TREE, TableDefinition
from spark_apps.timeline.state import State
from spark_apps.workload.asked import UNKNOWN_SHAPE, AskedQuery
from spark_apps.workload.limits import MAX_INDEXES, MAX_NAMES, MAX_PREDICATE_CHARACTERS
from spark_apps.workload.query_log import PROPERTY, QUERY_LOG, asker, log_settings
from spark_apps.workload.shapes import shape_of

logger = logging.getLogger(__name__)

LEFT = "left_to_spark"
"""Why an index that could have served was not used: Spark's own scan of the source's files was taken for cheaper."""


@dataclass(frozen=True)
class Asked:
    """A query as it came, beside its plan.

    :param columns: that were asked for; all of the table's if ``None``. :param where: its predicate in Spark's SQL, if
        that is not the plan's own.
    :param shape: of a predicate that is too long to be written.
    :param left: Spark's own scan was left in place of what was planned.
    """

    columns: Sequence[str] | None
    where: str | None = None
    join_keys: Collection[str] = ()
    group_keys: Collection[str] = ()
    shape: str | None = None
    left: bool = False


def keeps_log(table: TableDefinition | None) -> bool:
    """Tell whether the queries of a table leave lines."""
    return table is not None and table.properties.get(PROPERTY, "off") != "off"


def note_query(plan: ReadPlan, asked: Asked, started: float) -> None:
    """Leave a line for a query that was planned, if the table keeps a log; never raises.

    :param started: when it was asked, as ``time.perf_counter()`` tells.
    """
    if keeps_log(plan.snapshot.table):
        _note(plan.snapshot.store, plan.snapshot.table, plan, asked, started)


def note_scan(store: ObjectStore, table: TableDefinition, asked: Asked, started: float) -> None:
    """Leave a line for a scan of a source that was left to Spark without a plan; never raises.

    :param store: of the table's log.
    """
    if keeps_log(table):
        _note(store, table, None, asked, started)


_FAILED: set[str] = set()


def _note(store: ObjectStore, table: TableDefinition, plan: ReadPlan | None, asked: Asked, started: float) -> None:
    try:
        settings = log_settings(table.properties)
        if QUERY_LOG.drawn(settings):
            query = _query(store.uri, table, plan, asked, started, 1 / settings.share, settings.literals)
            QUERY_LOG.add(store, settings, query.to_document())
    except Exception as error:  # noqa: BLE001 - a log that cannot be kept hurts no query
        if store.uri not in _FAILED and len(_FAILED) < 1_000:
            _FAILED.add(store.uri)
            logger.warning("Queries of %s leave no line in its log: %s: %s", store.uri, type(error).__name__, error)


def _query(
    uri: str, table: TableDefinition, plan: ReadPlan | None, asked: Asked, started: float, weight: float, literals: bool
) -> AskedQuery:
    where, shape = asked.where, asked.shape
    if where is None and plan is not None and plan.where is not None:
        where = plan.where.text if plan.where.sql else text_of_predicate(plan.where.predicate)
        shape = shape or UNKNOWN_SHAPE
    if where is not None:
        shape = shape_of(where)
    names = None if asked.columns is None or len(asked.columns) > MAX_NAMES else tuple(asked.columns)
    if names is not None and len(names) == len(table.fields):
        names = None
    query = AskedQuery(
        table=uri,
        asked=datetime.now(UTC),
        seconds=round(time.perf_counter() - started, 6),
        columns=names,
        predicate=where if literals and where is not None and len(where) <= MAX_PREDICATE_CHARACTERS else None,
        shape=shape,
        join_keys=tuple(asked.join_keys)[:MAX_NAMES],
        group_keys=tuple(asked.group_keys)[:MAX_NAMES],
        asked_by=asker(),
        weight=weight,
    )
    return query if plan is None else _with_plan(query, plan, asked.left)


def _with_plan(query: AskedQuery, plan: ReadPlan, left: bool) -> AskedQuery:
    sizes = _sizes(plan.snapshot.state, plan.snapshot.store.uri)
    indexes = plan.snapshot.state.indexes
    kinds = {name: entry.definition.kind for name, entry in indexes.items()}
    used = [(use.name, kinds[use.name]) for use in plan.used if use.name in kinds]
    unused = [(name, kinds[name], why.code) for name, why in plan.not_used.items() if name in kinds]
    if left:
        unused += [(name, kind, LEFT) for name, kind in used]
        used, saved = [], {}
        files, read = sizes.of(plan.kept_partitions)
    else:
        saved = _saved(plan, sizes)
        files, read = sum(map(len, plan.files.values())), _bytes_read(plan)
    return replace(
        query, used=tuple(used[:MAX_INDEXES]), unused=tuple(unused[:MAX_INDEXES]), files_read=files,
        files_skipped=max(0, sizes.files - files), bytes_read=max(0, read), bytes_skipped=max(0, sizes.bytes - read),
        spared=saved,
    )  # fmt: skip


def _bytes_read(plan: ReadPlan) -> int:
    """Return the bytes of the table's files that are read, as ``explain`` counts them.

    Files that Arrow reads by blocks count as a whole: their footers are not read for a line of the log.
    """
    read = sum(file.bytes for members in plan.files.values() for file in members)
    choice = plan.block_choice
    return read if choice is None else read + choice.bytes - sum(one.file.bytes for one in choice.reads)


def _saved(plan: ReadPlan, sizes: _Sizes) -> dict[str, int]:
    """Return the bytes that each index saved a query, its own taken off; what partitions save is not counted.

    File groups that several indexes rule out are counted to each by how many it ruled out.
    """
    saved = {use.name: use.instead_of - use.bytes for use in plan.used if use.replaces}
    pruning = [use for use in plan.used if not use.replaces]
    if pruning:
        count, there = sizes.of(plan.kept_partitions, groups=True)
        choice = plan.block_choice
        pruned = there - sum(sizes.by_group.get(group, 0) for group in plan.groups)
        pruned += 0 if choice is None else choice.instead_of - choice.bytes
        ruled_out = {use.name: max(0, count - use.groups) for use in pruning}
        total = sum(ruled_out.values())
        for use in pruning:
            if use.name != BUCKETS:
                part = ruled_out[use.name] / total if total else 1 / len(pruning)
                saved[use.name] = round(pruned * part) - use.bytes
    return {name: max(0, bytes_) for name, bytes_ in list(saved.items())[:MAX_INDEXES]}


# --- how large a table is ---------------------------------------------------------------------------------------------


class _Sizes:
    """The size of a state: its files and bytes, in all, by file group and by partition."""

    def __init__(self, state: State) -> None:
        self.by_group: dict[GroupKey, int] = {}
        self._of_partition: dict[str, tuple[int, int, int]] = {}
        for key, members in state.groups(DATA_TREE).items():
            size = self.by_group[key] = sum(file.bytes for file in members)
            groups, files, held = self._of_partition.get(key[0], (0, 0, 0))
            self._of_partition[key[0]] = (groups + 1, files + len(members), held + size)
        self.files = sum(files for _, files, _ in self._of_partition.values())
        self.bytes = sum(self.by_group.values())

    def of(self, partitions: Collection[str] | None, groups: bool = False) -> tuple[int, int]:
        """Return the files, or file groups, of some partitions, and their bytes; of all if ``None``."""
        if partitions is None:
            return len(self.by_group) if groups else self.files, self.bytes
        some = [self._of_partition[path] for path in partitions if path in self._of_partition]
        return sum(one[0 if groups else 1] for one in some), sum(one[2] for one in some)


_KNOWN: dict[str, tuple[State, int, _Sizes]] = {}
"""Table -> its last state and the size of that: counting files for each query would take longer than its line."""


def _sizes(state: State, uri: str) -> _Sizes:
    known = _KNOWN.get(uri)
    if known is not None and known[0] is state and known[1] == state.version:
        return known[2]
    sizes = _Sizes(state)
    while len(_KNOWN) >= MAX_SIZED_STATES:
        _KNOWN.pop(next(iter(_KNOWN)), None)
    _KNOWN[uri] = (state, state.version, sizes)
    return sizes
