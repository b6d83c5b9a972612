"""Simulated processes: each runs one operation at a time and stands still before any call to the store until told.

An operation runs in a greenlet, so that a history is decided by the scheduler alone and can be repeated exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

from spark_apps.timeline.log import Timeline
from tests.simulation.store import OK, Crash, Objects, SimulatedStore

_MOST_CALLS = 5_000


class Actor:
    """One process. ``skew`` is how far its clock is off, in seconds."""

    def __init__(self, name: str, objects: Objects, finished: Callable[[Actor, Any, Any], None]) -> None:
        self.name = name
        self.objects = objects
        self.finished = finished
        self.skew = 0.0
        self.store = SimulatedStore(objects, self._gate)
        self.timeline = self._fresh_timeline()
        self.doing: Any = None
        self.next_call: tuple[str, str] | None = None
        self._greenlet: greenlet | None = None

    @property
    def idle(self) -> bool:
        return self._greenlet is None

    def clock(self) -> float:
        return self.objects.now + self.skew

    def start(self, doing: Any, operation: Callable[[Actor], Any]) -> None:
        """Begins an operation, up to its first call to the store."""
        assert self.idle
        self.doing = doing
        self._greenlet = greenlet(lambda: self._run(operation))
        self._switch(None)

    @property
    def about_to_commit(self) -> bool:
        """Whether the next call writes a version of the log."""
        verb, key = self.next_call or ("", "")
        return verb == "create" and key.startswith("_index/timeline/")

    def go_on(self, calls: int | str | None = None, answer: str = OK) -> None:
        """Lets so many calls happen: all that are left without a number, or ``"commit"``: up to the next commit.

        :param answer: what becomes of the first of them.
        """
        done = 0
        while not self.idle and (not isinstance(calls, int) or done < calls):
            if calls == "commit" and self.about_to_commit:
                return
            self._switch(answer if done == 0 else OK)
            done += 1
            assert done < _MOST_CALLS, f"{self.doing} does not come to an end."

    def crash(self) -> None:
        """The process is gone, in the middle of what it did; a new one takes its place."""
        if self._greenlet is not None:
            self._greenlet.throw(GreenletExit)
            self._greenlet = None
        self.doing = None
        self.timeline = self._fresh_timeline()

    def _fresh_timeline(self) -> Timeline:
        timeline = Timeline(self.store, self.clock)
        timeline.sleep = self._sleep
        return timeline

    def _sleep(self, seconds: float) -> None:
        self.objects.now += seconds

    def _gate(self, verb: str, key: str) -> str:
        if self._greenlet is None or getcurrent() is not self._greenlet:
            return OK
        return self._greenlet.parent.switch((verb, key))

    def _switch(self, answer: str | None) -> None:
        assert self._greenlet is not None
        self.next_call = self._greenlet.switch() if answer is None else self._greenlet.switch(answer)
        if self._greenlet is not None and self._greenlet.dead:
            self._greenlet = None
            self.doing = None

    def _run(self, operation: Callable[[Actor], Any]) -> None:
        try:
            result = operation(self)
        except Crash:
            self.timeline = self._fresh_timeline()
        except Exception as error:  # noqa: BLE001 - what may be raised is judged by the checker
            self.finished(self, None, error)
        else:
            self.finished(self, result, None)
