"""Threads that read from stores for the page, few at a time, and never more patiently than a person would.

A store that hangs holds its thread, which nobody can take back; another one then takes its place, up to a bound. The
threads are daemons, so that a hanging store does not keep the API server from ending.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from spark_apps.storage.errors import StorageUnavailable

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
        """Runs a call as soon as a thread is free. What it raises, the future raises."""
        future: Future[T] = Future()
        with self._lock:
            self._queue.put((future, call))
            self._waiting += 1
            self._hire()
        return future

    def nudge(self) -> None:
        """Starts threads in place of those that got stuck meanwhile."""
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
