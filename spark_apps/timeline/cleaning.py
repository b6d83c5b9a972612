"""Cleaning: expiring old versions by a commit, then deleting the files that nothing needs any more.

The order is what makes it safe. The expiry is committed first, then the live attempts are read: an attempt requested
before that is seen and its base kept; one requested later reads the expiry and starts from a version that is kept.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, replace

from spark_apps.storage.errors import AlreadyCommitted, ConcurrentWrite, StopWriteWindowOpen
from spark_apps.storage.printing import Grid, Printed, View, counted, exact, size
from spark_apps.storage.store import ObjectInfo
from spark_apps.timeline import hashing_config
from spark_apps.timeline.commit import commit_changes, housekeeping, new_txn_id
from spark_apps.timeline.delta import log as delta_log
from spark_apps.timeline.delta import publishing
from spark_apps.timeline.files import DataFile, delta_of
from spark_apps.timeline.limits import RETAIN_SECONDS, RETAIN_VERSIONS
from spark_apps.timeline.log import Timeline, format_instant
from spark_apps.timeline.model import (
    DATA_TREE,
    TOMBSTONES_TREE,
    AddFile,
    Expire,
    Receipt,
    RemoveFile,
    Write,
    group_scope,
)
from spark_apps.timeline.operations import CLEAN, EXPIRE
from spark_apps.timeline.tombstones import is_past, tombstone_days
from spark_apps.timeline.transactions import (
    DATA,
    INDEXES,
    TRANSACTIONS,
    WITHDRAWN,
    abort,
    is_live,
    is_presumed_dead,
    live_requests,
    withdrawn_attempts,
)

logger = logging.getLogger(__name__)

PRESUMED_DEAD_SECONDS = 3600.0
_LATEST_LANDING_SECONDS = 86400.0
_TRIES = 5
_NUMBER = re.compile("[0-9]{1,19}")


@dataclass(frozen=True, repr=False)
class CleaningPlan(Printed):
    """Plan of a cleaning: versions below ``expire_below`` go, and so do ``files`` of ``bytes`` in all.

    ``keeps_for`` names the attempts, and readers of another format, because of which older files stay. ``tombstones``
    is how many orderings of deletes the newest version would no longer keep.
    """

    expire_below: int
    files: tuple[str, ...]
    bytes: int
    presumed_dead: tuple[str, ...]
    keeps_for: tuple[str, ...]
    tombstones: int = 0

    def view(self) -> View:
        facts = [
            ("expires versions below", exact(self.expire_below)),
            ("ends attempts", self.presumed_dead),
            ("keeps files for", self.keeps_for),
            ("forgets orderings of deletes", self.tombstones or None),
        ]
        files = Grid(("deletes",), [(path,) for path in self.files])
        return View(f"clean: {counted(len(self.files), 'file')}, {size(self.bytes)}", facts, [files])


def clean(
    timeline: Timeline,
    *,
    retain_versions: int = RETAIN_VERSIONS,
    retain_seconds: float = RETAIN_SECONDS,
    presumed_dead_seconds: float = PRESUMED_DEAD_SECONDS,
    published_log: bool = False,
    tombstones: bool = False,
    txn_id: str | None = None,
) -> Receipt:
    """Expire versions and delete what no kept version and no live attempt needs.

    A version is expired when it is older than ``retain_seconds`` and not among the newest ``retain_versions``. Attempts
    without a sign of life for ``presumed_dead_seconds`` are aborted by a commit first. Orderings of deletes whose time
    is over are no longer kept from a commit on that comes before the expiry.

    ::

        clean(timeline, retain_versions=5, retain_seconds=86_400)

    :param published_log: also replace the Delta log of a published table by a checkpoint of its newest version. Its
        older files hold lowest and highest values of rows that are gone; and files that only older published versions
        name go at once, without the retention that they have otherwise.
    :param tombstones: drop all orderings of deletes that are kept beside bases, also before their time is over: rows
        that come again are then written again.
    :raises PublishRefused: with ``published_log``, if another writer has written into that log.
    :raises StopWriteWindowOpen: if orderings are to be dropped before their time, and another holder has a window.
    """
    timeline.refresh()
    log_files = publishing.rewrite_log(timeline) if published_log else {}
    txn_id = txn_id or new_txn_id(CLEAN.name)
    dead = _presumed_dead(timeline, presumed_dead_seconds)
    for name, attempt in dead:
        try:
            abort(timeline, name, attempt, f"no sign of life for {presumed_dead_seconds:g} s")
        except AlreadyCommitted as error:
            logger.info("%s", error.message)
    forgotten = _forget_deletes(timeline, tombstones)
    below = expiry(timeline, retain_versions, retain_seconds)
    receipt = Receipt(None, txn_id, CLEAN.name)
    if below > timeline.head.expired_below:
        intent = housekeeping(EXPIRE, Expire(below), txn_id=txn_id, base=timeline.head.version)
        try:
            receipt = commit_changes(timeline, intent)
        except AlreadyCommitted as error:
            receipt = error.receipt
    files, _ = _deletable(timeline, timeline.refresh().expired_below)
    timeline.store.delete(files)
    _tidy_attempts(timeline)
    hashing_config.tidy(timeline)
    metrics = {"expired_below": timeline.head.expired_below, "files_deleted": len(files),
               "bytes_deleted": sum(files.values()), "attempts_aborted": len(dead),
               "tombstones_dropped": forgotten}  # fmt: skip
    if published_log:
        metrics["published_log_files_deleted"] = len(log_files)
    return Receipt(receipt.version, txn_id, CLEAN.name, metrics, receipt.instant, receipt.attempt)


def plan(
    timeline: Timeline,
    *,
    retain_versions: int = RETAIN_VERSIONS,
    retain_seconds: float = RETAIN_SECONDS,
    presumed_dead_seconds: float = PRESUMED_DEAD_SECONDS,
    published_log: bool = False,
    tombstones: bool = False,
) -> CleaningPlan:
    """Return what :func:`clean` would do now, without doing it."""
    timeline.refresh()
    below = max(expiry(timeline, retain_versions, retain_seconds), timeline.head.expired_below)
    files, keeps_for = _deletable(timeline, below, newest_published=published_log)
    if published_log:
        files |= publishing.log_files_to_go(timeline)
    dead = tuple(f"{name}.{attempt}" for name, attempt in _presumed_dead(timeline, presumed_dead_seconds))
    forgotten = sum(file.rows for file in _kept_too_long(timeline, tombstones))
    return CleaningPlan(below, tuple(files), sum(files.values()), dead, keeps_for, forgotten)


def _kept_too_long(timeline: Timeline, all_of_them: bool) -> list[DataFile]:
    """Return the files with orderings of deletes that need not be kept any longer; or all that there are."""
    head = timeline.head
    files = head.files(TOMBSTONES_TREE)
    if all_of_them or not files:
        return files
    days, now = tombstone_days(head.table.properties), timeline.clock()
    return [file for file in files if is_past(file, days, now)]


def _forget_deletes(timeline: Timeline, all_of_them: bool) -> int:
    """Commit that orderings of deletes are no longer kept, and return how many."""
    for tried in range(1, _TRIES + 1):
        files = _kept_too_long(timeline, all_of_them)
        if not files:
            break
        # The rows stay the same, as they do in a compaction, which would replace these files too.
        writes = dict.fromkeys(Write(group_scope(*file.group_key), "fold") for file in files)
        actions = tuple(RemoveFile(TOMBSTONES_TREE, file.path) for file in files)
        count = sum(file.rows for file in files)
        intent = replace(
            housekeeping(CLEAN, actions[0], base=timeline.head.version),
            actions=actions,
            writes=tuple(writes),
            exempt=False,
            metrics={"tombstones_dropped": count},
        )
        try:
            commit_changes(timeline, intent)
            return count
        except (ConcurrentWrite, StopWriteWindowOpen) as error:
            if all_of_them and (tried == _TRIES or isinstance(error, StopWriteWindowOpen)):
                raise
            logger.info("Orderings of deletes stay for now: %s", error.message)
            if isinstance(error, StopWriteWindowOpen):
                break
            timeline.refresh()
    return 0


def expiry(timeline: Timeline, retain_versions: int, retain_seconds: float) -> int:
    """Return the version below which all are both too old and not among the newest ``retain_versions``."""
    head = timeline.head
    limit = max(head.version - max(retain_versions, 1) + 1, 0)
    oldest_kept = format_instant(timeline.clock() - retain_seconds)
    below = head.expired_below
    # Version v stops being the newest at the instant of v + 1: until then it was what people read.
    for commit in timeline.commits(after=below):
        if commit.version > limit or commit.instant > oldest_kept:
            break
        below = commit.version
    return below


def _presumed_dead(timeline: Timeline, silent_seconds: float) -> list[tuple[str, int]]:
    return [
        (request.txn_id, request.attempt)
        for request in live_requests(timeline)
        if is_presumed_dead(timeline, request, silent_seconds)
    ]


def _deletable(
    timeline: Timeline, below: int, *, newest_published: bool = False
) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return the files (with sizes) that nothing from ``below`` on needs, and the attempts that keep older ones.

    :param newest_published: of the published versions only the newest counts.
    """
    # The attempts are read after the expiry was committed; see the top of the module.
    live = live_requests(timeline)
    state = timeline.head
    protecting = [request for request in live if request.oldest_needed < below]
    published = publishing.needed_versions(timeline, newest_only=newest_published)
    oldest = min([below, *(request.oldest_needed for request in protecting)])
    needed, withdrawn = _needed(timeline, oldest, state.version), set(withdrawn_attempts(timeline))
    # Readers of another format know no indexes.
    needed |= set() if published is None else _needed(timeline, *published, DATA_TREE)
    deletable: dict[str, int] = {}
    for prefix in (DATA, INDEXES):
        for info in timeline.store.list(prefix):
            owner = _owner(info.key)
            ended = owner is not None and (owner in withdrawn or not is_live(state, *owner))
            if ended and _file_of(info.key) not in needed:
                deletable[info.key] = info.size
    if published is not None:
        named = publishing.vectors_needed(timeline, published[0])
        vectors = timeline.store.list(delta_log.VECTORS)
        # One that is being published is named by no version yet.
        long_ago = timeline.clock() - _LATEST_LANDING_SECONDS
        deletable |= {
            info.key: info.size for info in vectors if info.key not in named and info.modified.timestamp() < long_ago
        }
    keeps_for = [f"{request.txn_id}.{request.attempt}" for request in protecting]
    kept_for_readers = published is not None and published[0] < oldest
    return deletable, (*keeps_for, *(["readers of the published log"] if kept_for_readers else []))


