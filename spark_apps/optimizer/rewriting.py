"""Decides, for the scans of a query, what is read in their place: by the planner of ``IndexedTable.read``.

The filters above a scan are given to the planner as text, and only prune: Spark applies its own filters to the rows
that are read. What cannot be used leaves Spark's scan as it is; a keyed table, which Spark cannot read, is then read
without indexes.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import re
import stat
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from spark_apps.actions.register import open_log
from spark_apps.actions.template import TableHandle
from spark_apps.engine.spark_utils import SettingAsked, remembered_settings, setting
from spark_apps.indexes.covering.definition import has_buckets
from spark_apps.mergetree.reader_settings import TEXTS, differing_setting
from spark_apps.mergetree.schema import struct_type
from spark_apps.mergetree.tree import Snapshot
from spark_apps.optimizer.file_choice import NotChosen, choose_files
from spark_apps.optimizer.held_rows import HeldRows, find_held_rows, is_narrow, text_of_costs
from spark_apps.optimizer.join_keys import JoinKeys
from spark_apps.optimizer.limits import MAX_QUERIES
from spark_apps.optimizer.scan_filters import joined, predicate_of
from spark_apps.optimizer.scanned_files import CannotMatch, ScannedFiles, ScannedRows, ScannedSources, path_of
from spark_apps.query.explain import Explanation, explain_plan
from spark_apps.query.first_rows import FirstRows, bound_of
from spark_apps.query.logged import Asked, keeps_log, note_query, note_scan
from spark_apps.query.planning import (
    ReadPlan,
    Shuffle,
    filter_of,
    plan_read,
    prunes_by,
)
from spark_apps.query.predicate_text import text_of_predicate
from spark_apps.query.predicates import Filter
from spark_apps.query.reading import keeps_buckets, planned_rows
from spark_apps.sources.registry import check_unlisted
from spark_apps.storage.errors import (
    InvalidInput,
    InvalidName,
    LakeIndexError,
    OtherFormat,
    StorageUnavailable,
    TableNotFound,
    VersionNotFound,
)
from spark_apps.storage.store import Store
from spark_apps.timeline.allowed_sources import PLAIN_FORMATS
from spark_apps.timeline.catalog_names import may_be_named
from spark_apps.timeline.files import GroupKey
from spark_apps.timeline.locations import Location, Warehouse, WarehouseTable, locate
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import DATA_TREE, TableDefinition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_apps.optimizer.rule import InstalledRule
    from spark_apps.timeline.state import State

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_NO_INDEX = "it has no index"

_FORGIVING = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")

_WITHOUT_MEANING = frozenset(("path", "paths", "serialization.format", "inferschema", "mergeschema"))
"""Options of a reader that say where files are, or what their columns are, which is compared by itself."""


@dataclass(frozen=True)
class ScanDecision:
    """A scan of a query, and what is read in its place.

    :param address: the table's location.
    :param replaced: whether the rows are read as this package plans it.
    :param reason: why Spark's own scan was kept; ``None`` if it was not.
    :param plan: what is read, or would be; ``None`` if there is no plan.
    :param failed: whether an unexpected error occurred, which ``reason`` describes.
    :param shuffle: how a join or sum of the query avoids a shuffle of these rows, or why it does not; ``None`` if no
        index has the layout for it.
    :param keys: for how many keys of a join's other side indexes were asked, by column, or why they were not; ``None``
        if the table has no index over the columns that its joins compare.
    :param scanned: of a table that its own connector reads, how many files are in the connector's own plan, and how
        many of them it reads; ``held``: how many of the others are not read because an index holds their rows.
    :param by_connector: whether it is such a table, none of whose files this package opens.
    """

    address: str
    replaced: bool
    reason: str | None = None
    plan: ReadPlan | None = field(default=None, repr=False)
    failed: bool = False
    shuffle: str | None = None
    keys: str | None = None
    scanned: tuple[int, int] | None = None
    by_connector: bool = field(default=False, repr=False)
    held: int = 0

    @cached_property
    def explanation(self) -> Explanation | None:
        """The explanation of the plan, which is made when it is asked for: it may look into files."""
        if self.plan is None:
            return None
        # What a connector reads is opened by it alone, with the session's rights.
        return explain_plan(self.plan, self.plan.columns, opens_files=not self.by_connector)

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, for JSON and XCom."""
        explanation = None if self.explanation is None else self.explanation.to_dict()
        return {"address": self.address, "replaced": self.replaced, "reason": self.reason,
                "shuffle": self.shuffle, "keys": self.keys, "scanned": self.scanned, "held": self.held,
                "explanation": explanation}  # fmt: skip


