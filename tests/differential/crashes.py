"""Lets a process die at one of its calls to the store: nothing in it may catch that, and no later call gets through."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.transactions import abort, live_requests
from tests.simulation.store import Crash

CALLS = ("get", "get_range", "head", "put", "create", "list", "delete")


@contextlib.contextmanager
def dying_at(call: int, after: bool) -> Iterator[None]:
    """The call with this number (from 1) is the last one; it still has its effect if ``after``.

    :raises tests.simulation.store.Crash: out of whatever was being done.
    """
    made = 0
    whole = {verb: getattr(Store, verb) for verb in CALLS}

    def counting(effect: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal made
            made += 1
            if made > call or (made == call and not after):
                raise Crash
            result = effect(*args, **kwargs)
            if made >= call:
                raise Crash
            return result

        return counted

    for verb, effect in whole.items():
        setattr(Store, verb, counting(effect))
    try:
        yield
    finally:
        for verb, effect in whole.items():
            setattr(Store, verb, effect)


def end_what_died(timeline: Timeline) -> None:
    """As a worker does for a driver that died: nobody after it need wait until its lease has run out."""
    for request in live_requests(timeline):
        abort(timeline, request.txn_id, request.attempt, "its process died")