def _needed(timeline: Timeline, oldest: int, newest: int, tree: str | None = None) -> set[str]:
    """Return the paths of the files that versions from one to another have, of all trees or of one."""
    needed = set(timeline.rebuild(oldest).file_set.paths(tree))
    for commit in timeline.commits(after=oldest, until=newest):
        added = (action for action in commit.actions if isinstance(action, AddFile))
        needed.update(action.path for action in added if tree in (None, action.tree))
    return needed


def _file_of(key: str) -> str:
    """Return the file that positions or a checksum file of Hadoop's belong to; else the key itself.

    Hadoop writes ``.<name>.crc`` on local disk.
    """
    folder, _, name = key.rpartition("/")
    return f"{folder}/{name[1:-4]}" if name.startswith(".") and name.endswith(".crc") else delta_of(key) or key


def _owner(key: str) -> tuple[str, int] | None:
    """Return transaction and attempt that a staged file belongs to; ``None`` of files that are not this table's."""
    parts = key.split("/")
    owner = parts[1] if parts[0] == DATA else parts[3] if len(parts) > 4 else ""
    name, _, attempt = owner.rpartition(".")
    return (name, int(attempt)) if name and _NUMBER.fullmatch(attempt) else None


def _tidy_attempts(timeline: Timeline) -> None:
    """Remove what attempts left behind once no attempt of their transaction can commit any more.

    Their end is in the log. Withdrawn attempts, and signs of life that came after all, go after a day: no deletion
    lands so late.
    """
    state = timeline.head
    folders: dict[tuple[str, int], list[ObjectInfo]] = {}
    for info in timeline.store.list(TRANSACTIONS):
        parts = info.key.removeprefix(f"{TRANSACTIONS}/").split("/")
        if len(parts) == 3 and _NUMBER.fullmatch(parts[1]):
            folders.setdefault((parts[0], int(parts[1])), []).append(info)
    names = {attempt: {info.key.rpartition("/")[2] for info in infos} for attempt, infos in folders.items()}
    stray = {attempt for attempt, kinds in names.items() if WITHDRAWN in kinds or "requested.json" not in kinds}
    live = {name for name, attempt in folders.keys() - stray if is_live(state, name, attempt)}
    long_ago = timeline.clock() - _LATEST_LANDING_SECONDS
    for (name, attempt), infos in folders.items():
        if (name, attempt) in stray:
            over = all(info.modified.timestamp() < long_ago for info in infos)
        else:
            over = name not in live and not is_live(state, name, attempt)
        if over:
            timeline.store.delete([info.key for info in infos])
