"""The difference between a registered source and what its log lists, as actions of the log.

Reading folds that difference in memory, so that files which came since are scanned and files which went are not
missed; an action on indexes commits it beside its own work. Folded in or committed, it is the same: a change of the
rows that no index covers. Each file of a source is a file group, so all that knows what an index covers goes on to
work.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec.structs import replace as changed

from spark_apps.indexes.registry import held_by
from spark_apps.mergetree.external_files import THROUGH
from spark_apps.mergetree.tree import Snapshot
from spark_apps.sources.iceberg_named import CONNECTOR
from spark_apps.sources.registry import LoggedSource, Refused, Source, check_unlisted, open_source
from spark_apps.sources.source_files import Changes, Listing, SourceFile, check_distinct, with_row_counts
from spark_apps.storage.errors import InvalidSchema, OtherFormat, TableNotFound
from spark_apps.timeline import allowed_sources
from spark_apps.timeline.allowed_sources import PLAIN_FORMATS, READER
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import (
    DATA_TREE,
    SCHEMA_SCOPE,
    AddFile,
    AnyAction,
    DropPartition,
    MarkCovered,
    PutIndex,
    PutPartition,
    PutTable,
    RemoveFile,
    TableDefinition,
    Write,
    partition_scope,
)
from spark_apps.timeline.stages import state_with_actions
from spark_apps.timeline.state import State

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Observation:
    """A source as it was found, against a version of its log.

    :param snapshot: that version with the difference folded in.
    :param actions: the difference; empty if there is none.
    :param learned: how the difference was found, where the source has a log of its own.
    """

    snapshot: Snapshot
    actions: tuple[AnyAction, ...] = ()
    writes: tuple[Write, ...] = field(default=())
    learned: Mapping[str, Any] = field(default_factory=dict)

    @property
    def metrics(self) -> dict[str, Any]:
        """The figures of a receipt."""
        added = sum(isinstance(action, AddFile) for action in self.actions)
        removed = sum(isinstance(action, RemoveFile) for action in self.actions)
        return {"source.files_added": added, "source.files_removed": removed, **self.learned}

    def beside(self, actions: Sequence[AnyAction]) -> list[AnyAction]:
        """Return the difference together with the actions of an index's own work.

        It comes after what makes the index and before what states its coverage: only a file that was read is covered.
        """
        made = [action for action in actions if isinstance(action, PutIndex)]
        return [*made, *self.actions, *(action for action in actions if not isinstance(action, PutIndex))]

    def covered_trees(self, actions: Iterable[AnyAction]) -> list[str]:
        """Return the trees of the indexes that an action's work has made cover the files of the source."""
        return [action.tree for action in actions if isinstance(action, MarkCovered)]


class LastObservation:
    """The last observation of a source, which holds as long as neither the log nor the listing changes.

    A query then costs a listing, and not the comparison of each file with the log.
    """

    def __init__(self) -> None:
        # Each is put in place at once, for several threads may read a table.
        self._source: tuple[TableDefinition, Mapping[str, Any] | None, Source] | None = None
        self._observed: tuple[State, Listing, State, tuple[AnyAction, ...]] | None = None

    def open(self, snapshot: Snapshot, storage_options: Mapping[str, Any] | None) -> Source:
        """Return the source: of plain files, which know their last listing, the same one while its definition stays."""
        table, known = snapshot.table, self._source
        source = open_source(table, storage_options, snapshot.store.uri, snapshot.spark)
        assert table.source is not None
        plain = table.source.format in PLAIN_FORMATS
        if plain and known is not None and known[0] == table and known[1] is storage_options:
            return known[2]
        self._source = table, storage_options, source
        return source

    def difference(self, logged: State, listing: Listing) -> tuple[State, tuple[AnyAction, ...]] | None:
        """Return the state with the difference folded in, and the difference; ``None`` if it has to be found."""
        # A source that has changed gives another listing, and so does one that does not know.
        last = self._observed
        return None if last is None or last[0] is not logged or last[1] is not listing else last[2:]

    def keep(self, logged: State, listing: Listing, observed: State, actions: tuple[AnyAction, ...]) -> None:
        """Remember an observation in place of the last one."""
        self._observed = logged, listing, observed, actions


