"""Triggers for asset watchers: an event for every commit of a table, and of a source that others write.

They are for ``AssetWatcher``, run as long as a DAG is scheduled by the asset, and end never. Where they have got to is
kept in Airflow's asset state store (3.3 and newer) behind the events sent, so that a restart repeats rather than loses.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_provider_index import metrics
from airflow_provider_index.arguments import SerializesArguments, declares_arguments, some_texts
from airflow_provider_index.assets import commit_event
from airflow_provider_index.compat import ask_supervisor
from airflow_provider_index.conditions import changes_rows, touches
from airflow_provider_index.hooks.table_store import TableStoreHook
from airflow_provider_index.source_state import SourceState, source_state
from airflow_provider_index.triggers.polling import describe, load_watched
from spark_apps.layout.partitions import canonical
from spark_apps.storage.errors import InvalidInput, TableNotFound
from spark_apps.storage.store import Store
from spark_apps.timeline.locations import Warehouse
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import Receipt

_SETTLED_SECONDS = 10.0
"""An event counts as kept by Airflow so long after it was sent; only then may a restart begin behind it."""

_LONGEST_PAUSE = 300.0


class TableEventTrigger(SerializesArguments, BaseEventTrigger):
    """Base class of both: looks at a table from time to time, sends what is new, and notes how far that went.

    A table that is not there is waited for. So is a store that does not answer: looks become rarer, up to one in five
    minutes, and the log says why.

    :param table: URI, absolute path, or name below the connection's warehouse.
    :param poll_interval: seconds between two checks.
    """

    kind: ClassVar[str]
    before_all: ClassVar[Any] = None
    """The mark that everything of a table made later is behind."""
    more: bool = False
    """Whether the last look has left some for the next one, which follows at once."""

    @declares_arguments
    def __init__(
        self, *, table: str, table_conn_id: str = TableStoreHook.default_conn_name, poll_interval: float = 15.0
    ) -> None:
        super().__init__()
        if not self.poll_interval:
            raise InvalidInput("poll_interval is 0.", hint="Give seconds above 0.")

    # --- what a trigger of its own says -----------------------------------------------------------------------

    def new_events(self, mark: Any) -> tuple[list[dict[str, Any]], Any]:
        """Return payloads of what is new since ``mark`` (``None`` at the very first look), and the mark behind them."""
        raise NotImplementedError

    # --- what they share --------------------------------------------------------------------------------------

    async def run(self) -> AsyncIterator[TriggerEvent]:
        memory = _Memory(self)
        while (loaded := await memory.load()) is None:
            await asyncio.sleep(self.poll_interval)  # to begin anywhere else would lose what landed meanwhile
        mark = kept = loaded.mark
        settling = _Settling()
        failed = 0
        missing = connected = False
        while True:
            self.more = False
            try:
                if not connected:
                    await ask_supervisor(self.connect)
                    connected = True
                payloads, now = await asyncio.to_thread(self.new_events, mark)
                failed = 0
                missing = False
            except TableNotFound as error:
                if not missing:
                    self.log.info("%s It is waited for.", error)
                missing, failed = True, 0
                payloads, now = [], self.before_all if mark is None else mark
            except Exception as error:  # noqa: BLE001 - a watcher never ends: it says what it met, and looks again
                self.log.warning("%s", describe(error))
                self._count("watch_failures")
                failed += 1
                connected = False
                payloads, now = [], mark
            for payload in payloads:
                self._count("events")
                yield TriggerEvent(payload)
            if now != mark:
                settling.add(now, sent=bool(payloads))
            mark, settled = now, settling.newest()
            if settled != kept and settled is not None:
                kept = settled if await memory.save(settled) else kept
            if self.more:
                continue
            await asyncio.sleep(min(self.poll_interval * 2 ** min(failed, 10), max(_LONGEST_PAUSE, self.poll_interval)))

    def _count(self, name: str) -> None:
        metrics.count(name, trigger=type(self).__name__, table=metrics.label(self.table))

    def connect(self) -> None:
        """Find the table's log. :raises LakeIndexError: it is not there (yet)."""
        hook = TableStoreHook(self.table_conn_id)
        self._location = hook.locate(self.table)
        self._options = hook.storage_options
        self._root = hook.warehouse
        self._timeline: Timeline | None = None

    def timeline(self) -> Timeline:
        """Return the table's log, read to its end; another object where the log was deleted and begun anew.

        :raises TableNotFound: :raises LogVanished:
        """
        if self._timeline is not None and self._timeline.is_replaced():
            self._timeline = None
        if self._timeline is None:
            log = Warehouse(self._root, self._options).log_of(self._location)
            self._timeline = load_watched(log or Store(self._location, self._options))
        else:
            self._timeline.refresh()
        return self._timeline


