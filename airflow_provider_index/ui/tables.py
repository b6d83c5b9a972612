"""The tables behind one connection, as the page may see them: those below its warehouse, and nothing else.

A table's address comes from the browser, so it is held against the warehouse before any store is asked. Reading makes
nothing: not even the folder of a local warehouse that this machine does not have.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import xxhash

from airflow_provider_index.hooks.table_store import TableStoreHook
from spark_apps.storage.errors import InvalidName, LakeIndexError, StorageUnavailable, TableNotFound
from spark_apps.storage.secrets import hide, known_secrets
from spark_apps.storage.store import Store
from spark_apps.timeline.locations import LOGS_OF_SOURCES
from spark_apps.timeline.log import commit_key

T = TypeVar("T")

STUCK_SECONDS = 10.0
"""A call that has run for so long no longer counts against the number of threads."""


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

_DEEPEST = 3
"""How many folders the name of a table can have: catalog, database, table."""


@dataclass(frozen=True)
class TableName:
    """A table of a warehouse: its name (``db.table``), and its location as the page's links carry it."""

    name: str
    location: str


@dataclass(frozen=True)
class Lake:
    """Tables of one connection.

    :param options: of the store; may hold secrets.
    """

    conn_id: str
    root: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

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
        return cls(conn_id, store.uri, {**patience, **hook.storage_options})

    @property
    def identity(self) -> str:
        """Identify what is read in caches: by another warehouse, option or password it is another lake."""
        identity_text = json.dumps([self.conn_id, self.root, dict(self.options)], sort_keys=True, default=str)
        return xxhash.xxh3_128_hexdigest(identity_text.encode())

    def tables(self, many: Readers, seconds: float) -> list[TableName]:
        """List every table of the warehouse, by name.

        They are found as :meth:`~spark_apps.timeline.locations.Warehouse.tables` finds them, but many folders at once.
        A folder that gives no answer, or a bad one, is taken for a table that cannot be read.

        :param many: threads that ask. :param seconds: how long one level of folders may take.
        :raises StorageUnavailable: if the warehouse itself cannot be listed.
        """
        self._check_there()
        return sorted(self._below(Store(self.root, self.options), [], many, seconds), key=lambda table: table.name)

    def find(self, table: str) -> tuple[TableName, Store]:
        """Return a table by the location or name that a request gives, and the store of its log.

        :raises InvalidName: if it does not lie below the warehouse. :raises TableNotFound: if there is none.
        """
        parts = self._parts_below(table)
        self._check_there()
        root = Store(self.root, self.options)
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
        if "://" not in table.location and not Path(table.location).is_dir():
            raise TableNotFound(f"There is no table at {table.location} any more.")
        return Store(table.location, self.options)

    def reason(self, error: BaseException) -> str:
        """Return what to say of an error, without anything of the connection that may be secret."""
        text = error.message if isinstance(error, LakeIndexError) else type(error).__name__
        return hide(text, known_secrets(self.options))

    def _below(self, root: Store, parts: list[str], many: Readers, seconds: float) -> Iterator[TableName]:
        paths: list[list[str]] = []
        for name in root.folders("/".join(parts)):
            if name == LOGS_OF_SOURCES:
                paths += [[*parts, name, source] for source in root.folders("/".join([*parts, name]))]
            elif not name.startswith(("_", ".")):
                paths.append([*parts, name])
        answers = [many.submit(partial(root.head, f"{'/'.join(path)}/{commit_key(0)}")) for path in paths]
        wait(answers, seconds)
        for path, answer in zip(paths, answers, strict=True):
            odd = not answer.done() or answer.exception() is not None
            if odd or answer.result() is not None:
                yield TableName(_name_of(path), root.below("/".join(path)).uri)
            elif LOGS_OF_SOURCES not in path and len(path) < _DEEPEST:
                yield from self._below(root, path, many, seconds)

    def _parts_below(self, table: str) -> list[str]:
        outside = InvalidName(
            f"{table!r} does not lie below the warehouse of the connection {self.conn_id!r}.",
            hint="The page shows tables of warehouses only: give the connection whose warehouse holds this one.",
        )
        if "://" in table or table.startswith(("/", "file:")):
            location = Store(table).uri
            if not location.startswith(f"{self.root.rstrip('/')}/"):
                raise outside
            parts = location[len(self.root.rstrip("/")) + 1 :].rstrip("/").split("/")
        else:
            parts = table.split(".")
        usable = all((part and not part.startswith((".", "_"))) or part == LOGS_OF_SOURCES for part in parts)
        if (
            not usable
            or len(parts) > _DEEPEST + (LOGS_OF_SOURCES in parts)
            or any(set(part) & set("/\\\0\n%?#") for part in parts)
        ):
            raise outside
        return parts

    def _check_there(self) -> None:
        if "://" not in self.root and not Path(self.root).is_dir():
            raise StorageUnavailable(f"The API server's machine has no folder {self.root}.")


def _name_of(path: list[str]) -> str:
    return ".".join(part for part in path if part != LOGS_OF_SOURCES)