@dataclass
class _Query:
    """The state kept for one query: the versions that all scans see, decisions, whether it was warned of.

    :param heads: log -> a source, and the version of its log that all scans see.
    :param plans: what was planned for a scan, for those that are equal to it.
    :param explained: whether it is planned to be looked at alone.
    """

    snapshots: dict[str, Snapshot] = field(default_factory=dict)
    heads: dict[str, tuple[TableHandle, State]] = field(default_factory=dict)
    plans: dict[tuple[Any, ...], tuple[Any, Any]] = field(default_factory=dict)
    decisions: list[ScanDecision] = field(default_factory=list)
    warned: bool = False
    explained: bool = False

    def planned(self, about: Any, asked: tuple[Any, ...], plan: Callable[[], _T]) -> _T:
        """Return what was planned for an equal scan of the same files, else plan it."""
        key = (id(about), *asked)
        if key not in self.plans:
            self.plans[key] = about, plan()  # what the key is an id of is kept
        answer: _T = self.plans[key][1]
        return answer

    def forget(self, address: str) -> None:
        """Take out the first decision that left a scan of an address to Spark."""
        left = next((one for one in self.decisions if one.address == address and not one.replaced), None)
        if left is not None:
            self.decisions.remove(left)


@dataclass(frozen=True)
class _Scan:
    """A scan as the rule describes it.

    :param filters: SQL texts, each true of every row that the query takes from the scan.
    :param version: of a keyed table.
    :param schema: columns and types of the whole relation of plain files.
    :param marked: columns of which Spark's catalog says what files do not: a default value, an id of Parquet's.
    :param joined: columns that a join compares with keys of another side, without which rows do not count.
    :param first: the rows that the query takes alone, at the ends of columns; none if it takes others too.
    :param files_hash: of the files that Spark has listed for it, if Spark was asked for that before.
    :param again: whether this query has asked before, when its subquery was no side of a join yet.
    :param id: of a table that its own connector reads, the format's own id; ``name``: a catalog's for it; ``purpose``:
        ``read``, or the command whose target it is; ``stored``: by what name a column is in its files.
    """

    kind: Literal["keyed", "files", "connector"]
    address: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    filters: tuple[str, ...]
    version: int = -1
    format: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    schema: tuple[tuple[str, str], ...] = ()
    marked: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    first: tuple[FirstRows, ...] = ()
    again: bool = False
    files_hash: str | None = None
    id: str = ""
    name: str = ""
    purpose: str = "read"
    stored: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> _Scan:
        return cls(
            said["kind"], said["address"], tuple(said["columns"]), tuple(said["types"]), tuple(said["filters"]),
            said.get("version", -1), said.get("format", ""), said.get("options", {}),
            tuple((name, kind) for name, kind in said.get("schema", ())), tuple(said.get("marked", ())),
            tuple(said.get("joined", ())), tuple(map(FirstRows.of, said.get("first", ()))), said.get("again", False),
            said.get("list"), said.get("id", ""), said.get("name", ""), said.get("purpose", "read"),
            said.get("stored", {}),
        )  # fmt: skip


class _LeftToSpark(Exception):
    """Says why a scan is left as it is."""