def _operations(name: str, given: Any) -> list[str] | None:
    """Return names in one order: equal watchers are known by their arguments."""
    named = some_texts(name, given)
    return None if named is None else sorted(named)


class CommitEventTrigger(TableEventTrigger):
    """Fires once for every commit of a table.

    ::

        trigger = CommitEventTrigger(table="shop.orders", operations=["upsert"], partition="dt=2026-11-11")
        orders = table_asset("shop.orders", watchers=[AssetWatcher(name="orders", trigger=trigger)])

    The payload is that of :func:`airflow_provider_index.assets.commit_event`.

    It starts after the commit that is the newest when it first reads the log; for a table that is created later, at
    the first commit. A commit that is repeated after a restart of the triggerer has the same ``commit``.

    :param operations: only these (``upsert``, ``refresh_index`` …). By default, those that change rows, so that a
        refresh or compaction that an event starts does not send another event; ``["*"]`` for every commit, including
        windows and expiries.
    :param partition: only commits that wrote into this partition, as a path (``dt=2024-11-11``).
    :param after_version: start after this version instead.
    """

    kind = "commit"
    before_all = -1

    @declares_arguments
    def __init__(
        self,
        *,
        operations: Annotated[Sequence[str] | None, _operations] = None,
        partition: str | None = None,
        after_version: int | None = None,
        **shared: Any,
    ) -> None:
        super().__init__(**shared)

    def new_events(self, mark: Any) -> tuple[list[dict[str, Any]], Any]:
        timeline = self.timeline()
        head, log = timeline.head.version, timeline.identity
        if mark is None:
            after = head if self.after_version is None else self.after_version
        else:
            # Watchers of an earlier version of this package kept the number of the version alone.
            after, of_log = (mark, log) if isinstance(mark, int) else (mark["version"], mark["log"])
            if after > head or of_log != log:
                self.log.warning("The log of %s was made anew; all its commits are sent.", self._location)
                after = -1
        of = None if self.partition is None else canonical(timeline.head.table, self.partition)
        commits = [commit for commit in timeline.commits(after=after) if self._is_watched(commit, of)]
        events = [commit_event(Receipt.of(commit).to_dict(), self._location) for commit in commits]
        return events, {"version": head, "log": log}

    def _is_watched(self, commit: Any, partition: str | None) -> bool:
        if self.operations is None:
            named = changes_rows(commit)
        else:
            named = "*" in self.operations or commit.operation in self.operations
        return named and (partition is None or touches(commit, partition))


class SourceEventTrigger(TableEventTrigger):
    """Fires once for every commit of a registered source, which others write.

    ::

        trigger = SourceEventTrigger(table="s3://lake/raw/riders", table_conn_id="lake", poll_interval=60)
        riders = table_asset("s3://lake/raw/riders", watchers=[AssetWatcher(name="riders", trigger=trigger)])

    Of a Delta, Iceberg or Hudi table each commit that its own log lists makes an event, in order. Where the log lists
    some no more, an event with the operation "gap" says between which versions they were. A watcher begins behind the
    version that the log of the indexes has; then it goes on from its own mark, whatever a refresh has taken in.

    Plain files have no commits: their list, with size and time, is compared with that of the log. One event is sent
    for each state that the log does not know; all changes between two checks make one event. After a refresh, there is
    nothing to report.

    The payload: ``commit`` (an id of the commit, or of the state of the files), ``operation`` ("source" or "gap"),
    ``table``, ``format``, ``version`` (of the source, ``None`` for plain files), ``source_operation`` (in the format's
    words), ``instant``, ``sequence``, ``completion``, and the counts that the log says: ``files_added``,
    ``files_removed``, ``rows_added`` and so on. A gap has ``from_version``, ``to_version`` and ``why``; plain files
    have ``partitions``, the first 100 that changed.

    :param partition: of plain files, only changes below this partition's folder.
    """

    kind = "source"

    @declares_arguments
    def __init__(self, *, partition: str | None = None, **shared: Any) -> None:
        super().__init__(**shared)

    def connect(self) -> None:
        super().connect()
        self._source: tuple[Timeline, SourceState] | None = None

    def new_events(self, mark: Any) -> tuple[list[dict[str, Any]], Any]:
        timeline = self.timeline()
        state = timeline.head
        if self._source is None or self._source[0] is not timeline:
            self._source = timeline, source_state(state, timeline.store.uri, self._options, self.partition)
        news = self._source[1].news(state, mark)
        self.more = news.more
        return [{**event, "table": self._location, "index": None} for event in news.events], news.mark