def observe(
    snapshot: Snapshot,
    storage_options: Mapping[str, Any] | None = None,
    *,
    source_version: str | int | None = None,
    partitions: Collection[str] | None = None,
    by_list: bool = False,
    seen: LastObservation | None = None,
) -> Observation:
    """Find what has changed in the source of a registered table since a version of the log.

    A source with a log of its own is asked for the commits since. Where it cannot tell, and of plain files, the list of
    all files is compared with that of the log.

    :param source_version: of the source's own, for those that have versions.
    :param partitions: take no notice of changes in others.
    :param by_list: compare the lists, whatever the source's log says.
    :param seen: the last observation of the table, which this one replaces.
    :raises StorageError: if the store fails.
    :raises VersionNotFound: if there is no such version.
    :raises UnsupportedSource: naming what cannot be honoured.
    """
    state, table = snapshot.state, snapshot.table
    assert table.source is not None
    seen = LastObservation() if seen is None else seen
    source = seen.open(snapshot, storage_options)
    if partitions is not None:
        check_files(snapshot, storage_options)
    learned: dict[str, Any] = {}
    if source_version is None and partitions is None and not by_list and table.source.mark is not None:
        found = source.changes(state) if isinstance(source, LoggedSource) else None
        if isinstance(found, Changes):
            learned = {"source.commits": found.commits}
            actions = tuple(_counted(table, by_commits(state, found), storage_options))
            current = replace(snapshot, state=folded_in(state, actions), external=source, intact=set())
            return Observation(current, actions, _writes(state, actions), learned)
        if found is not None:
            learned = {"source.compared": found.why}
            logger.info("%s: the lists of all files are compared: %s.", table.source.location, found.why)
    listing = source.listing(source_version)
    if learned:
        learned["source.files_compared"] = len(listing.files) + len(state.files(DATA_TREE))
    _check_same_table(table, listing)
    known = seen.difference(state, listing) if partitions is None else None
    if known is None:
        actions = tuple(_counted(table, difference(state, listing, partitions), storage_options))
        known = folded_in(state, actions), actions
        if partitions is None:
            seen.keep(state, listing, *known)
    observed, actions = known
    current = replace(snapshot, state=observed, external=source, intact=set())
    return Observation(current, actions, _writes(state, actions), learned)


def _check_same_table(table: TableDefinition, listing: Listing) -> None:
    """Check that a source is the table that was registered, and not another one made at its location.

    :raises TableNotFound: if it is another one.
    """
    source = table.source
    assert source is not None
    if source.identity is not None and listing.identity not in (None, source.identity):
        raise TableNotFound(
            f"The table that was registered at {source.location} is gone: the one that is there now has the id "
            f"{listing.identity}, and it had {source.identity}.",
            outcome="Nothing was changed.",
            hint="Drop the registration, which leaves the table alone, and register the new one.",
        )


def unobserved(snapshot: Snapshot, storage_options: Mapping[str, Any] | None = None) -> Snapshot:
    """Return a version of the log as it is, with access to the files of the source that it lists."""
    if snapshot.table.source is None:
        return snapshot
    source = open_source(snapshot.table, storage_options, snapshot.store.uri, snapshot.spark)
    check_files(snapshot, storage_options)
    try:
        check_unlisted(snapshot.table, storage_options)
    except OtherFormat as error:
        return replace(snapshot, external=Refused(error))
    return replace(snapshot, external=source)


def check_files(snapshot: Snapshot, storage_options: Mapping[str, Any] | None) -> None:
    """Check that the files that a log lists are in their source, without listing the source.

    Not those that the connector of a session alone opens, which has them from its own catalog.

    :raises SourceNotAllowed: naming one that is elsewhere.
    """
    source = snapshot.table.source
    assert source is not None
    files = snapshot.state.files(DATA_TREE)
    named = READER in source.options
    paths = (file.path for file in files if not (named and (file.extra or {}).get(THROUGH) == CONNECTOR))
    allowed_sources.check_files(paths, source, storage_options, snapshot.store.uri)


