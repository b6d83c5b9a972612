"""Looks at the tables that a description names: which there are, how they are, and who is at work on them.

Each table is read by its log alone, several at once, and within a limit of time: a table that cannot be reached is
reported with the reason and never keeps the others from being looked at.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from spark_apps.maintenance.demand import Demand, read_demand
from spark_apps.maintenance.policies import CompactPolicy, TableEntry, matches_table, may_hold
from spark_apps.storage.errors import LakeIndexError, NotFound, TableNotFound
from spark_apps.storage.printing import Grid, Printed, View, counted, moment_text, size, span
from spark_apps.storage.store import Store
from spark_apps.timeline import maintenance_records
from spark_apps.timeline.allowed_sources import check_allowed
from spark_apps.timeline.hudi_indexes import read_indexes
from spark_apps.timeline.locations import Warehouse, locate
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.maintenance_records import DoneWork, LastPlans, SkippedWork
from spark_apps.timeline.model import DATA_TREE, HUDI
from spark_apps.timeline.state import State
from spark_apps.timeline.statistics import (
    TableStatistics,
    TreeStatistics,
    age_of_lag,
    age_of_version,
    table_statistics,
    tree_statistics,
)
from spark_apps.timeline.transactions import is_presumed_dead, live_requests

logger = logging.getLogger(__name__)

Look = TypeVar("Look")

PATIENCE_SECONDS = 60.0
"""How long one table (or the listing of one warehouse) may take to answer."""

_AT_ONCE = 8
_SILENT_SECONDS = 900.0
"""Seconds without a sign of life after which an attempt no longer keeps maintenance away."""


@dataclass(frozen=True)
class MaintainedTable:
    """A table that was found: its name for people, its location, and the entry that it is described by."""

    name: str
    location: str
    entry: TableEntry
    conn_id: str
    warehouse: Warehouse


@dataclass(frozen=True, repr=False)
class TableSurvey(Printed):
    """A table as it was seen.

    Times are seconds; ``compacting`` are the trees, measured by the sizes that their policies call small: "data" and
    the indexes by name.

    :param busy: operation -> who is at it (transaction ids of live attempts).
    :param window: holder of a window over the whole table.
    :param newest: tree or index -> the highest sequence number of its files.
    :param checked: when it was looked at, in seconds since 1970.
    :param demand: what queries asked of the indexes lately, ``None`` where that is not known.
    :param hudi: index of a Hudi table's own -> its state there, ``vanished`` for one that a writer has removed;
        ``None`` where the table cannot be asked without Spark.
    :param small: of a registered table, the files that each call of its format's own maintenance would find small.
    """

    table: MaintainedTable
    statistics: TableStatistics
    compacting: Mapping[str, TreeStatistics] = field(default_factory=dict)
    lag_ages: Mapping[str, float | None] = field(default_factory=dict)
    built_ages: Mapping[str, float | None] = field(default_factory=dict)
    age: float | None = None
    busy: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    window: str | None = None
    newest: Mapping[str, int] = field(default_factory=dict)
    last: LastPlans = field(default_factory=LastPlans)
    done: Mapping[str, DoneWork] = field(default_factory=dict)
    checked: float = 0.0
    demand: Demand | None = None
    hudi: Mapping[str, str] | None = None
    small: Mapping[str, SmallFiles] = field(default_factory=dict)

    def view(self) -> View:
        data, indexes = self.statistics.data, self.statistics.indexes.values()
        facts = [
            ("looked at", moment_text(self.checked)),
            ("last commit", None if self.age is None else f"{span(self.age)} before"),
            ("size", f"{size(data.bytes)} in {counted(data.files, 'file')}, {data.small_files:,} of them small"),
            ("window", self.window),
            *((f"at work: {operation}", ids) for operation, ids in self.busy.items()),
        ]
        rows = [
            (one.name, one.kind, one.state, one.lag.commits, size(one.lag.bytes), span(self.lag_ages.get(one.name)))
            for one in indexes
        ]
        columns = ("index", "kind", "state", "commits behind", "size", "for")
        return View(f"{self.table.name}, version {self.statistics.version}", facts, [Grid(columns, rows)])


@dataclass(frozen=True)
class Missed:
    """A table (or pattern) of which nothing is known, and why."""

    name: str
    skipped: SkippedWork
    location: str | None = None


def find_tables(
    entries: Iterable[TableEntry],
    warehouses: Mapping[str, Warehouse],
    default_conn_id: str,
    patience: float = PATIENCE_SECONDS,
) -> tuple[list[MaintainedTable], list[Missed]]:
    """List the tables that the entries name, in their order.

    Of several entries that fit a table the first one counts.

    :param warehouses: connection id -> where its tables are.
    """
    entries = list(entries)
    targets: dict[str, MaintainedTable] = {}
    missed: list[Missed] = []
    listings: dict[str, _Listing | LakeIndexError] = {}
    # A name may be a catalog's, which takes a request.
    named = [
        (entry.table, warehouses[entry.table_conn_id or default_conn_id]) for entry in entries if not entry.is_pattern
    ]
    answers = iter(_each(lambda one: one[1].locate(one[0]), named, patience, _AT_ONCE))
    for entry in entries:
        conn_id = entry.table_conn_id or default_conn_id
        warehouse = warehouses[conn_id]
        if not entry.is_pattern:
            answer = next(answers)
            if not isinstance(answer, str):
                said = _why_not(answer, patience)
                missed.append(Missed(entry.table, SkippedWork("unreachable", said)))
                continue
            listed_tables = [(entry.table, answer)]
        else:
            if conn_id not in listings:
                listings[conn_id] = _listing(warehouse, patience)
            listed = listings[conn_id]
            if isinstance(listed, LakeIndexError):
                missed.append(Missed(entry.table, SkippedWork("unreachable", f"The warehouse: {listed.message}")))
                continue
            listed_tables = [(name, place) for name, place in listed.tables if matches_table(entry.table, name)]
            unread = [
                one for one in listed.unread if may_hold(entry.table, one.name) or matches_table(entry.table, one.name)
            ]
            missed += [one for one in unread if one not in missed]
            if not listed_tables and not unread:
                reason = f"No table of {warehouse.root or 'a connection without a warehouse'} has a name like it."
                missed.append(Missed(entry.table, SkippedWork("no_such_table", reason)))
        for name, location in listed_tables:
            targets.setdefault(location, MaintainedTable(name, location, entry, conn_id, warehouse))
    return list(targets.values()), missed


def survey_tables(
    tables: Iterable[MaintainedTable], patience: float = PATIENCE_SECONDS, at_once: int = _AT_ONCE
) -> tuple[list[TableSurvey], list[Missed]]:
    """Look at every table, ``at_once`` of them at a time, each within ``patience`` seconds."""
    return look_at(tables, survey_table, patience, at_once)


def look_at(
    tables: Iterable[MaintainedTable],
    look: Callable[[MaintainedTable], Look],
    patience: float = PATIENCE_SECONDS,
    at_once: int = _AT_ONCE,
) -> tuple[list[Look], list[Missed]]:
    """Look at every table as ``look`` does, ``at_once`` of them at a time, each within ``patience`` seconds.

    ::

        surveys, missed = look_at(tables, survey_table, patience=30, at_once=4)
    """
    tables = list(tables)
    answers = _each(look, tables, patience, at_once)
    seen: list[Look] = []
    missed: list[Missed] = []
    for table, answer in zip(tables, answers, strict=True):
        if isinstance(answer, NotFound):
            missed.append(Missed(table.name, SkippedWork("no_such_table", answer.message), table.location))
        elif answer is None or isinstance(answer, Exception):
            missed.append(Missed(table.name, SkippedWork("unreachable", _why_not(answer, patience)), table.location))
        else:
            seen.append(answer)
    return seen, missed


def _why_not(answer: Exception | None, patience: float) -> str:
    """Return why there is no answer, which is what :func:`_each` gave in its place."""
    if answer is None:
        return f"It did not answer within {patience:g} s."
    return answer.message if isinstance(answer, LakeIndexError) else f"{type(answer).__name__}: {answer}"


def survey_table(table: MaintainedTable) -> TableSurvey:
    """Look at one table. :raises LakeIndexError: if it cannot be read."""
    log = table.warehouse.log_of(table.location)
    if log is None:
        raise TableNotFound(f"There is no log of a table at {table.location}.", hint="Check the name.")
    timeline = Timeline.load(log)
    requests = live_requests(timeline)
    state, policy = timeline.head, table.entry.policy
    statistics = table_statistics(state, (policy.compact or CompactPolicy()).small_size)
    small = (policy.compact_indexes or CompactPolicy()).small_size
    indexes = {name: index.definition.tree for name, index in state.indexes.items()}
    trees = {DATA_TREE: DATA_TREE, **indexes}
    compacting = {DATA_TREE: statistics.data}
    compacting.update({name: tree_statistics(state, tree, small) for name, tree in indexes.items()})
    busy: dict[str, tuple[str, ...]] = {}
    for request in requests:
        if not is_presumed_dead(timeline, request, _SILENT_SECONDS):
            busy[request.operation] = (*busy.get(request.operation, ()), request.txn_id)
    now = timeline.clock()
    whole = [w for w in state.windows.values() if w.partitions is None and w.deadline > now]
    return TableSurvey(
        table,
        statistics,
        compacting,
        {name: age_of_lag(timeline, index.lag) for name, index in statistics.indexes.items()},
        {name: age_of_version(timeline, index.refreshed) for name, index in statistics.indexes.items()},
        age_of_version(timeline, 0),
        busy,
        whole[0].holder if whole else None,
        {name: max((file.sequence_number for file in state.files(tree)), default=-1) for name, tree in trees.items()},
        maintenance_records.read_last(timeline.store),
        maintenance_records.read_done(timeline.store),
        now,
        _demand(timeline, now),
        _hudi(timeline, table.warehouse.options),
        {name: small_files(state, limits.small_size) for name, limits in (policy.native or {}).items()},
    )


def _hudi(timeline: Timeline, options: Mapping[str, Any] | None) -> dict[str, str] | None:
    """Return the states that indexes of a Hudi table's own have there; ``None`` where they cannot be asked."""
    state = timeline.head
    own = [entry.definition for entry in state.indexes.values() if entry.definition.engine == HUDI]
    source = None if state.definition is None else state.definition.source
    if not own or source is None:
        return {}
    try:
        check_allowed(timeline.store.uri, source, options)
        said = read_indexes(Store(locate(source.location).uri, options))
    except LakeIndexError as error:
        logger.warning("What %s has of its own indexes is not known: %s", source.location, error.message)
        return None
    found = {definition.name: said.of(definition) for definition in own}
    return {name: "vanished" if there is None else there.state for name, there in found.items()}