class _Settling:
    """Marks of a watcher: the newest whose events Airflow has kept for sure, and those that wait until it has.

    A table may get commits faster than an event settles, so each mark is counted from its own events on: the newest
    that has settled is what a restart may begin at.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, Any]] = deque()
        self._sent_at = -math.inf
        self._settled: Any = None

    def add(self, mark: Any, *, sent: bool) -> None:
        """Add a mark that has been reached.

        :param sent: whether events were sent before this mark, and behind the one before.
        """
        if sent:
            self._sent_at = time.monotonic()
        elif self._waiting and self._waiting[-1][0] == self._sent_at:
            self._waiting.pop()  # nothing was sent between the two: the newer one counts for both
        self._waiting.append((self._sent_at, mark))

    def newest(self) -> Any:
        """Return the newest mark that has settled; ``None`` if none has."""
        while self._waiting and time.monotonic() - self._waiting[0][0] >= _SETTLED_SECONDS:
            self._settled = self._waiting.popleft()[1]
        return self._settled


def _key(*parts: Any) -> str:
    text = json.dumps(parts, sort_keys=True)
    return f"lakeindex.watch.{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@dataclass(frozen=True)
class _Kept:
    """Answer of the memory: a mark, or ``None`` where nothing is kept yet."""

    mark: Any


class _Memory:
    """Store of a trigger's mark, which is kept with every asset that it watches.

    Of several assets with one and the same watcher any may go, and take with it what is kept with it; one that comes
    back holds an old mark. So each mark has its time, and the newest counts.
    """

    def __init__(self, trigger: TableEventTrigger) -> None:
        self._log = trigger.log
        self._store = getattr(trigger, "asset_state_store", None)
        path, arguments = trigger.serialize()
        # How often it looks does not change what it has seen; it once was part of the key.
        self._key = _key(trigger.kind, path, {name: arguments[name] for name in arguments if name != "poll_interval"})
        self._old_key = _key(trigger.kind, path, arguments)

    async def load(self) -> _Kept | None:
        """Return the mark, or ``None`` if Airflow cannot say now."""
        marks = []
        try:
            for store in self._stores():
                kept = await store.aget(self._key)  # None of an asset that is gone, too
                kept = await store.aget(self._old_key) if kept is None else kept
                if kept is not None:
                    marks.append(_mark_of(kept))
        except AirflowRuntimeError as error:
            self._log.warning("Where this watcher had got to cannot be read, and is asked for again: %s", error)
            return None
        # Of equal times the first by name: earlier versions of this package kept it there, without a time.
        return _Kept(max(marks, key=lambda one: one[0])[1] if marks else None)

    async def save(self, mark: Any) -> bool:
        """Note a mark; whether it did. One that is not noted is tried again, and at worst events come twice."""
        stores = self._stores()
        if not stores or mark is None:
            return True
        saved, failure = 0, None
        for store in stores:
            try:
                await store.aset(self._key, {"mark": mark, "at": time.time()})
                saved += 1
            except AirflowRuntimeError as error:
                failure = error
        if not saved:
            self._log.warning("Where this watcher has got to could not be kept: %s", failure)
        return saved > 0

    def _stores(self) -> list[Any]:
        """Return the stores of the assets that this trigger is watched by, in the order of their names."""
        by_name = {} if self._store is None else getattr(self._store, "_by_name", None) or {}
        return [by_name[name] for name in sorted(by_name)]


def _mark_of(kept: Any) -> tuple[float, Any]:
    """Return when a mark was noted, and the mark; earlier versions of this package kept the mark alone."""
    if isinstance(kept, dict) and kept.keys() == {"mark", "at"}:
        return float(kept["at"]), kept["mark"]
    return 0.0, kept