def first_actions(
    table: TableDefinition, listing: Listing, storage_options: Mapping[str, Any] | None
) -> list[AnyAction]:
    """Return the actions that the log of a source begins with, beside its definition."""
    observed: list[AnyAction] = [*_partitions(listing.files, ()), *(file.to_add() for file in listing.files)]
    return _counted(table, observed, storage_options)


def difference(state: State, listing: Listing, partitions: Collection[str] | None = None) -> list[AnyAction]:
    """Return the actions that turn the files of a state into those of a listing; none if they are the same."""
    remaining = {file.path: file for file in state.files(DATA_TREE)}
    new: list[SourceFile] = []
    removed: list[AnyAction] = []
    for file, listed in _others(listing.files, lambda path: remaining.pop(path, None)):
        if partitions is not None and file.partition not in partitions:
            continue
        if listed is not None:
            removed.append(RemoveFile(DATA_TREE, listed.path))
        new.append(file)
    for old in remaining.values():
        if partitions is None or old.partition in partitions:
            removed.append(RemoveFile(DATA_TREE, old.path))
    live = {file.partition for file in listing.files}
    dropped = [path for path in state.partitions if path not in live and (partitions is None or path in partitions)]
    files: list[AnyAction] = [
        *removed,
        *(DropPartition(path) for path in dropped),
        *_partitions(new, state.partitions),
        *(file.to_add() for file in new),
    ]
    table = _definition(state.table, listing, whole=partitions is None)
    if not files and table.fields == state.table.fields:
        return []
    return [PutTable(table), *files]


def by_commits(state: State, changes: Changes) -> list[AnyAction]:
    """Return the actions by which a state follows the commits of its source; none if no file is another one."""
    source = state.table.source
    assert source is not None
    check_distinct(source.location, changes.added)
    others = _others(changes.added, lambda path: state.file_set.get(DATA_TREE, path))
    new, removed = [file for file, _ in others], [listed for _, listed in others if listed is not None]
    gone = (state.file_set.get(DATA_TREE, path) for path in changes.removed)
    removed.extend(file for file in gone if file is not None)
    fields = state.table.fields if changes.fields is None else changes.fields
    if not removed and not new and fields == state.table.fields:
        return []
    followed = changed(source, version=changes.version, mark=changes.mark)
    definition = changed(state.table, source=followed, fields=fields)
    return [
        PutTable(definition),
        *(RemoveFile(DATA_TREE, file.path) for file in removed),
        *(DropPartition(path) for path in _emptied(state, removed, new)),
        *_partitions(new, state.partitions),
        *(file.to_add() for file in new),
    ]


def _others(
    files: Iterable[SourceFile], known: Callable[[str], DataFile | None]
) -> list[tuple[SourceFile, DataFile | None]]:
    """Return the files that a log does not list as they are, each with what it lists by the path."""
    pairs = ((file, known(file.path)) for file in files)
    return [(file, listed) for file, listed in pairs if listed is None or listed.lineage != file.lineage]


def _emptied(state: State, removed: Iterable[DataFile], new: Iterable[SourceFile]) -> list[str]:
    """Return the partitions that files leave of which none is left."""
    went = Counter(file.partition for file in removed)
    for file in new:
        went.pop(file.partition, None)
    return [path for path, files in went.items() if files == len(state.files(DATA_TREE, path))]


def folded_in(state: State, actions: Sequence[AnyAction]) -> State:
    """Return a state as it would be with the actions committed, under the same version."""
    return state_with_actions(state, actions, (Write(SCHEMA_SCOPE, "observed"),), ())


def with_listed(state: State, kept: Collection[DataFile], new: Sequence[SourceFile]) -> State:
    """Return a state with some of its files and with new ones, as a list that another one made shows the source.

    No file is looked at: how many rows the new ones hold stays unknown.
    """
    if len(kept) < len(state.files(DATA_TREE)):
        state = state.copy()
        state.file_set.remove_tree(DATA_TREE)
        for file in kept:
            state.file_set.add(file)
    return folded_in(state, [*_partitions(new, state.partitions), *(file.to_add() for file in new)])


