"""Stop-write windows: while one is open, only its holder commits in its scope.

Opening, renewing, closing and ending are commits. The epoch, the version that opened the window, is the holder's
fencing token: a holder that slept past its deadline and was replaced is refused by its epoch, whatever its clock shows.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable

from spark_apps.storage.errors import (
    AlreadyCommitted,
    DrainTimeout,
    InvalidInput,
    StopWriteWindowOpen,
    WindowNotOpen,
)
from spark_apps.timeline.commit import Intent, check_not_dropped, commit_changes, end_window, housekeeping
from spark_apps.timeline.limits import SILENT_WRITER_SECONDS, WINDOW_SECONDS
from spark_apps.timeline.log import Timeline, format_instant, seconds_of
from spark_apps.timeline.model import CloseWindow, OpenWindow, Receipt, RenewWindow, Requested, Scope
from spark_apps.timeline.operations import CLOSE_WINDOW, OPEN_WINDOW, RENEW_WINDOW
from spark_apps.timeline.state import State, Window
from spark_apps.timeline.transactions import abort, is_presumed_dead, live_requests

logger = logging.getLogger(__name__)

DEFAULT_AT_MOST = 6 * 3600.0


def open_window(
    timeline: Timeline,
    holder: str,
    *,
    partitions: Iterable[str] | None = None,
    seconds: float = WINDOW_SECONDS,
    at_most: float | None = None,
    txn_id: str | None = None,
) -> Window:
    """Open a window over the whole table, or over some partitions.

    ::

        window = open_window(timeline, "rescale of trips", partitions=["dt=2026-11-27"], seconds=600)

    :param holder: who holds it, for people.
    :param seconds: until its deadline, which renewals move.
    :param at_most: until its last moment, which nothing moves; six hours, or ``seconds`` if that is more.
    :param txn_id: names this opening; a retry gets the window it opened, while that is open.
    :raises StopWriteWindowOpen: if a window overlaps.
    :raises WindowNotOpen: if the retried opening's window has ended.
    :raises TableNotFound: if the table was dropped.
    """
    last = max(DEFAULT_AT_MOST, seconds) if at_most is None else at_most
    if not 0 < seconds <= last:
        raise InvalidInput(
            f"A window of {seconds} seconds with a last moment after {last} seconds cannot be opened.",
            hint="Give seconds > 0 and at_most >= seconds.",
        )
    named = (partitions,) if isinstance(partitions, str) else partitions  # never its letters
    scope = None if named is None else tuple(dict.fromkeys(named))
    if scope is not None and not scope:
        raise InvalidInput(
            "A window over no partition was asked for.", hint="Name partitions, or give None for the table."
        )
    _check_paths(timeline.refresh(), scope or ())
    while True:
        now = timeline.clock()
        action = OpenWindow(holder, now + seconds, now + last, scope, seconds)
        intent = housekeeping(OPEN_WINDOW, action, txn_id=txn_id, base=timeline.refresh().version)

        def guard(state: State, intent: Intent = intent) -> None:
            check_not_dropped(timeline, state, intent)
            _check_free(state, scope, timeline.clock())

        try:
            receipt = commit_changes(timeline, intent, guard)
        except _Expired as blocked:
            end_window(timeline, blocked.window, ended_by=holder)
            continue
        except AlreadyCommitted as error:
            receipt = error.receipt
        assert receipt.version is not None
        return find(timeline, receipt.version)


def _check_paths(state: State, paths: tuple[str, ...]) -> None:
    """Refuse a window over what is no partition's path, which would protect nothing.

    :raises InvalidInput: if a path is none.
    """
    names = () if state.definition is None else state.definition.partition_by
    for path in paths:
        parts = path.split("/")
        if names and (len(parts) != len(names) or not all(part.partition("=")[1] and part[0] != "=" for part in parts)):
            raise InvalidInput(
                f"{path!r} is not the path of a partition of this table; a window over it would protect nothing.",
                hint=f"Write it as {'/'.join(f'{name}=…' for name in names)}.",
            )


def open_for_try(
    timeline: Timeline,
    holder: str,
    name: str,
    *,
    partitions: Iterable[str] | None = None,
    seconds: float = WINDOW_SECONDS,
    at_most: float | None = None,
) -> Window:
    """Open a window for one try of some work; close first what an earlier try has left open.

    Each try has an epoch of its own: the earlier one is fenced off, and when it gives up it cannot close this window.

    :param name: of the work; begins the transaction ids of its openings.
    :raises StopWriteWindowOpen: if a window of another holder overlaps, or that of another try that came meanwhile.
    """
    for epoch in sorted(timeline.refresh().windows):
        [opening] = timeline.commits(after=epoch - 1, until=epoch)
        if opening.txn_id.partition(".")[0] != name:
            continue
        try:
            close(timeline, epoch)
        except WindowNotOpen as error:
            logger.info("%s", error.message)
        else:
            logger.info("Closed the window of epoch %s, which an earlier try of the work opened.", epoch)
    own_id = f"{name}.{secrets.token_hex(4)}"
    return open_window(timeline, holder, partitions=partitions, seconds=seconds, at_most=at_most, txn_id=own_id)


def renew(timeline: Timeline, epoch: int, seconds: float = WINDOW_SECONDS) -> Window:
    """Move the deadline to ``seconds`` from now, at most to the last moment.

    :raises WindowNotOpen: if the window has ended.
    """
    window = find(timeline, epoch)
    deadline = min(timeline.clock() + seconds, window.last_moment)
    if deadline <= window.deadline:
        return window
    intent = housekeeping(RENEW_WINDOW, RenewWindow(epoch, deadline), base=timeline.head.version)
    commit_changes(timeline, intent, lambda state: _check_open(timeline, state, epoch))
    return find(timeline, epoch)


def close(timeline: Timeline, epoch: int, txn_id: str | None = None) -> Receipt:
    """Close the holder's window. A retry under the same ``txn_id`` gets the receipt of its own close.

    :raises WindowNotOpen: if the epoch is not that of an open window.
    """
    intent = housekeeping(CLOSE_WINDOW, CloseWindow(epoch), txn_id=txn_id, base=timeline.refresh().version)
    try:
        return commit_changes(timeline, intent, lambda state: _check_open(timeline, state, epoch))
    except AlreadyCommitted as error:
        return error.receipt


def find(timeline: Timeline, epoch: int) -> Window:
    """Return the open window of an epoch.

    :raises WindowNotOpen: if it has ended, with how, or never was open.
    """
    state = timeline.refresh()
    _check_open(timeline, state, epoch)
    return state.windows[epoch]


def length(timeline: Timeline, epoch: int) -> float | None:
    """Return the seconds from the opening of a window to its first deadline, ``None`` if none of the epoch is open.

    For so long its holder opened it, and renews it each time.
    """
    if epoch not in timeline.refresh().windows:
        return None
    [opening] = timeline.commits(after=epoch - 1, until=epoch)
    [action] = [action for action in opening.actions if isinstance(action, OpenWindow)]
    if action.seconds is not None:
        return action.seconds
    # Of before openings held it. Instants rise also where clocks do not, so the opening's may be ahead of its deadline.
    counted = action.deadline - seconds_of(opening.instant)
    return counted if counted >= 1.0 else WINDOW_SECONDS


def end_expired(timeline: Timeline, ended_by: str) -> list[Window]:
    """End every window past its deadline, by commits; return those that were past it."""
    expired = [window for window in timeline.refresh().windows.values() if timeline.clock() > window.deadline]
    for window in expired:
        end_window(timeline, window, ended_by)
    return expired


def undrained(timeline: Timeline, epoch: int) -> list[Requested]:
    """Return the attempts from before the window that may still be at work in its scope.

    They could not commit, but their reading and writing costs, and work that counts on quiet needs them gone.
    """
    window = find(timeline, epoch)
    return [
        request
        for request in live_requests(timeline)
        if request.base < epoch and request.epoch != epoch and _in_scope(request.scopes, window)
    ]


def drain(
    timeline: Timeline,
    epoch: int,
    *,
    seconds: float = 600.0,
    poll: float = 1.0,
    silent_seconds: float = SILENT_WRITER_SECONDS,
    then_abort: bool = False,
    renew_seconds: float | None = None,
) -> int:
    """Wait until no attempt from before the window is live in its scope.

    ::

        aborted = drain(timeline, window.epoch, seconds=300, then_abort=True)

    :param silent_seconds: attempts without a sign of life for that long are aborted by a commit.
    :param then_abort: when the time is up, abort those that remain instead of raising.
    :param renew_seconds: keep the window open meanwhile, each time for that long; for its holder.
    :returns: how many attempts were aborted.
    :raises DrainTimeout: if attempts remain, naming them.
    :raises WindowNotOpen: if the window ended meanwhile.
    """
    end = timeline.clock() + seconds
    aborted = 0
    while True:
        remaining = undrained(timeline, epoch)
        if renew_seconds is not None and remaining:
            _renew_in_time(timeline, epoch, renew_seconds)
        late = timeline.clock() >= end
        for request in list(remaining):
            if (late and then_abort) or is_presumed_dead(timeline, request, silent_seconds):
                remaining.remove(request)
                aborted += _abort_unless_committed(timeline, request, epoch)
        if not remaining:
            return aborted
        if late:
            names = ", ".join(
                f"{request.txn_id} (attempt {request.attempt}, {request.operation})" for request in remaining
            )
            raise DrainTimeout(
                f"{len(remaining)} writers from before the window of epoch {epoch} are still at work after "
                f"{seconds:g} s: {names}.",
                hint="Wait longer (drain_seconds), or stop what runs them: `lakeindex attempts` lists them.",
            )
        timeline.sleep(poll)


def _renew_in_time(timeline: Timeline, epoch: int, seconds: float) -> None:
    """Renew a window of which a third has passed."""
    if find(timeline, epoch).deadline - timeline.clock() <= seconds * 2 / 3:
        renew(timeline, epoch, seconds)


def _abort_unless_committed(timeline: Timeline, request: Requested, epoch: int) -> int:
    try:
        abort(timeline, request.txn_id, request.attempt, f"drained by the window of epoch {epoch}")
    except AlreadyCommitted:
        return 0
    return 1


class _Expired(StopWriteWindowOpen):
    def __init__(self, window: Window) -> None:
        super().__init__(f"The window of epoch {window.epoch} is past its deadline.")
        self.window = window


def _check_free(state: State, partitions: tuple[str, ...] | None, now: float) -> None:
    for window in state.windows.values():
        apart = (
            window.partitions is not None and partitions is not None and not set(window.partitions) & set(partitions)
        )
        if apart:
            continue
        if now > window.deadline:
            raise _Expired(window)
        raise StopWriteWindowOpen(
            f"{window.holder} holds a stop-write window over {window.scope_text} (epoch {window.epoch}) until "
            f"{format_instant(window.deadline)} UTC.",
            hint="Wait until it is closed (StopWriteWindowClosedSensor) or past its deadline.",
        )


def _check_open(timeline: Timeline, state: State, epoch: int) -> None:
    if epoch not in state.windows:
        how = state.ended_windows.get(epoch, f"version {epoch} opened no window that is remembered")
        open_now = ", ".join(str(known) for known in state.windows) or "none"
        raise WindowNotOpen(
            f"Epoch {epoch} is not that of an open stop-write window of {timeline.store.uri}: {how}. "
            f"Open epochs: {open_now}.",
            hint="Use the epoch that opening the window returned.",
        )


def _in_scope(scopes: tuple[Scope, ...] | None, window: Window) -> bool:
    return scopes is None or any(window.covers(scope) for scope in scopes)
