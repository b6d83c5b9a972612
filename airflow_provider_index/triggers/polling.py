"""Shared polling: one look a round for all triggers of one event loop that wait for the same table.

A poller opens its table once, asks it the shared question in a thread, lets every waiting trigger check the answer
there, and hands each its result, or the error that it alone met. It ends with the last of them. Where the table
cannot be opened or asked it is tried again, through a connection that is read anew: a fault that may pass comes as
:class:`StorageUnavailable`, and as itself only once it has lasted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from spark_apps.jobs.job import describe_error
from spark_apps.storage.errors import JobFailed, LakeIndexError, LogDamaged, NotFound, StorageUnavailable
from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline

_PATIENCE_SECONDS = 300.0
"""For how long a table that cannot be opened for another reason than its store is tried again: an Airflow that does not
hand out its connection now, for instance."""

# Requests of many tables go out side by side; each table is one request at a time.
_THREADS = 16

_SOONEST_SECONDS = 1.0
_SHARE_WAITED = 1 / 20

R = TypeVar("R")
S = TypeVar("S")


@dataclass(eq=False)
class _Waiter(Generic[S]):
    check: Callable[[S], Any]
    interval: Callable[[float], float]
    since: float
    answers: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)


class Poller(Generic[R, S]):
    """Polls one table with one question, as long as a trigger waits for its answer.

    :param open_: opens the table; runs in the event loop, where connections can be read.
    :param ask: the shared question; runs in a thread.
    """

    def __init__(self, open_: Callable[[], Awaitable[R]], ask: Callable[[R], S]) -> None:
        self._open = open_
        self._ask = ask
        self._opened: R | None = None
        self._waiters: list[_Waiter[S]] = []
        self._task: asyncio.Task[None] | None = None
        self._joined = asyncio.Event()
        self._failing_since: float | None = None

    def join(self, waiter: _Waiter[S]) -> None:
        self._waiters.append(waiter)
        self._joined.set()
        if self._task is None:
            self._task = asyncio.create_task(self._rounds())

    def leave(self, waiter: _Waiter[S]) -> bool:
        """Return whether that was the last."""
        self._waiters.remove(waiter)
        if not self._waiters and self._task is not None:
            self._task.cancel()
            self._task = None
        return not self._waiters

    async def _rounds(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiters:
            started = loop.time()
            present = list(self._waiters)
            for waiter, answer in zip(present, await self._round(present), strict=True):
                waiter.answers.put_nowait(answer)
            await self._pause(started)

    async def _pause(self, started: float) -> None:
        """Until the next round is due to one of those who wait. Who joins meanwhile may be in more of a hurry."""
        loop = asyncio.get_running_loop()
        while self._waiters:
            now = loop.time()
            remaining = started - now + min(waiter.interval(now - waiter.since) for waiter in self._waiters)
            if remaining <= 0:
                return
            self._joined.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._joined.wait(), remaining)

    async def _round(self, waiters: list[_Waiter[S]]) -> list[Any]:
        """Return the result of each of them, or the error that it met."""
        try:
            if self._opened is None:
                self._opened = await self._open()
            answers = await asyncio.get_running_loop().run_in_executor(_pool(), self._check, self._opened, waiters)
        except Exception as error:  # noqa: BLE001 - it is handed to everybody who waits
            self._opened = None
            return [self._may_pass(error)] * len(waiters)
        self._failing_since = None
        return answers

    def _may_pass(self, error: Exception) -> Exception:
        """Return the error of a round, as one that may pass unless it is known not to, or has lasted."""
        if isinstance(error, StorageUnavailable | NotFound | LogDamaged):
            return error
        now = asyncio.get_running_loop().time()
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since >= _PATIENCE_SECONDS:
            return error
        return StorageUnavailable(f"{describe(error)} It is tried again.")

    def _check(self, opened: R, waiters: list[_Waiter[S]]) -> list[Any]:
        shared = self._ask(opened)
        answers: list[Any] = []
        for waiter in waiters:
            try:
                answers.append(waiter.check(shared))
            except Exception as error:  # noqa: BLE001 - it is this waiter's own, and goes back alone
                answers.append(error)
        return answers


_POLLERS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, Poller[Any, Any]]] = WeakKeyDictionary()
_POOL: list[ThreadPoolExecutor] = []


@asynccontextmanager
async def polled(
    key: Hashable,
    open_: Callable[[], Awaitable[R]],
    ask: Callable[[R], S],
    check: Callable[[S], Any],
    interval: float | Callable[[float], float],
) -> AsyncIterator[AsyncIterator[Any]]:
    """Join the poller of ``key``; what ``check`` finds comes once a round.

    :param key: whose look is shared: everything with an equal key asks the same of the same table.
    :param check: is given the shared answer, in a thread, one waiter of the table after the other.
    :param interval: seconds between two rounds at most, or what gives them for the seconds waited so far; the shortest
        of those who wait counts.
    """
    loop = asyncio.get_running_loop()
    pollers = _POLLERS.setdefault(loop, {})
    poller = pollers.setdefault(key, Poller(open_, ask))
    waiter: _Waiter[S] = _Waiter(check, interval if callable(interval) else lambda _: interval, loop.time())
    poller.join(waiter)

    async def answers() -> AsyncIterator[Any]:
        while True:
            yield await waiter.answers.get()

    try:
        yield answers()
    finally:
        if poller.leave(waiter):
            pollers.pop(key, None)


def sooner_at_first(longest: float, waited: float) -> float:
    """Return the seconds until the next look at something that is over in seconds or in hours.

    A twentieth of what was waited, so that no answer comes later than by that share of its time; one second at
    least, ``longest`` at most.
    """
    return min(longest, max(_SOONEST_SECONDS, waited * _SHARE_WAITED))


def load_watched(store: Store) -> Timeline:
    """Return a table's log, for later looks that find out whether it is still this one.

    :raises TableNotFound: :raises LogVanished:
    """
    timeline = Timeline.load(store)
    timeline.identity  # noqa: B018 - read now, so that a later look can compare
    return timeline


def describe(error: Exception) -> str:
    """Return an error for a person: what one of ours says, else its class as well."""
    return str(error) if isinstance(error, LakeIndexError) else f"{type(error).__name__}: {error}."


def as_event(error: Exception) -> dict[str, Any]:
    """Return the event by which a trigger hands an error to its task, as JSON types."""
    lake_error = (
        error if isinstance(error, LakeIndexError) else JobFailed(f"Waiting for it failed with {describe(error)}")
    )
    return {"status": "error", "error": msgspec.to_builtins(describe_error(lake_error))}


def _pool() -> ThreadPoolExecutor:
    if not _POOL:
        _POOL.append(ThreadPoolExecutor(_THREADS, thread_name_prefix="index-polling"))
    return _POOL[0]