def best_fit(timeline: Timeline, listing: Listing) -> State:
    """Return the version of a log whose indexes cover most bytes of the listed files; the newest of equals."""
    lineages = {file.path: file.lineage for file in listing.files}
    first = timeline.head.expired_below
    state = timeline.rebuild(first).copy()
    best, most = state.copy(), _covered(state, lineages)
    for commit in timeline.commits(after=first):
        state.apply(commit)
        if state.definition is None or state.dropped:
            continue
        covered = _covered(state, lineages)
        if covered >= most:
            best, most = state.copy(), covered
    return best


def _covered(state: State, lineages: Mapping[str, int]) -> tuple[int, int]:
    """Return the bytes of the listed files that indexes cover, and of those that the state lists at all."""
    if state.definition is None or state.dropped:
        return (-1, -1)
    listed = [file for file in state.files(DATA_TREE) if lineages.get(file.path) == file.lineage]
    covered = sum(file.bytes for entry in state.indexes.values() if entry.active for file in listed
               if entry.covers(file.group_key))  # fmt: skip
    return covered, sum(file.bytes for file in listed)


def _definition(table: TableDefinition, listing: Listing, whole: bool) -> TableDefinition:
    """Return a table as a list shows it.

    :param whole: whether all of the list is taken, so that the files are all of its version.
    """
    assert table.source is not None
    mark = listing.mark if whole else None
    return changed(
        table,
        source=changed(table.source, version=listing.version, identity=listing.identity, mark=mark),
        fields=table.fields if listing.fields is None else listing.fields,
        partition_by=table.partition_by if listing.partition_by is None else listing.partition_by,
    )


def _partitions(files: Iterable[SourceFile], known: Collection[str]) -> list[AnyAction]:
    observed = {file.partition: file.partition_values for file in files if file.partition not in known}
    return [PutPartition(path, None, values) for path, values in sorted(observed.items())]


def _counted(
    table: TableDefinition, actions: Sequence[AnyAction], storage_options: Mapping[str, Any] | None
) -> list[AnyAction]:
    assert table.source is not None
    files = [action for action in actions if isinstance(action, AddFile)]
    rest = [action for action in actions if not isinstance(action, AddFile)]
    return [*rest, *with_row_counts(table.source.format, files, storage_options)]


def _writes(state: State, actions: Sequence[AnyAction]) -> tuple[Write, ...]:
    """Return what a commit of the difference declares: each partition that it touches."""
    removed = {action.path for action in actions if isinstance(action, RemoveFile)}
    paths = dict.fromkeys(file.partition for file in state.files(DATA_TREE) if file.path in removed) if removed else {}
    for action in actions:
        if isinstance(action, AddFile):
            paths[action.partition] = None
        elif isinstance(action, PutPartition | DropPartition):
            paths[action.path] = None
    writes = [Write(partition_scope(path), "observed") for path in paths]
    fields = next((action.definition.fields for action in actions if isinstance(action, PutTable)), state.table.fields)
    if fields != state.table.fields:
        writes.append(Write(SCHEMA_SCOPE, "observed"))
    return tuple(writes)


def check_types(logged: State, observed: State) -> None:
    """Check that columns of which indexes hold values are of the types that the log names, as far as they are there.

    :raises InvalidSchema: naming an index, and its first column of another type.
    """
    source = observed.table.source
    if source is None:
        return
    types = {field.name: field.type for field in observed.table.fields}
    before = {field.name: field.type for field in logged.table.fields}
    for name, entry in observed.indexes.items():
        for column in held_by(observed.table, entry.definition):
            if column in types and before.get(column, types[column]) != types[column]:
                raise InvalidSchema(
                    f"The column {column!r} of the source {source.location} was of type {before[column]} and is of "
                    f"type {types[column]} now; the index {name!r} holds it as it was, and queries do not use it.",
                    hint=f"Drop the index, drop_index({name!r}), and create it again.",
                )