class Rewriter:
    """The decisions for one session.

    :param warehouse: a folder whose tables and sources are known by name.
    :param sources: addresses of registered sources, or of their logs, elsewhere.
    :param options: of the stores; never written down.
    """

    def __init__(
        self,
        spark: SparkSession,
        warehouse: str | None = None,
        sources: Iterable[str] = (),
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.spark = spark
        self.warehouse = Warehouse(warehouse, options or {})
        self.options = self.warehouse.reader_options
        self.rule: InstalledRule | None = None
        self.has_set: list[str] = []
        self._tables: dict[str, TableHandle] = {}
        self._sources: dict[str, list[str]] = {}
        self._queries: OrderedDict[int, _Query] = OrderedDict()
        self._explained: dict[int, _Query] = {}
        self._scanned = ScannedSources()
        self._looked_for: set[tuple[str, str]] = set()
        self._settings: set[SettingAsked] = set()
        # Logs of sources whose folders are tables of other formats, of which it was warned.
        self._refused: set[str] = set()
        # Guards what is known of queries, and makes the lock of a log, which is read by one thread at a time.
        self._lock = Lock()
        self._logs: dict[str, RLock] = {}
        # A store of a local folder would make it.
        if warehouse is not None and "://" not in warehouse and not Path(path_of(warehouse)).is_dir():
            raise StorageUnavailable(
                f"There is no folder {warehouse}.",
                outcome="Nothing was changed.",
                hint="Check the warehouse's address.",
            )
        for table in self.warehouse.known_tables():
            try:
                self.know(Timeline(table.log))
            except LakeIndexError as error:
                logger.warning("Indexes of %s are not used: %s", table.name, error)
        for address in sources:
            self.know(open_log(spark, address, options, warehouse=self.warehouse))

    def adopt(self, handle: TableHandle) -> None:
        """Read a table's frames through the handle that it was loaded with."""
        self._tables[handle.timeline.store.uri] = handle

    def databases(self) -> list[str]:
        """Return the folders of the warehouse that hold tables, by which these are known in SQL."""
        return sorted({table.name.partition(".")[0] for table in self._folders() if "." in table.name})

    def _folders(self) -> Iterator[WarehouseTable]:
        """Yield the tables that are called by their folders; what a catalog has is not the warehouse's to name."""
        return (table for table in self.warehouse.known_tables() if not table.of_catalog)

    def find(self, asked: str) -> str | None:
        """Answer a catalog that looks for a table, or for the names of all.

        :param asked: the JSON that ``LakeCatalog`` of ``index_rule.java`` writes.
        :return: JSON, ``None`` if there is no such table.
        """
        return self._find(json.loads(asked))

    def _find(self, question: Mapping[str, Any]) -> str | None:
        name = ".".join([question["catalog"], *question["parts"]])
        try:
            if question["what"] == "list":
                names = (table.name for table in self._folders())
                return json.dumps(
                    {"names": sorted(n.rpartition(".")[2] for n in names if n.rpartition(".")[0] == name)}
                )
            state = self._named(name, question["version"], question["microseconds"])
        except LakeIndexError as error:
            return json.dumps({"error": str(error)})
        if state is None:
            return None
        uri, shown = state
        size = sum(file.bytes for file in shown.files(DATA_TREE))
        schema = struct_type(shown.table.fields).json()
        shape = {"uri": uri, "version": shown.version, "table": shown.table.table_id, "schema": schema, "bytes": size}
        return json.dumps(shape)

    def _named(self, name: str, version: str | None, microseconds: int | None) -> tuple[str, State] | None:
        """Return the log's address and the state of a table of the warehouse, ``None`` if there is none.

        :raises LakeIndexError: if it cannot be shown, or not as of that version or time.
        """
        try:
            log = self.warehouse.log_of(self.warehouse.folder(name))
        except InvalidName:
            return None
        if log is None:
            return None
        handle, head = self._newest(log)
        if head.dropped or head.definition is None:
            return None
        if version is None and microseconds is None:
            # A source's columns are those of its files as they are now.
            return log.uri, handle.snapshot(head).state if head.table.source is not None else head
        if version is not None and not version.isdigit():
            raise VersionNotFound(f"{version!r} is no version of {name}.", hint="Give a number.")
        if head.table.source is not None:
            raise InvalidInput(
                f"{name} is a registered source, which is shown as it is.",
                hint="Load an earlier version: IndexedTable.load(spark, uri, version=…).read().",
            )
        as_of = None if microseconds is None else dt.datetime.fromtimestamp(microseconds / 1e6, dt.UTC)
        with self._lock_of(log.uri):
            return log.uri, handle.timeline.at(None if version is None else int(version), as_of)

    def files(self, asked: str) -> str:
        """Return the addresses of a keyed table's data files, as Spark writes them, with NUL between.

        :param asked: the version and the log's address, as ``TableFiles`` of ``index_rule.java`` writes them.
        """
        version, _, address = asked.partition("@")
        snapshot = self._keyed_snapshot(_Scan("keyed", address, (), (), (), int(version)), _Query())
        return "\0".join(snapshot.store.spark_path(file.path) for file in snapshot.state.files(DATA_TREE))

    def decisions(self, query: int) -> list[ScanDecision]:
        """Return what was decided on the scans of a query."""
        known = self._queries.get(query)
        return [] if known is None else list(known.decisions)

    def newest_query(self) -> int:
        """Return the number of the query that was decided on last; 0 before the first."""
        with self._lock:
            return next(reversed(self._queries), 0)

    @contextmanager
    def explained(self, number: int) -> Iterator[list[ScanDecision]]:
        """Yield what is decided on the scans of a query, which is planned within the block to be looked at alone.

        It leaves no line in a query log.
        """
        query = _Query(explained=True)
        with self._lock:
            self._explained[number] = query
        try:
            yield query.decisions
        finally:
            with self._lock:
                del self._explained[number]

    # --- What the rule asks -------------------------------------------------------------------------------------------

    def decide(self, request: Any) -> None:
        """Put what is read in the place of scans.

        :param request: the ``ScanRequest`` of ``index_rule.java``.
        """
        with remembered_settings() as settings:
            asked = list(self._settings)  # those that queries before have asked for one by one
            said = json.loads(request.json(json.dumps([[name, *default] for _, name, default in asked])))
            settings.update({key: answer[0] for key, answer in zip(asked, said["settings"], strict=True) if answer})
            self._decide_each(request, said["scans"], self._query(said["query"]))
            self._settings.update(key for key in settings if key[0] == id(self.spark))

    def _decide_each(self, request: Any, described: Sequence[Mapping[str, Any]], query: _Query) -> None:
        scans = [_Scan.of(one) for one in described]
        settled: set[int] = set()

        def settle(number: int) -> None:
            if number not in settled:
                settled.add(number)
                self._settle(request, number, scans[number], query, keys)
                if joined:
                    request.decided(number)

        joined = any(scan.joined for scan in scans)
        keys = JoinKeys(self.spark, request, settle)
        # Those with filters first: what is left of them tells how large the sides of joins are.
        for number in sorted(range(len(scans)), key=lambda number: not scans[number].filters):
            settle(number)

    def _settle(self, request: Any, number: int, scan: _Scan, query: _Query, keys: JoinKeys) -> None:
        """Decide on one scan."""
        started = time.perf_counter()
        try:
            decision = self._replace(request, number, scan, query, keys)
        except _LeftToSpark as left:
            decision = ScanDecision(scan.address, False, str(left))
        except Exception as error:
            if not query.warned:
                logger.warning("The scan of %s is planned without indexes: %s", scan.address, error, exc_info=True)
                query.warned = True
            decision = ScanDecision(scan.address, False, f"{type(error).__name__}: {error}", failed=True)
            if scan.kind == "keyed":
                decision = self._without_indexes(request, number, scan, query, error)
        if decision is not None:
            if scan.again:
                query.forget(scan.address)
            query.decisions.append(decision)
            try:
                if not query.explained:
                    self._note(request, number, scan, decision, started, query)
            except Exception as error:  # noqa: BLE001 - a log that cannot be kept hurts no query
                logger.warning("A query of %s leaves no line in its log: %s", scan.address, error)

    def _note(
        self, request: Any, number: int, scan: _Scan, decision: ScanDecision, started: float, query: _Query
    ) -> None:
        """Leave a line of the scan in the table's query log."""
        plan = decision.plan
        if scan.again and not decision.replaced:
            return
        where = _asked_text(scan.filters)
        if plan is not None and keeps_log(plan.snapshot.table):
            shuffles = json.loads(request.shuffled(number))
            groups = dict.fromkeys(name for one in shuffles if not one["whole"] for name in one["columns"])
            asked = Asked(scan.columns, where, scan.joined, tuple(groups), left=not decision.replaced)
            note_query(plan, asked, started)
        elif plan is None and scan.kind != "keyed" and not decision.failed:
            for log in self._sources.get(locate(path_of(scan.address)).uri, ()):
                head = query.heads[log][1] if log in query.heads else self._tables[log].timeline.head
                if not head.dropped and head.definition is not None:
                    asked = Asked(scan.columns, where, scan.joined, left=True)
                    note_scan(self._tables[log].timeline.store, head.table, asked, started)

    def _query(self, number: int) -> _Query:
        with self._lock:
            query = self._explained.get(number) or self._queries.get(number)
            if query is None:
                query = self._queries[number] = _Query()
                while len(self._queries) > MAX_QUERIES:
                    self._queries.popitem(last=False)
            return query

    def _replace(self, request: Any, number: int, scan: _Scan, query: _Query, keys: JoinKeys) -> ScanDecision | None:
        if scan.kind == "keyed":
            snapshot = self._keyed_snapshot(scan, query)
            read = _plan(request, number, scan, snapshot, query, keys)
            _put(request, number, read.plan, read.filter)
            return ScanDecision(scan.address, True, None, read.plan, shuffle=read.shuffle, keys=read.keys)
        if scan.kind == "connector":
            return self._choose_files(request, number, scan, query, keys)
        left: list[ScanDecision] = []
        for handle, head in self._sources_at(scan.address, query, PLAIN_FORMATS):
            if not head.indexes:
                left.append(ScanDecision(scan.address, False, _NO_INDEX))
                continue
            try:
                scanned = self._scanned_files(request, number, scan, handle, head)
                read = _plan(request, number, scan, scanned.snapshot, query, keys)
            except OtherFormat as refused:
                if handle.timeline.store.uri not in self._refused:
                    logger.warning("%s is read by Spark's own plan: %s", scan.address, refused)
                    self._refused.add(handle.timeline.store.uri)
                left.append(ScanDecision(scan.address, False, str(refused)))
                continue
            except (_LeftToSpark, CannotMatch) as why:
                left.append(ScanDecision(scan.address, False, str(why)))
                continue
            if _is_faster(read.plan, scan.joined):
                _put_files(request, number, scanned, read)
                return ScanDecision(scan.address, True, None, read.plan, shuffle=read.shuffle, keys=read.keys)
            left.append(ScanDecision(scan.address, False, _why_not(read.plan), read.plan, keys=read.keys))
        return self._left(scan, left)

    def _choose_files(
        self, request: Any, number: int, scan: _Scan, query: _Query, keys: JoinKeys
    ) -> ScanDecision | None:
        """Leave files of a connector's scan out in which indexes find no row that counts, or whose rows they hold."""
        left: list[ScanDecision] = []
        for handle, head in self._sources_at(scan.address, query, (scan.format,), scan.name, scan.id):
            if not head.indexes:
                left.append(ScanDecision(scan.address, False, _NO_INDEX))
                continue
            try:
                logged = Snapshot(self.spark, handle.timeline.store, head)
                chosen = choose_files(logged, scan, number, keys, partial(_own_bytes, request, number))
            except NotChosen as why:
                left.append(ScanDecision(scan.address, False, str(why)))
                continue
            found = find_held_rows(request, number, scan, chosen, partial(_shuffles, request, number, logged))
            if isinstance(found, HeldRows):
                scanned, kept, _, _, held = found.put(request, number)
                shuffle = None if found.plan.bucketed is None else _kept_text(found.rows)
                return ScanDecision(
                    scan.address, True, None, found.plan, shuffle=shuffle, keys=chosen.keys,
                    scanned=(scanned, kept), held=held, by_connector=True,
                )  # fmt: skip
            not_used = {**chosen.plan.not_used, **found}
            chosen = replace(chosen, plan=replace(chosen.plan, not_used=not_used))
            counts = chosen.keep(request, number) if chosen.rules_out else [0, 0]
            if counts is None or counts[1] < counts[0]:
                files = None if counts is None else (counts[0], counts[1])
                return ScanDecision(
                    scan.address, True, None, chosen.plan, keys=chosen.keys, scanned=files, by_connector=True
                )
            why_not = (
                _why_not(chosen.plan) if not chosen.rules_out else "the files that indexes rule out are not in the scan"
            )
            left.append(ScanDecision(scan.address, False, why_not, chosen.plan, keys=chosen.keys))
        return self._left(scan, left)

    def _left(self, scan: _Scan, left: Sequence[ScanDecision]) -> ScanDecision | None:
        """Return why a scan is left to Spark; ``None`` where nobody knows of its address, which is not asked again."""
        if not left:
            assert self.rule is not None
            self.rule.forgo(scan.address)
            return None
        reason = "; ".join(dict.fromkeys(decision.reason or "" for decision in left))
        return replace(left[0], reason=reason, by_connector=scan.kind == "connector")

    def _scanned_files(self, request: Any, number: int, scan: _Scan, handle: TableHandle, head: State) -> ScannedFiles:
        """Return a source with the files that Spark would read.

        :raises _LeftToSpark: if Spark would read other rows than this package does.
        :raises CannotMatch: if it would read other files than the source's.
        :raises OtherFormat: if the files are no plain ones.
        """
        _check_same_reading(self.spark, head.table, scan)
        assert head.table.source is not None
        if locate(head.table.source.location).is_local:  # elsewhere each look would be a request
            check_unlisted(head.table, handle.source_options)
        logged = Snapshot(self.spark, handle.timeline.store, head)
        where = partial(predicate_of, logged, scan.filters)
        key = scan.files_hash or request.filesHash(number)
        return self._scanned.of(logged, key, request, number, handle.source_options, where)

    def _without_indexes(
        self, request: Any, number: int, scan: _Scan, query: _Query, error: Exception
    ) -> ScanDecision | None:
        """Read a keyed table without looking at its indexes, or let the query fail with words."""
        try:
            snapshot = self._keyed_snapshot(scan, query)
            _put(request, number, plan_read(snapshot, None, _columns(snapshot, scan)))
        except Exception as second:  # noqa: BLE001 - the query fails with its words
            request.refuse(f"{second}" if isinstance(second, LakeIndexError) else f"{scan.address}: {second}")
            return ScanDecision(scan.address, False, str(second), failed=True)
        return ScanDecision(scan.address, True, f"{type(error).__name__}: {error}", failed=True)

    # --- Tables -------------------------------------------------------------------------------------------------------

    def know(self, timeline: Timeline) -> None:
        """Use the indexes of a source in whichever query reads it."""
        state = timeline.refresh()
        if state.definition is None or state.dropped or state.table.source is None:
            return
        with self._lock:
            logs = self._sources.setdefault(state.table.source.location, [])
            if timeline.store.uri not in logs:
                logs.append(timeline.store.uri)
            self._tables[timeline.store.uri] = TableHandle(self.spark, timeline, self.options)

    def _lock_of(self, log: str) -> RLock:
        with self._lock:
            return self._logs.setdefault(log, RLock())

    def _newest(self, log: Store) -> tuple[TableHandle, State]:
        """Return the table of a log, read to its end, and its version; another table if the log was begun anew.

        :raises TableNotFound: if the log is gone.
        """
        with self._lock_of(log.uri):
            handle = self._tables.get(log.uri)
            if handle is None or handle.timeline.is_replaced():
                handle = self._tables[log.uri] = TableHandle(self.spark, Timeline(log), self.options)
            return handle, handle.timeline.refresh()

    def _sources_at(
        self, address: str, query: _Query, formats: Collection[str], name: str = "", table_id: str = ""
    ) -> list[tuple[TableHandle, State]]:
        """Return the sources of some formats at an address, which may be a pattern, with the versions of their logs.

        Their logs are read to their ends once a query.

        :param name: a catalog's for the table at the address. :param table_id: the format's own, of that table.
        """
        location = locate(path_of(address))
        if not any(self._is_of_id(log, table_id) for log in self._sources.get(location.uri, ())):
            self._know_by_name(name, table_id)
        # Elsewhere a look for a log beside an address that was not named would cost a call to its store.
        if location.uri not in self._sources and (location.is_local or self._in_warehouse(location)):
            try:
                timeline = open_log(self.spark, location.uri, self.options)
            except (TableNotFound, InvalidInput):
                return []
            source = timeline.head.table.source
            if source is not None and source.location == location.uri:
                self._check_trusted(location, timeline.store.uri)
                self.know(timeline)
        logs = tuple(self._sources.get(location.uri, ()))
        for log in logs:
            if log not in query.heads:
                query.heads[log] = self._newest(Store(log, self.options))
        found = [query.heads[log] for log in logs]
        return [(handle, head) for handle, head in found if _is_of(head, formats)]

    def _is_of_id(self, log: str, table_id: str) -> bool:
        """Tell whether a log is of the table with an id, or may be of any."""
        definition = self._tables[log].timeline.head.definition
        source = None if definition is None else definition.source
        return source is not None and source.identity in (None, table_id)

    def _know_by_name(self, name: str, table_id: str) -> None:
        """Look for a table that was registered by its name since the session was enabled.

        That costs one request for each table, and none where it was looked for before.
        """
        if not name or (name, table_id) in self._looked_for:
            return
        self._looked_for.add((name, table_id))
        named = may_be_named(name)
        registered = None if named is None else self.warehouse.registered(named)
        if registered is not None and registered.id == table_id:
            self.know(Timeline(Store(registered.log, self.options)))

    def _in_warehouse(self, location: Location) -> bool:
        return self.warehouse.root is not None and location.uri.startswith(f"{locate(self.warehouse.root).uri}/")

    def _check_trusted(self, location: Location, log: str) -> None:
        """Check that rows of a source which was not named may be answered by a log beside it.

        :raises _LeftToSpark: if others may write to the log than to the source.
        """
        if not self._in_warehouse(location) and not _same_writers(Path(location.base), Path(log)):
            raise _LeftToSpark(
                f"others may write to its log {log} than to its files; name it in sources=… if they are trusted"
            )

    def _keyed_snapshot(self, scan: _Scan, query: _Query) -> Snapshot:
        key = f"{scan.address}@{scan.version}"
        snapshot = query.snapshots.get(key)
        if snapshot is None:
            with self._lock_of(scan.address):
                handle = self._tables.get(scan.address)
                if handle is None:
                    timeline = Timeline.load(Store(scan.address, self.options))
                    handle = self._tables[scan.address] = TableHandle(self.spark, timeline, self.options)
                if handle.timeline.head.version < scan.version:
                    handle.timeline.refresh()
                head = handle.timeline.head
                state = head if head.version == scan.version else handle.timeline.at(scan.version)
                snapshot = query.snapshots[key] = handle.snapshot(state)
        return snapshot


def _is_of(head: State, formats: Collection[str]) -> bool:
    if head.dropped or not head.definition:
        return False
    return head.table.source is not None and head.table.source.format in formats


def _same_writers(source: Path, log: Path) -> bool:
    """Tell whether no more users may write to the folder of a log than to its source.

    It belongs to the source's owner, or to this process's user.
    """
    files, entries = source.stat(), log.stat()
    others = stat.S_IWGRP | stat.S_IWOTH
    return entries.st_uid in (files.st_uid, os.geteuid()) and not entries.st_mode & others & ~files.st_mode


_GIVEN = re.compile(r"\(?(isnotnull\((.*)\)|.* IS NOT NULL)\)?", re.DOTALL)


def _asked_text(filters: Sequence[str]) -> str | None:
    """Return what a query asks of a scan, without what Spark adds to each comparison: that its column is not null."""
    asked = [text for text in filters if not _GIVEN.fullmatch(text)] or list(filters)
    return asked[0] if len(asked) == 1 else joined(asked)


def _columns(snapshot: Snapshot, scan: _Scan) -> Sequence[str]:
    """Return the columns that are read: Spark counts rows without any, which a merge needs one for."""
    return scan.columns or (snapshot.data.columns[0],)


@dataclass(frozen=True)
class _Reading:
    """A plan in place of a scan; see :class:`ScanDecision` for its fields.

    :param filter: SQL that the rows which count satisfy, by which files pass over pages.
    """

    plan: ReadPlan
    shuffle: str | None
    keys: str | None = None
    filter: str | None = None


def _plan(request: Any, number: int, scan: _Scan, snapshot: Snapshot, query: _Query, keys: JoinKeys) -> _Reading:
    """Return what is read in place of a scan, by its filters and by keys of joins, and what becomes of a shuffle."""
    shuffles, columns = _shuffles(request, number, snapshot), tuple(_columns(snapshot, scan))

    def asked() -> Filter | None:
        where = predicate_of(snapshot, scan.filters)
        if scan.first and where is None and (bound := bound_of(snapshot, scan.first)) is not None:
            # Read as any other, for what it says of expressions that indexes hold.
            where = filter_of(snapshot, text_of_predicate(bound))
        return where

    def planned(where: Filter | None, among: Collection[GroupKey] | None = None) -> ReadPlan:
        return plan_read(snapshot, where, columns, shuffled_by=shuffles, among=among)

    about = (scan.filters, scan.first, columns, tuple(shuffles))
    plan = query.planned(snapshot.state, about, lambda: planned(asked()))
    taken: str | None = None
    passing: str | None = None
    if prunes_by(snapshot, plan.predicate, scan.joined, plan.columns):
        plan, taken, passing = keys.narrowed(number, plan, planned)
    if plan.bucketed is None:
        return _Reading(plan, None, taken, passing)
    if keeps_buckets(plan):
        return _Reading(plan, _kept_text(plan), taken, passing)
    plan = plan_read(snapshot, plan.where, columns, among=plan.groups)
    words = "shuffled: files that the index does not hold are read too, and this Spark keeps no buckets then"
    return _Reading(plan, words, taken, passing)


def _shuffles(request: Any, number: int, snapshot: Snapshot) -> list[Shuffle]:
    """Return how the query shuffles a scan's rows, where an index could save that."""
    if not any(has_buckets(entry.definition) for entry in snapshot.state.indexes.values() if entry.active):
        return []
    return [Shuffle(frozenset(each["columns"]), each["whole"]) for each in json.loads(request.shuffled(number))]


def _kept_text(plan: ReadPlan) -> str:
    kept = None if plan.bucketed is None else plan.bucketed.buckets
    assert kept is not None and plan.bucketed is not None
    alone = len(plan.covering_scans) == 1 and not plan.files
    others = "" if alone else "; rows of other files are shuffled to them"
    return f"avoided: {kept.count} buckets by {', '.join(kept.columns)}{others}"


def _own_bytes(request: Any, number: int) -> int:
    """Return the bytes of the files that a connector's scan has by itself."""
    return int(request.bytes(number))


def _put(request: Any, number: int, plan: ReadPlan, passing: str | None = None) -> None:
    rows: Any = planned_rows(plan)
    if passing is not None:
        rows = rows.where(passing)
    request.replace(number, rows._jdf.queryExecution().analyzed())


def _put_files(request: Any, number: int, scanned: ScannedFiles, read: _Reading) -> None:
    """Put what is read of a source in the place of a scan: by Spark's own relation, with the files that are read."""
    plan = read.plan
    files = [file for group in plan.files.values() for file in group]
    by_keys = plan.keyed and plan.snapshot.data.key
    if files and read.filter is None and not (plan.covering_scans or plan.block_choice or by_keys):
        request.keepListed(number, scanned.text_of(files), scanned.facts_of(files, plan.columns))
        return
    rows = ScannedRows(plan.snapshot.spark, request, number, scanned)
    _put(request, number, replace(plan, snapshot=replace(plan.snapshot, external=rows)), read.filter)


def _is_faster(plan: ReadPlan, joined: Collection[str]) -> bool:
    """Tell whether a plan takes less time than Spark's own scan of the same files, which prunes partitions itself.

    :param joined: columns that joins compare.
    """
    indexes = plan.snapshot.state.indexes
    pruned = any(use.name in indexes and not use.replaces for use in plan.used)
    files = sum(map(len, plan.files.values()))
    fewer = files < len(plan.snapshot.state.files(DATA_TREE))
    return bool(
        is_narrow(plan, joined)
        or plan.bucketed is not None
        or plan.block_choice
        or plan.keyed
        or plan.nothing_matches
        or (pruned and fewer)
    )


def _why_not(plan: ReadPlan) -> str:
    """Return why a plan is not worth more than Spark's own scan."""
    reasons = [f"{name}: {why.reason}" for name, why in plan.not_used.items()]
    reasons += [f"{use.name}: {text_of_costs(use)}" for use in plan.used if use.replaces]
    return "; ".join(reasons) or _NO_INDEX


def _check_same_reading(spark: SparkSession, table: TableDefinition, scan: _Scan) -> None:
    """Check that Spark would read the same rows of a file as this package does.

    :raises _LeftToSpark: saying what differs.
    """
    source = table.source
    assert source is not None
    if scan.format != source.format:
        raise _LeftToSpark(f"it is read as {scan.format}, and registered as {source.format}")
    for name in _FORGIVING:
        option = name.rpartition(".")[2].lower()
        given = {key.lower(): value for key, value in scan.options.items()}
        if str(given.get(option, setting(spark, name, "false"))).lower() == "true":
            raise _LeftToSpark(f"{option} is on, and rows may be missing")
    differs = differing_setting(spark, source, scan.options)
    if differs is not None:
        raise _LeftToSpark(differs)
    for name in scan.marked:
        raise _LeftToSpark(f"Spark's catalog has a default value or an id of Parquet's for the column {name!r}")
    declared = {item.name: item.type for item in table.fields}
    for name, kind in zip(scan.columns, scan.types, strict=True):
        if declared.get(name) != kind:
            raise _LeftToSpark(f"the column {name!r} is read as {kind}, and registered as {declared.get(name)}")
    if source.format in TEXTS or source.format == "orc":
        partitions = set(table.partition_by)
        registered = [(item.name, item.type) for item in table.fields if item.name not in partitions]
        if [pair for pair in scan.schema if pair[0] not in partitions] != registered:
            raise _LeftToSpark("it is read with other columns than were registered")
    for name, now, then in _differing_options(scan.options, source.options):
        raise _LeftToSpark(f"the option {name} is {now!r}, and was {then!r} when the source was registered")


def _differing_options(now: Mapping[str, str], then: Mapping[str, str]) -> Iterable[tuple[str, str | None, str | None]]:
    current = {name.lower(): text for name, text in now.items() if name.lower() not in _WITHOUT_MEANING}
    registered = {name.lower(): text for name, text in then.items() if name.lower() not in _WITHOUT_MEANING}
    for name in sorted(current.keys() | registered.keys()):
        if current.get(name) != registered.get(name):
            yield name, current.get(name), registered.get(name)
