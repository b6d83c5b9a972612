"""The tables behind one connection, as the page may see them: those below its warehouse, and those that it lists.

A table's address comes from the browser, so it is held against the warehouse and the list before any store is asked.
Reading makes nothing: not even the folder of a local warehouse that this machine does not have.
"""

from __future__ import annotations

import json
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import xxhash

from airflow_provider_index.hooks.table_store import TableStoreHook, is_address
from airflow_provider_index.ui.limits import MAX_FOLDERS, STUCK_SECONDS
from spark_apps.storage.errors import (
    InvalidInput,
    InvalidName,
    LakeIndexError,
    StorageError,
    StorageUnavailable,
    TableNotFound,
)
from spark_apps.storage.secrets import hide, hide_address, known_secrets
from spark_apps.storage.store import Store
from spark_apps.timeline.catalog_names import NAMES, CatalogName, find_all, is_plain
from spark_apps.timeline.limits import MAX_NAME_PARTS
from spark_apps.timeline.locations import LOGS_OF_SOURCES, Warehouse, locate
from spark_apps.timeline.log import commit_key

T = TypeVar("T")


class Readers:
    """Runs calls on at most ``threads`` threads, and on up to four times as many while some are stuck."""

    def __init__(self, threads: int = 8) -> None:
        self.threads = threads
        self._queue: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._running: dict[Future[Any], float] = {}
        self._started = 0
        self._waiting = 0
        self._lock = threading.Lock()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Run a call as soon as a thread is free. What it raises, the future raises."""
        future: Future[T] = Future()
        with self._lock:
            self._queue.put((future, call))
            self._waiting += 1
            self._hire()
        return future

    def nudge(self) -> None:
        """Start threads in place of those that got stuck meanwhile."""
        with self._lock:
            self._hire()

    def _hire(self) -> None:
        now = time.monotonic()
        stuck = sum(now - since > STUCK_SECONDS for since in self._running.values())
        idle = self._started - len(self._running)
        if idle < self._waiting and self._started < min(self.threads + stuck, 4 * self.threads):
            self._started += 1
            threading.Thread(target=self._work, name="lakeindex-page", daemon=True).start()

    def _work(self) -> None:
        while True:
            future, call = self._queue.get()
            with self._lock:
                self._waiting -= 1
                self._running[future] = time.monotonic()
            try:
                if future.set_running_or_notify_cancel():
                    self._run(future, call)
            finally:
                with self._lock:
                    del self._running[future]

    @staticmethod
    def _run(future: Future[Any], call: Callable[[], Any]) -> None:
        try:
            future.set_result(call())
        except Exception as error:  # noqa: BLE001 - it is not swallowed: whoever asks the future gets it
            future.set_exception(error)
        except BaseException as error:  # noqa: BLE001 - a panic of a native library; the thread works on
            future.set_exception(StorageUnavailable(f"The reading ended in {type(error).__name__}."))


# --- The tables behind one connection -------------------------------------------------------------------------------


_PATIENCE = {"connect_timeout": "3s", "timeout": "10s"}
"""Of the HTTP client, unless the connection says otherwise."""

_ID = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_NOT_IN_NAMES = frozenset("/\\\0\n%?#")


@dataclass(frozen=True)
class TableName:
    """A table that the page shows.

    :param name: in the warehouse (``db.table``); of another its folder's.
    :param location: that of the log.
    :param outside: whether it is outside of the warehouse, in the connection's list.
    """

    name: str
    location: str
    outside: bool = False

    @property
    def link(self) -> str:
        """Address that links of the page carry: the location, or the name where the location holds a secret."""
        return self.location if hide_address(self.location) == self.location else self.name


@dataclass(frozen=True)
class Lake:
    """Tables of one connection.

    :param options: of the store; may hold secrets.
    :param listed: addresses outside of the warehouse that the connection lists.
    """

    conn_id: str
    root: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    listed: tuple[str, ...] = ()

    @classmethod
    def of(cls, conn_id: str) -> Lake:
        """Read the connection.

        :raises InvalidInput: if there is none, or if it is not well formed.
        :raises InvalidName: if it names no warehouse.
        """
        hook = TableStoreHook(conn_id)
        if not hook.warehouse:
            raise InvalidName(f"The connection {conn_id!r} names no warehouse.", hint="Fill it in to see its tables.")
        store = Store(hook.warehouse)
        patience = _PATIENCE if "://" in store.uri else {}
        return cls(conn_id, store.uri, {**patience, **hook.storage_options}, hook.listed_tables)

    @property
    def identity(self) -> str:
        """Identify what is read in caches: by another warehouse, option or password it is another lake."""
        identity_text = json.dumps(
            [self.conn_id, self.root, dict(self.options), self.listed], sort_keys=True, default=str
        )
        return xxhash.xxh3_128_hexdigest(identity_text.encode())

    def tables(self, many: Readers, seconds: float) -> list[TableName]:
        """List every table of the warehouse and of the list, by name.

        They are found as :meth:`~spark_apps.timeline.locations.Warehouse.tables` finds them, but many folders at once:
        those of catalogs by their names, which the warehouse keeps.
        A folder that gives no answer, or a bad one, is taken for a table that cannot be read.

        :param many: threads that ask. :param seconds: how long one level of folders may take.
        :raises StorageUnavailable: if the warehouse itself cannot be listed.
        """
        self._check_there()
        root = Store(self.root, self.options)
        by_location = {one.location: one for one in self._named(root, many, seconds)}
        for table in self._below(root, [], many, seconds):
            by_location.setdefault(table.location, table)
        for table in self._outside(many, seconds):
            by_location.setdefault(table.location, table)
        return sorted(by_location.values(), key=lambda table: (table.name, table.location))

    def find(self, table: str) -> tuple[TableName, Store]:
        """Return a table by the location or name that a request gives, and the store of its log.

        :raises InvalidName: if it is neither below the warehouse nor in the list.
        :raises TableNotFound: if there is none.
        """
        for location in self._listed_at(table):
            if self._has_log(location):
                return TableName(_last(location), location, True), Store(location, self.options)
        parts = self._parts_below(table)
        self._check_there()
        root = Store(self.root, self.options)
        if not is_address(table):
            folder = root.below("/".join(parts)).uri if is_plain(table) else None
            named = Warehouse(self.root, self.options).log_by_name(table, folder)
            if named is not None:
                return TableName(str(CatalogName.parse(table)), named), Store(named, self.options)
        beside = [*parts[:-1], LOGS_OF_SOURCES, parts[-1]]
        for path in (parts, beside):
            if root.head(f"{'/'.join(path)}/{commit_key(0)}") is not None:
                log = root.below("/".join(path))
                return TableName(_name_of(path), log.uri), log
        raise TableNotFound(f"There is no table {'.'.join(parts)} below the warehouse of {self.conn_id!r}.")

    def log(self, table: TableName) -> Store:
        """Return the store of the log of a table that was listed.

        :raises TableNotFound: if its folder has gone since.
        """
        if table.outside and not self._has_log(table.location):
            raise StorageUnavailable(f"There is no table at {table.location}, which the connection lists.")
        if "://" not in table.location and not Path(table.location).is_dir():
            raise TableNotFound(f"There is no table at {table.location} any more.")
        return Store(table.location, self.options)

    def reason(self, error: BaseException) -> str:
        """Return what to say of an error, without anything of the connection that may be secret."""
        text = error.message if isinstance(error, LakeIndexError) else type(error).__name__
        return hide(text, known_secrets(self.options))

    def _named(self, root: Store, many: Readers, seconds: float) -> Iterator[TableName]:
        """Yield the tables of catalogs; a name whose file cannot be believed is one of a table that cannot be read."""
        call = many.submit(lambda: list(find_all(root)))
        wait([call], seconds)
        if not call.done() or call.exception() is not None:
            yield TableName(NAMES, root.below(NAMES).uri)
            return
        for name, said in call.result():
            unread = f"{root.below(NAMES).uri}/{name}"
            yield TableName(name, unread if isinstance(said, LakeIndexError) else Store(said.log).uri)

    def _below(self, root: Store, parts: list[str], many: Readers, seconds: float) -> Iterator[TableName]:
        paths: list[list[str]] = []
        for name in root.folders("/".join(parts)):
            if name == LOGS_OF_SOURCES:
                try:
                    paths += [[*parts, name, source] for source in root.folders("/".join([*parts, name]))]
                except StorageError:
                    yield TableName(_name_of([*parts, name]), root.below("/".join([*parts, name])).uri)
            elif not name.startswith(("_", ".")):
                paths.append([*parts, name])
        answers = [many.submit(partial(root.head, f"{'/'.join(path)}/{commit_key(0)}")) for path in paths]
        wait(answers, seconds)
        for path, answer in zip(paths, answers, strict=True):
            odd = not answer.done() or answer.exception() is not None
            if odd or answer.result() is not None:
                yield TableName(_name_of(path), root.below("/".join(path)).uri)
            elif LOGS_OF_SOURCES not in path and len(path) < MAX_FOLDERS:
                try:
                    yield from self._below(root, path, many, seconds)
                except StorageError:  # as of a table that cannot be read, the page says why
                    yield TableName(_name_of(path), root.below("/".join(path)).uri)

    def _outside(self, many: Readers, seconds: float) -> list[TableName]:
        """Return the tables of the list; an address without one is taken for a table that cannot be read."""
        calls = [many.submit(partial(self._logs_of, address)) for address in self.listed]
        wait(calls, seconds)
        tables = []
        for address, call in zip(self.listed, calls, strict=True):
            answered = call.done() and call.exception() is None
            locations = call.result() if answered else []
            if not locations and not (answered and _last(address) == LOGS_OF_SOURCES):
                locations = [address]  # a folder of logs may be empty; what else is listed is a table
            tables += [TableName(_last(location), location, True) for location in locations]
        return tables

    def _logs_of(self, address: str) -> list[str]:
        """Return the locations of the logs at an address of the list."""
        if _last(address) != LOGS_OF_SOURCES:
            return [location for location in _log_locations(address) if self._has_log(location)][:1]
        if "://" not in address and not Path(address).is_dir():
            return []
        locations = (f"{address}/{name}" for name in Store(address, self.options).folders(""))
        return [location for location in locations if self._has_log(location)]

    def _has_log(self, location: str) -> bool:
        if "://" not in location and not Path(location).is_dir():
            return False
        return Store(location, self.options).head(commit_key(0)) is not None

    def _listed_at(self, table: str) -> list[str]:
        """Return the locations that the list allows for an address of a request, without asking a store."""
        if not is_address(table) or ".." in table.split("/"):
            return []
        location = Store(table).uri.rstrip("/")
        for address in self.listed:
            if _last(address) == LOGS_OF_SOURCES:
                for log in _log_locations(location):
                    if log.startswith(f"{address}/") and not set(log[len(address) + 1 :]) & _NOT_IN_NAMES:
                        return [log]
            elif location in (address, *_log_locations(address)):
                return _log_locations(address)
        return []

    def _parts_below(self, table: str) -> list[str]:
        outside = InvalidName(
            f"{table!r} does not lie below the warehouse of the connection {self.conn_id!r}, nor in its list.",
            hint="Give the connection whose warehouse holds it, or add its address to the connection's listed_tables.",
        )
        if not is_address(table) and not is_plain(table):
            return list(CatalogName.parse(table).parts)
        if is_address(table):
            location = Store(table).uri
            if not location.startswith(f"{self.root.rstrip('/')}/"):
                raise outside
            parts = location[len(self.root.rstrip("/")) + 1 :].rstrip("/").split("/")
        else:
            parts = table.split(".")
        usable = all((part and not part.startswith((".", "_"))) or part == LOGS_OF_SOURCES for part in parts)
        deepest = MAX_NAME_PARTS + 1 if parts[0] == LOGS_OF_SOURCES else MAX_FOLDERS + (LOGS_OF_SOURCES in parts)
        if not usable or len(parts) > deepest or any(set(part) & _NOT_IN_NAMES for part in parts):
            raise outside
        return parts

    def _check_there(self) -> None:
        if "://" not in self.root and not Path(self.root).is_dir():
            raise StorageUnavailable(f"The API server's machine has no folder {self.root}.")


def _log_locations(address: str) -> list[str]:
    """Return where the log of a table at an address can be: there, or where that of a source is by rule."""
    try:
        return [address, locate(address).default_log()]
    except InvalidInput:  # it is in no folder that could hold a log
        return [address]


def _last(location: str) -> str:
    return location.rstrip("/").rpartition("/")[2]


def _name_of(path: list[str]) -> str:
    if path[0] == LOGS_OF_SOURCES and len(path) > 2:  # of a catalog's table, whose log is called after its id too
        path = [*path[:-1], _ID.sub("", path[-1])]
    return ".".join(part for part in path if part != LOGS_OF_SOURCES)
