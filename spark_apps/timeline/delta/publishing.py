"""Publishes a table to readers of other formats: commits of a Delta log over the table's own files, none copied.

A commit that changes rows or columns is followed by one of the Delta log. It names the version that it shows, so what
a process left undone between the two is seen, and done, by whoever commits next; and since its number is taken by
creating a file that must not exist, each version is published once and in order. What other readers would merge wrongly
is not published: of file groups with deltas only those whose positions say which rows count, as deletion vectors.
Until the table has such a state again, the last one stays published.

A log that another writer has a commit in is left as it is.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from spark_apps.storage.arrow_keys import positions_of_keys
from spark_apps.storage.errors import (
    CannotPublish,
    ConcurrentWrite,
    InvalidInput,
    LakeIndexError,
    ObjectNotFound,
    PublishRefused,
    StorageError,
)
from spark_apps.storage.names import DELETED
from spark_apps.storage.parquet.files import column_chunks
from spark_apps.storage.parquet.headers import open_bounded
from spark_apps.storage.parquet.listed import ParquetFiles
from spark_apps.storage.store import ObjectStore, write_once
from spark_apps.timeline.delta import checkpoints as delta_checkpoints
from spark_apps.timeline.delta import log as delta_log
from spark_apps.timeline.delta.log import Origin
from spark_apps.timeline.files import (
    DataFile,
    GroupKey,
    Positions,
    is_merged,
    lowest_files,
    merge_order,
    positions_path,
)
from spark_apps.timeline.limits import MAX_DELTA_HEAD_BYTES, MAX_DELTA_ROWS
from spark_apps.timeline.log import Timeline, seconds_of
from spark_apps.timeline.model import (
    DATA_TREE,
    NEW_KEYS,
    AddFile,
    Commit,
    DropPartition,
    DropTable,
    PutTable,
    RemoveFile,
    Restore,
    TableDefinition,
)
from spark_apps.timeline.operations import operation_of
from spark_apps.timeline.state import State
from spark_apps.version import __version__

logger = logging.getLogger(__name__)

PROPERTY = "publish"
"""Property of a table: the formats that it is published in, separated by commas."""

RETENTION = "publish.retention_hours"
"""Property: hours that files of a published version stay after another has replaced it."""

RETENTION_HOURS = 168
FORMATS = ("delta",)

_ENGINE = f"airflow-provider-index/{__version__}"
_NUMBERED = re.compile(r"(\d{20})\.")
_MAX_COMMITS_BACK = 10_000
"""Commits of the Delta log that are read, newest first, for the one that was the newest when the retention began."""
_AT_ONCE = 8
_TRIES = 20
_MAX_COMMITS_SINCE = 100
"""Commits since the published version that are read one by one; if there are more, the two states are compared."""
_MAX_FOOTERS = 256
"""Footers of new files that are read to say why a version is not published."""
_WILL_BE = "The next commit of rows publishes it, and so does IndexedTable.publish()."


@dataclass(frozen=True)
class Published:
    """The published part of a table.

    :param version: of the table, that readers of the other format see; ``None`` if nothing is published yet.
    :param log_version: of the other format's log.
    :param behind: how many later commits changed rows or columns; of more than 100 commits, how many there are.
    :param why: those are not published.
    """

    format: str
    version: int | None
    log_version: int | None
    behind: int
    why: str = ""

    @property
    def text(self) -> str:
        """The figures, for people."""
        if self.version is None:
            shown = "nothing yet" if self.log_version is None else "nothing any more"
        else:
            shown = f"version {self.version}" + (f", {self.behind} commits behind" if self.behind else "")
        return f"{shown}: {self.why}" if self.why else shown


@dataclass(frozen=True)
class _Entry:
    """A file that is published, and those above it whose rows replace some of its own."""

    file: DataFile
    above: tuple[DataFile, ...] = ()

    @property
    def vector(self) -> uuid.UUID | None:
        """The name of its deletion vector, if it may have one."""
        if not self.above and not self.file.tombstones:
            return None
        return delta_log.vector_name(self.file.path, (file.path for file in self.above))

    @property
    def id(self) -> tuple[str, uuid.UUID | None]:
        return self.file.path, self.vector


@dataclass(frozen=True)
class _Shown:
    """A version of the table as another format shows it."""

    table: TableDefinition | None
    entries: dict[str, _Entry]
    partitions: dict[str, dict[str, str | None]]


def check_formats(formats: Sequence[str] | None) -> dict[str, str]:
    """Return the properties of a table that is published in these formats.

    :raises InvalidInput: for a format that a table cannot be published in, with the reason.
    """
    if isinstance(formats, str):
        raise InvalidInput(f"publish is the text {formats!r}.", hint=f"Give a list: [{formats!r}].")
    for name in formats or ():
        if name == "iceberg":
            raise InvalidInput(
                "A table cannot be published as Iceberg: pyiceberg adds files only where a catalog takes its commits, "
                "and writes no deletes for rows that were replaced.",
                hint="Publish as 'delta'.",
            )
        if name not in FORMATS:
            raise InvalidInput(f"A table cannot be published as {name!r}.", hint=f"There is: {', '.join(FORMATS)}.")
    return {PROPERTY: ",".join(dict.fromkeys(formats))} if formats else {}


def check_definition(table: TableDefinition) -> None:
    """Check that a table can be published as it asks to be.

    :raises CannotPublish: naming the column that cannot.
    :raises InvalidInput: for a retention that is none.
    """
    if is_published(table):
        delta_log.metadata(table, delta_log.is_renamed(table), retention_hours(table))


def is_published(table: TableDefinition | None) -> bool:
    """Test whether a table is published as Delta."""
    return table is not None and table.source is None and "delta" in table.properties.get(PROPERTY, "").split(",")


def retention_hours(table: TableDefinition) -> int:
    """Return for how many hours files of replaced published versions stay. :raises InvalidInput: for no number."""
    text = table.properties.get(RETENTION, str(RETENTION_HOURS))
    if not re.fullmatch(r"[0-9]{1,6}", text):
        raise InvalidInput(f"The property {RETENTION} is {text[:50]!r}.", hint="Give a whole number of hours.")
    return int(text)


def follow(timeline: Timeline, commit: Commit, before: State | None = None) -> None:
    """Publish what was just committed. The commit is valid in any case, so a failure is logged and left to the next.

    :param before: the state before that commit, if it is at hand.
    """
    head = timeline.head
    if not _concerns(commit) or not is_published(head.definition):
        return
    try:
        touched = _Touched()
        touched.note(commit, State() if before is None else before)
        _shown(head, touched.groups)
        publish(timeline, before)
    except CannotPublish as error:
        logger.info("Version %s of %s is not published: %s", head.version, timeline.store.uri, error.message)
    except Exception as error:  # noqa: BLE001 - the commit is in the log, and no failure here may say otherwise
        logger.warning(
            "Version %s of %s is committed and not published: %s. The next commit tries again.",
            head.version, timeline.store.uri, error,
        )  # fmt: skip


def publish(timeline: Timeline, known: State | None = None) -> Published:
    """Publish each version that is not, oldest first, as far as they can be.

    :param known: a state of the table, which need not be read again if it is the one that is published.
    :raises PublishRefused: if another writer has written into the log.
    :raises StorageError: if the store fails; what was published stays so.
    """
    for _ in range(_TRIES):
        head = timeline.refresh()
        _check_asked(timeline, head)
        newest = _newest(timeline)
        if newest is None:
            log_version, origin, then = -1, None, State()
            steps: Iterable[tuple[State, Commit | None]] = [] if head.dropped else [(head, None)]
        else:
            log_version, origin = newest
            if origin.version >= head.version:
                return Published("delta", origin.version, log_version, 0)
            if head.version - origin.version > _MAX_COMMITS_SINCE and (why := _why_not(timeline, origin, head)):
                # Who committed those between has looked at each; reading them all would make commits slow.
                return _progress(timeline, origin, log_version, head, why)
            then = _state_at(timeline, origin.version, known)
            steps = _later(timeline, then)
        behind, why, raced, rows = 0, "", False, False
        last, touched = then, _Touched()
        for state, commit in _with_head_at_the_end(steps, head):
            behind, rows = behind + 1, rows or commit is None or "rows" in operation_of(commit.operation).changes
            touched.note(commit, last)
            last = state
            if not is_published(state.definition):
                continue
            if state.version < head.expired_below:
                continue  # its files may be gone; a later version has what became of them
            try:
                was = origin is not None and origin.mapped
                made = Origin(timeline.identity, state.version, _is_mapped(state) or (was and _same_table(then, state)))
                before, after = _shown(then, touched.groups), _shown(state, touched.groups)
                body = _body(timeline.store, before, was, after, made, state, commit, rows)
            except CannotPublish as error:
                why = error.message
                continue
            except ObjectNotFound:
                if timeline.refresh().expired_below <= state.version:
                    raise
                raced = True
                break
            if write_once(timeline.store, delta_log.commit_key(log_version + 1), body, timeline.sleep) != body:
                raced = True  # another process was first; what it published is looked at anew
                break
            log_version, origin, then = log_version + 1, made, state
            removed_since = _removals_kept_from(timeline, state.definition)
            delta_checkpoints.write_if_due(timeline.store, log_version, removed_since)
            behind, why, rows, touched = 0, "", False, _Touched()
        if not raced:
            number = log_version if log_version >= 0 else None
            return Published("delta", None if origin is None else origin.version, number, behind, why)
    raise ConcurrentWrite(f"{_TRIES} others were first to publish {timeline.store.uri}.", hint="Try again.")


def _with_head_at_the_end(
    steps: Iterable[tuple[State, Commit | None]], head: State
) -> Iterator[tuple[State, Commit | None]]:
    """Yield versions with their commits; the newest state in the place of the last one if that is expired.

    It holds the same rows, and its files are there.
    """
    waiting: tuple[State, Commit | None] | None = None
    for step in steps:
        if waiting is not None:
            yield waiting
        waiting = step
    if waiting is not None:
        yield (head.copy(), waiting[1]) if waiting[0].version < head.expired_below else waiting


def _removals_kept_from(timeline: Timeline, table: TableDefinition | None) -> int:
    """Return the moment, in milliseconds since 1970, since which removed files are still named as removed."""
    assert table is not None
    return int((timeline.clock() - retention_hours(table) * 3600) * 1000)


def published(timeline: Timeline) -> Published | None:
    """Return how far a table is published; ``None`` if it does not ask to be."""
    head = timeline.head
    if head.dropped or not is_published(head.definition):
        return None
    try:
        newest = _newest(timeline)
    except PublishRefused as error:
        return Published("delta", None, _newest_number(timeline.store), 0, error.message)
    head = timeline.head
    if newest is None:
        return Published("delta", None, None, 0, _why_not(timeline, None, head) or _WILL_BE)
    return _progress(timeline, newest[1], newest[0], head)


def facts(timeline: Timeline) -> list[tuple[str, str]]:
    """Return what the view of a table says of how far it is published; nothing if it does not ask to be."""
    shown = published(timeline)
    return [] if shown is None else [(f"published as {shown.format}", shown.text)]


def _progress(timeline: Timeline, origin: Origin, log_version: int, head: State, why: str = "") -> Published:
    """Return how far a table is published, whose newest published version is ``origin``."""
    behind = max(head.version - origin.version, 0)
    if behind <= _MAX_COMMITS_SINCE:
        behind = sum(map(_concerns, timeline.commits(origin.version, head.version)))
    elif _holds_the_same(timeline.rebuild(origin.version), head):
        behind = 0
    if behind:
        why = why or _why_not(timeline, origin, head) or _WILL_BE
    return Published("delta", origin.version, log_version, behind, why if behind else "")


def _holds_the_same(one: State, other: State) -> bool:
    files = [{file.path for file in state.files(DATA_TREE)} for state in (one, other)]
    return files[0] == files[1] and one.definition == other.definition and one.dropped == other.dropped


def _why_not(timeline: Timeline, origin: Origin | None, head: State) -> str:
    """Return why a version cannot be published; empty if it can.

    All is checked that would be written, the footers of new files up to a number. Nothing is written.

    :param origin: of what is published.
    """
    store, table = timeline.store, head.definition
    if table is None or head.dropped:
        return ""
    try:
        shown = _shown(head)
        delta_log.metadata(table, _will_be_mapped(timeline, origin, head), retention_hours(table))
        before = State() if origin is None else timeline.rebuild(origin.version)
        same_types = before.definition is not None and _types(before.definition) == _types(table)
        known = {file.path for file in before.files(DATA_TREE)} if same_types else set()
        new = [entry for path, entry in shown.entries.items() if path not in known]
        _in_threads(lambda entry: _statistics(store, entry.file, table, exact=True), new[-_MAX_FOOTERS:])
    except CannotPublish as error:
        return error.message
    except StorageError as error:
        return f"{error.message} It is tried again by the next commit of rows, and by IndexedTable.publish()."
    return ""


def _will_be_mapped(timeline: Timeline, origin: Origin | None, state: State) -> bool:
    """Test whether columns will be found by their names in files: once they were, they are."""
    was = origin is not None and origin.mapped and _same_table(timeline.rebuild(origin.version), state)
    return was or _is_mapped(state)


def rewrite_log(timeline: Timeline) -> dict[str, int]:
    """Replace the Delta log by a checkpoint of its newest version; return the older files that went, with their sizes.

    What is not yet published is published first, if it can be. Older published versions can no longer be read, so
    files that only they name may go. Of a table that is no longer published the whole log goes.

    :raises PublishRefused: if another writer has written into the log; nothing is deleted.
    """
    head = timeline.refresh()
    if head.definition is None or head.definition.source is not None or _newest(timeline) is None:
        return {}  # the log beside a source's files is its owner's
    store = timeline.store
    if not is_published(head.definition):
        files = log_files_to_go(timeline)
        # Its newest commit last, by which the log is known as ours; one without its beginning is no table to readers.
        store.delete(sorted(files, key=lambda key: (key != delta_checkpoints.LAST, key)))
        return files
    publish(timeline)
    newest = _newest(timeline)
    assert newest is not None
    return delta_checkpoints.keep_only(store, newest[0], _removals_kept_from(timeline, head.definition))


def log_files_to_go(timeline: Timeline) -> dict[str, int]:
    """Return the files, with their sizes, that :func:`rewrite_log` would delete now."""
    head = timeline.refresh()
    if head.definition is None or head.definition.source is not None or (newest := _newest(timeline)) is None:
        return {}
    if is_published(head.definition):
        infos = delta_checkpoints.older_files(timeline.store, newest[0])
    else:
        infos = timeline.store.list(delta_log.FOLDER)
    return {info.key: info.size for info in infos}


def needed_versions(timeline: Timeline, *, newest_only: bool = False) -> tuple[int, int] | None:
    """Return from which version to which readers of the other format may need the files; ``None`` if of none.

    The first is the one that was published when the retention began: what was replaced before that may go. The last is
    the newest that is published, so a table that cannot be published for long keeps no more files than one that is.

    :param newest_only: only the newest published version counts.
    """
    definition = timeline.head.definition
    if definition is None or not is_published(definition):
        return None
    try:
        newest = _newest(timeline)
        since = timeline.clock() - retention_hours(definition) * 3600
        if newest is None or newest_only:
            return None if newest is None else (newest[1].version, newest[1].version)
        (number, origin), last = newest, newest[1].version
        for earlier in range(number, max(number - _MAX_COMMITS_BACK, -1), -1):
            found = _read_origin(timeline.store, earlier)
            if found is None:
                break
            origin, written = found
            if written <= since:
                break
        return origin.version, last
    except (PublishRefused, InvalidInput) as error:
        logger.warning("No file is deleted: %s", error.message)
        return 0, timeline.head.version


def vectors_needed(timeline: Timeline, oldest: int) -> set[str]:
    """Return the keys of the deletion vectors that published versions from ``oldest`` on name."""
    state = timeline.rebuild(oldest).copy()
    needed = set(_vectors(state))
    for later, _ in _later(timeline, state):
        needed.update(_vectors(later))
    return needed


def _vectors(state: State) -> Iterator[str]:
    try:
        names = [entry.vector for entry in _shown(state).entries.values()]
    except CannotPublish:
        return
    yield from (delta_log.vector_key(name) for name in names if name is not None)


def _check_asked(timeline: Timeline, head: State) -> None:
    if not is_published(head.definition):
        raise InvalidInput(
            f"The table at {timeline.store.uri} is not published.", hint="Publish it: publish(['delta'])."
        )


# --- the log there is -------------------------------------------------------------------------------------------------


def _newest(timeline: Timeline) -> tuple[int, Origin] | None:
    """Return the newest commit of the Delta log: its number, and the version that it shows.

    :raises PublishRefused: if it is not ours.
    """
    number = _newest_number(timeline.store)
    if number is None:
        return None
    found = _read_origin(timeline.store, number)
    if found is None or found[0].log != timeline.identity or found[0].version > timeline.refresh().version:
        raise PublishRefused(
            f"Version {number} of the Delta log in {timeline.store.uri} was not written for this table by this "
            "package.",
            outcome="Nothing was overwritten, and nothing is published any more.",
            hint=f"Find out who wrote it. To publish anew, move the folder {delta_log.FOLDER} away.",
        )
    return number, found[0]


def _newest_number(store: ObjectStore) -> int | None:
    names = [info.key.rpartition("/")[2] for info in store.list(delta_log.FOLDER)]
    return max((int(match[1]) for name in names if (match := _NUMBERED.match(name))), default=None)


def _read_origin(store: ObjectStore, number: int) -> tuple[Origin, float] | None:
    """Return what a commit shows, with the time at which it was written; ``None`` if it is not ours."""
    key = delta_log.commit_key(number)
    info = store.head(key)
    if info is None:
        return None
    origin = delta_log.origin_of(store.get_range(key, 0, min(info.size, MAX_DELTA_HEAD_BYTES)))
    return None if origin is None else (origin, info.modified.timestamp())


# --- what is shown of a version ---------------------------------------------------------------------------------------


def _state_at(timeline: Timeline, version: int, known: State | None) -> State:
    """Return the state of a version, or a known one that differs from it in nothing that is published."""
    if known is not None and known.version >= version:
        since = timeline.commits(version, known.version)
        if known.version - version <= _MAX_COMMITS_SINCE and not any(map(_concerns, since)):
            return known
    return timeline.rebuild(version)


class _Touched:
    """The file groups that commits have changed; all of them where these changed more than files."""

    def __init__(self) -> None:
        self.groups: set[GroupKey] | None = set()

    def note(self, commit: Commit | None, before: State) -> None:
        """Add those of one commit, whose state was ``before``."""
        if commit is None or any(isinstance(a, PutTable | DropTable | DropPartition | Restore) for a in commit.actions):
            self.groups = None
        if self.groups is None or commit is None:
            return
        for action in commit.actions:
            if isinstance(action, AddFile) and action.tree == DATA_TREE:
                self.groups.add(action.group_key)
            elif isinstance(action, RemoveFile) and action.tree == DATA_TREE:
                file = before.file_set.get(DATA_TREE, action.path)
                if file is not None:
                    self.groups.add(file.group_key)


def _later(timeline: Timeline, state: State) -> Iterator[tuple[State, Commit]]:
    """Yield the versions after a state that change rows or columns, each with its commit."""
    head = timeline.head.version
    state = state.copy()
    for commit in timeline.commits(state.version, head):
        state.apply(commit)
        if _concerns(commit):
            yield state.copy(), commit


def _concerns(commit: Commit) -> bool:
    return any(
        isinstance(action, PutTable | DropTable | DropPartition | Restore)
        or (isinstance(action, AddFile | RemoveFile) and action.tree == DATA_TREE)
        for action in commit.actions
    )


def _same_table(one: State, other: State) -> bool:
    ids = [None if state.definition is None else state.definition.table_id for state in (one, other)]
    return ids[0] == ids[1]


def _is_mapped(state: State) -> bool:
    return state.definition is not None and delta_log.is_renamed(state.definition)


def _shown(state: State, only: Collection[GroupKey] | None = None) -> _Shown:
    """Return what is published of a version, or of some of its file groups.

    :raises CannotPublish: if it would be read wrongly.
    """
    table = state.definition
    if table is None or state.dropped or not is_published(table):
        return _Shown(table, {}, {})
    entries = {}
    groups = state.groups(DATA_TREE) if only is None else {key: state.files(DATA_TREE, *key) for key in sorted(only)}
    for (partition, group), files in groups.items():
        for entry in _entries(table, partition, group, sorted(files, key=merge_order)):
            entries[entry.file.path] = entry
    names = [next(f.stored_name for f in table.fields if f.name == name) for name in table.partition_by]
    live = {entry.file.partition for entry in entries.values()} if table.partition_by else set()
    values = {path: dict(zip(names, state.partitions[path].values, strict=True)) for path in live}
    empty = [path for path in sorted(live) if "" in values.get(path, {}).values()]
    if empty:
        raise CannotPublish(
            f"The partition {empty[0]!r} has an empty text as its value, which in a Delta log would be null."
        )
    _check_days(table, values)
    return _Shown(table, entries, values)


def _check_days(table: TableDefinition, values: Mapping[str, Mapping[str, str | None]]) -> None:
    """Refuse a partition by a day beyond the years 1 to 9999: with one, readers of Delta read none of the table."""
    days = [field.stored_name for field in table.fields if field.name in table.partition_by and field.type == "date"]
    for path, texts in sorted(values.items()):
        for name in days:
            if not re.fullmatch(r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}", texts[name] or "0001-01-01"):
                raise CannotPublish(
                    f"The partition {path!r} is of a day outside of the years 1 to 9999 in its column {name!r}, which "
                    "readers of a Delta log do not know."
                )


def _entries(table: TableDefinition, partition: str, group: str, files: Sequence[DataFile]) -> list[_Entry]:
    if (
        not files
        or is_merged(files)
        or (
            not any(file.tombstones for file in files)
            and all((file.extra or {}).get(NEW_KEYS) for file in files[len(lowest_files(files)) :])
        )
    ):
        return [_Entry(file) for file in files]
    bottom, deltas = files[0], files[1:]
    known = [Positions.of(file) for file in deltas]
    if (
        table.positions
        and len(lowest_files(files)) == 1
        and bottom.lineage
        and not bottom.tombstones
        and all(positions is not None and positions.over == bottom.lineage for positions in known)
        and sum(file.rows for file in deltas) <= MAX_DELTA_ROWS
    ):
        return [_Entry(file, tuple(files[number + 1 :])) for number, file in enumerate(files)]
    where = f"file group {group!r}" + (f" of {partition!r}" if partition else "")
    raise CannotPublish(
        f"The {where} has deltas over its base file, which only a reader of this package merges; a full compaction "
        "folds them."
    )


def _body(
    store: ObjectStore,
    before: _Shown,
    was_mapped: bool,
    after: _Shown,
    origin: Origin,
    state: State,
    commit: Commit | None,
    rows: bool,
) -> bytes:
    """Return the commit that leads from what is published to another version.

    :param was_mapped: columns are found by their names in files in what is published.
    :param origin: of the version that is published by it, ``state``; ``after``: what is shown of that.
    :param rows: rows may have changed since; else they are only in other files.
    :raises CannotPublish: if a Delta log cannot describe the files.
    """
    at = int(seconds_of(state.instant) * 1000)
    operation = "CREATE TABLE" if before.table is None else "WRITE" if commit is None else commit.operation.upper()
    actions: list[dict[str, Any]] = [
        delta_log.commit_info(origin, operation, at, _ENGINE),
        {"txn": {"appId": delta_log.APP_ID, "version": state.version, "lastUpdated": at}},
    ]
    table = after.table
    assert table is not None
    mapped, hours = origin.mapped, retention_hours(table)
    described = [delta_log.protocol(table, mapped), delta_log.metadata(table, mapped, hours)]
    known: list[dict[str, Any]] = []
    if before.table is not None:
        hours_before = retention_hours(before.table)
        known = [
            delta_log.protocol(before.table, was_mapped),
            delta_log.metadata(before.table, was_mapped, hours_before),
        ]
    actions += [action for action in described if action not in known]
    if before.table is not None and _types(before.table) != _types(table):
        kept = [entry for path, entry in after.entries.items() if path in before.entries]
        _in_threads(lambda entry: _statistics(store, entry.file, table, exact=True), kept)

    def removed(entry: _Entry) -> list[dict[str, Any]]:
        return (
            [] if entry.file.path in after.entries else [_remove(entry, _known_vector(store, entry), before, at, rows)]
        )

    def added(entry: _Entry) -> list[dict[str, Any]]:
        earlier = before.entries.get(entry.file.path)
        if earlier is not None and earlier.id == entry.id:
            return []
        vector = _written_vector(store, table, entry)
        old = None if earlier is None else _known_vector(store, earlier)
        if earlier is not None and old is None and vector is None:
            return []
        gone = [] if earlier is None else [_remove(earlier, old, before, at, rows)]
        return [*gone, _add(store, table, entry, vector, after, at, rows)]

    for work, entries in ((removed, before.entries), (added, after.entries)):
        for made in _in_threads(work, list(entries.values())):
            actions += made
    return delta_log.lines(actions)


def _types(table: TableDefinition) -> dict[str, str]:
    return {field.stored_name: field.type for field in table.fields}


def _in_threads(work: Callable[[_Entry], Any], entries: Sequence[_Entry]) -> list[Any]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(work, entries))


def _add(
    store: ObjectStore,
    table: TableDefinition,
    entry: _Entry,
    vector: dict[str, Any] | None,
    shown: _Shown,
    at: int,
    rows: bool,
) -> dict[str, Any]:
    file = entry.file
    added = {
        "path": delta_log.path_of(file.path),
        "partitionValues": shown.partitions.get(file.partition, {}),
        "size": file.bytes,
        "modificationTime": at,
        "dataChange": rows,
        "stats": _statistics(store, file, table, exact=vector is None),
    }
    return {"add": added if vector is None else {**added, "deletionVector": vector}}


def _remove(entry: _Entry, vector: dict[str, Any] | None, shown: _Shown, at: int, rows: bool) -> dict[str, Any]:
    file = entry.file
    removed = {
        "path": delta_log.path_of(file.path),
        "deletionTimestamp": at,
        "dataChange": rows,
        "extendedFileMetadata": True,
        "partitionValues": shown.partitions.get(file.partition, {}),
        "size": file.bytes,
    }
    return {"remove": removed if vector is None else {**removed, "deletionVector": vector}}


def _statistics(store: ObjectStore, file: DataFile, table: TableDefinition, *, exact: bool) -> str:
    """Return the statistics of a file, from its footer. :raises CannotPublish: naming the file, and the column."""
    with _named(file):
        return delta_log.statistics(ParquetFiles(store).open(file).metadata, table, exact)


def is_of_an_earlier_form(store: ObjectStore, file: DataFile, table: TableDefinition) -> bool:
    """Test whether a file is written otherwise today, by its footer; false where that cannot be read."""
    import pyarrow as pa

    try:
        footer = ParquetFiles(store).open(file).metadata
        delta_log.check_form(footer, table, types=is_published(table))
    except CannotPublish:
        return True
    except (pa.ArrowException, OSError, StorageError):
        return False  # whoever reads the rows says what is wrong with the file
    return False


@contextmanager
def _named(file: DataFile) -> Iterator[None]:
    """Say which file it is that cannot be published.

    :raises CannotPublish: for what a file holds; what the store answers is raised as it is.
    """
    import pyarrow as pa

    try:
        yield
    except CannotPublish as error:
        raise CannotPublish(f"{error.message} One of them is {file.path}.", hint=error.hint) from error
    except LakeIndexError:
        raise
    except (pa.ArrowException, OSError, ValueError, ArithmeticError, LookupError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise CannotPublish(
            f"The file {file.path} cannot be read: {reason}.",
            hint="Bring the file back from a backup, or restore an earlier version of the table.",
        ) from error


# --- rows that do not count -------------------------------------------------------------------------------------------


def _known_vector(store: ObjectStore, entry: _Entry) -> dict[str, Any] | None:
    """Return the deletion vector that a published file has; it has none if it was not written."""
    if entry.vector is None:
        return None
    try:
        # A bitmap takes a bit a row at the most, beside what it says of each 65,536 of them.
        body = store.get(delta_log.vector_key(entry.vector), entry.file.rows // 4 + 4096)
        return delta_log.vector_descriptor(entry.vector, body)
    except ObjectNotFound:
        return None


def _written_vector(store: ObjectStore, table: TableDefinition, entry: _Entry) -> dict[str, Any] | None:
    """Write the deletion vector of a file, if rows of it do not count."""
    if entry.vector is None:
        return None
    with _named(entry.file):
        hidden = _hidden(store, table, entry)
    if not len(hidden):
        return None
    body = delta_log.encode_vector(hidden)
    store.put(delta_log.vector_key(entry.vector), body)
    return delta_log.vector_descriptor(entry.vector, body)


def _hidden(store: ObjectStore, table: TableDefinition, entry: _Entry) -> Any:
    """Return the numbers of the rows of a file that are tombstones, or that files above it replace, in order."""
    import numpy as np

    known = [Positions.of(file) for file in entry.above]
    if entry.above and all(positions is not None and positions.over == entry.file.lineage for positions in known):
        parts = [
            _marked(store, positions_path(file.path), positions.bytes, entry.file.rows)
            for file, positions in zip(entry.above, known, strict=True)
            if positions is not None and positions.bytes
        ]
        return np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)
    return _replaced(store, table, entry)


def _marked(store: ObjectStore, path: str, size: int, rows: int) -> Any:
    """Return the row numbers that a file of positions marks. :raises CannotPublish: if it speaks of other rows."""
    import numpy as np

    refused = CannotPublish(f"{path} does not speak of all rows of its file.", hint="Compact the table.")
    file, expected = open_bounded(store.get(path, size)), -(-rows // 64)
    groups = (column_chunks(file.metadata, number) for number in range(file.metadata.num_row_groups))
    if sum(max(chunk.num_values for chunk in chunks) for chunks in groups) != expected:
        raise refused
    words = file.read(["words"])["words"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    found = np.flatnonzero(np.unpackbits(words.astype("<i8").view(np.uint8), bitorder="little"))
    if len(words) != expected or (len(found) and found[-1] >= rows):
        raise refused
    return found


def _replaced(store: ObjectStore, table: TableDefinition, entry: _Entry) -> Any:
    """Return the rows of a delta that are tombstones or whose keys are in a later one."""
    import numpy as np
    import pyarrow as pa

    stored = {field.name: field.stored_name for field in table.fields}
    key = [stored[name] for name in table.record_key]
    zoned = {field.stored_name for field in table.fields if field.type == "timestamp"}

    def read(file: DataFile, columns: list[str]) -> Any:
        rows = ParquetFiles(store).open(file).columns(columns)
        for name in zoned & set(columns):  # the older INT96 has no zone for Arrow
            place = columns.index(name)
            rows = rows.select(columns).set_column(place, name, rows[name].cast(pa.timestamp("us", "UTC")))
        return rows

    own = read(entry.file, [*key, DELETED])
    tombstones = np.flatnonzero(own[DELETED].fill_null(False).to_numpy())
    later = [read(file, key) for file in sorted(entry.above, key=merge_order)]
    if not later:
        return tombstones
    # Files from before a key was widened hold narrower numbers.
    kinds = pa.unify_schemas([file.select(key).schema for file in (own, *later)], promote_options="permissive")
    keys = pa.concat_tables([file.select(key).cast(kinds) for file in later])
    own = own.select(key).cast(kinds)
    return np.unique(np.concatenate([tombstones, positions_of_keys(own, keys, key)]))