@dataclass(frozen=True)
class SmallFiles:
    """The files of a registered table that are small and not alone so in their partition, with their bytes.

    :param of: how many files there are in all.
    """

    files: int = 0
    bytes: int = 0
    of: int = 0

    @property
    def share(self) -> float:
        """The share of all files that they are."""
        return self.files / self.of if self.of else 0.0


def small_files(state: State, small_bytes: int) -> SmallFiles:
    """Return the small files of a table, as its log last recorded them."""
    sizes: dict[str, list[int]] = {}
    files = state.files(DATA_TREE)
    for file in files:
        if file.bytes < small_bytes:
            sizes.setdefault(file.partition, []).append(file.bytes)
    together = [size for partition in sizes.values() if len(partition) > 1 for size in partition]
    return SmallFiles(len(together), sum(together), len(files))


def _demand(timeline: Timeline, now: float) -> Demand | None:
    """Return the demand for the table's indexes; ``None`` also where its query log cannot be read."""
    definition = timeline.head.definition
    try:
        return None if definition is None else read_demand(timeline.store, definition.properties, now)
    except LakeIndexError as error:
        logger.warning("What queries ask of %s is not known: %s", timeline.store.uri, error.message)
        return None


@dataclass(frozen=True)
class _Listing:
    """The tables of a warehouse, by name and location, and the folders that cannot be looked into."""

    tables: list[tuple[str, str]]
    unread: list[Missed]


def _listing(warehouse: Warehouse, patience: float) -> _Listing | LakeIndexError:
    [answer] = _each(lambda one: list(one.tables()), [warehouse], patience, 1)
    if isinstance(answer, LakeIndexError):
        return answer
    if not isinstance(answer, list):
        said = f"{warehouse.root} did not answer within {patience:g} s." if answer is None else str(answer)
        return LakeIndexError(said)
    return _Listing(
        [(table.name, table.location) for table in answer if table.trouble is None],
        [
            Missed(
                table.name,
                SkippedWork("unreachable", f"The folder cannot be looked into: {table.trouble.message}"),
                table.location,
            )
            for table in answer
            if table.trouble is not None
        ],
    )


def _each(work: Callable[[Any], Any], things: list[Any], patience: float, at_once: int) -> list[Any]:
    """Do ``work`` on each in threads; an answer is the result, the error, or ``None`` if there was none in time.

    The threads are daemons: one that never comes back does not hold the process.
    """
    answers: list[Any] = [None] * len(things)
    pending: queue.SimpleQueue[int] = queue.SimpleQueue()
    started: dict[int, float] = {}
    ended = [threading.Event() for _ in things]
    for number in range(len(things)):
        pending.put(number)

    def run() -> None:
        while True:
            try:
                number = pending.get_nowait()
            except queue.Empty:
                return
            started[number] = time.monotonic()
            try:
                answers[number] = work(things[number])
            except Exception as error:  # noqa: BLE001 - whatever ails one table, the others are looked at
                answers[number] = error
            ended[number].set()

    for _ in range(min(at_once, len(things))):
        threading.Thread(target=run, name="survey", daemon=True).start()
    waiting = set(range(len(things)))
    while waiting:
        for number in sorted(waiting):
            over = number in started and time.monotonic() - started[number] > patience
            if ended[number].is_set() or over:
                waiting.discard(number)
                if over and not ended[number].is_set() and not pending.empty():
                    # A worker hangs; another one takes its place for the rest.
                    threading.Thread(target=run, name="survey", daemon=True).start()
        if waiting:
            ended[min(waiting)].wait(0.05)
    return list(answers)
