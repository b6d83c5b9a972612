"""The state of a table at one version: the log folded up to there.

``apply`` alone defines what an action means. It decides nothing: whether a commit may be made was settled when it was
made (:mod:`spark_apps.timeline.commit`), so folding the same log gives the same state anywhere.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from spark_apps.storage.errors import IndexNotFound, LogDamaged, TableNotFound
from spark_apps.storage.printing import Printed, View, moment_text
from spark_apps.timeline import model
from spark_apps.timeline.field_types import Buckets, InstantOrNone, Moment, Partition, Version, VersionOrNone, Words
from spark_apps.timeline.files import DataFile, FileSet, GroupKey, covered_lineages, lowest_plain_file
from spark_apps.timeline.model import (
    DATA_TREE,
    TOMBSTONES_TREE,
    Commit,
    HashingConfig,
    IndexDefinition,
    IndexState,
    Scope,
    Struct,
    TableDefinition,
)
from spark_apps.timeline.validation import check_paths


class Window(Printed, Struct, frozen=True):
    """An open stop-write window. ``epoch`` is the version that opened it; times are seconds since 1970 (UTC)."""

    epoch: Version
    holder: Words
    deadline: Moment
    last_moment: Moment
    partitions: tuple[Partition, ...] | None = None

    def covers(self, scope: Scope) -> bool:
        """Test whether a write to ``scope`` falls into this window. One over partitions leaves index shards alone."""
        if self.partitions is None or scope.kind == "table":
            return True
        return scope.partition is not None and scope.partition in self.partitions

    @property
    def scope_text(self) -> str:
        return "the whole table" if self.partitions is None else "partitions " + ", ".join(map(repr, self.partitions))

    def view(self) -> View:
        times = [("deadline", moment_text(self.deadline)), ("last moment", moment_text(self.last_moment))]
        return View(f"stop-write window {self.epoch} over {self.scope_text}", [("holder", self.holder), *times])


class PartitionEntry(Struct, frozen=True):
    """A partition: its bucket count, its columns' values as strings, and the instant of its count.

    The count is ``None`` without a bucket layout; the instant is that of the commit that gave it this count.
    """

    buckets: Buckets | None = None
    values: tuple[Words | None, ...] = ()
    since: InstantOrNone = ""


class IndexEntry(Struct, frozen=True):
    """An index as of a version.

    ``lag`` names the file groups it does not cover: covered through which version. ``dirty`` holds for each of these
    the newest version whose change has no entries in the index: covered through that version, it is covered as a whole,
    because later changes, if any, brought their own entries. An index that addresses files lags in a group whenever a
    file of it is new to the index, whatever its rows. ``gone`` holds for some of these groups the newest version in
    which rows went and the index kept their entries: only a comparison with the group as a whole, as of that version or
    later, removes them.
    """

    definition: IndexDefinition
    state: IndexState = "active"
    lag: dict[GroupKey, int] = {}
    dirty: dict[GroupKey, int] = {}
    created: VersionOrNone = 0
    refreshed: VersionOrNone = 0
    gone: dict[GroupKey, int] = {}

    def covers(self, group: GroupKey) -> bool:
        """Test whether the index covers all of a file group."""
        return group not in self.lag

    @property
    def active(self) -> bool:
        return self.state == "active"

    @property
    def by_file(self) -> bool:
        """True if entries name files; those of a file that is gone are known to be void."""
        return self.definition.addresses == "file"


def was_kept_current(known: IndexEntry, now: IndexEntry, since: int) -> bool:
    """Test whether an index was kept in step with every change of rows since version ``since``.

    It must be the index that was known then: what was looked up in it then need not be looked up again.
    """
    same = known.definition.tree == now.definition.tree and now.refreshed <= max(since, known.refreshed)
    return same and all(version <= since for version in now.dirty.values())


class CommitDelta:
    """The changes by one commit to the groups of the table's own rows, gathered while it is folded in."""

    def __init__(self) -> None:
        self.changed: set[GroupKey] = set()
        self.moved: set[GroupKey] = set()
        self.filled: set[GroupKey] = set()
        self.arrived: set[GroupKey] = set()
        self.born: set[GroupKey] = set()
        self.cut: set[GroupKey] = set()
        # Tree of an index -> the groups that a stage of its own marked as covered by this very commit.
        self.marked: dict[str, set[GroupKey]] = {}
        self.restored = False

    def marked_groups(self, entry: IndexEntry) -> set[GroupKey]:
        return self.marked.get(entry.definition.tree, set())


# --- The state of a table at one version ----------------------------------------------------------------------------


__all__ = ["CONFIGS_KEPT", "METAS_KEPT", "NEVER", "IndexEntry", "PartitionEntry", "State", "Window"]

NEVER = -1
"""As the "covered through" version of a file group: the index covers nothing of it."""

_ENDED_WINDOWS_KEPT = 50

CONFIGS_KEPT = 5
METAS_KEPT = 10
"""Hashing files of each kind that stay where they are written; older ones are archived (seed: partition-level bucket
index)."""


class State:
    """A snapshot of one table. Treat it as read-only; the log makes new ones."""

    def __init__(self) -> None:
        self.version = -1
        self.instant = ""
        self.definition: TableDefinition | None = None
        self.partitions: dict[str, PartitionEntry] = {}
        self.indexes: dict[str, IndexEntry] = {}
        self.file_set = FileSet()
        self.configs: list[HashingConfig] = []
        # The newest hashing files, oldest first: those of configs by their instants.
        self.config_paths: dict[str, str] = {}
        self.meta_paths: list[str] = []
        self.windows: dict[int, Window] = {}
        self.ended_windows: dict[int, str] = {}
        self.committed: dict[str, tuple[int, int]] = {}
        self.aborted: dict[str, list[int]] = {}
        self.restores: list[tuple[int, int]] = []
        self.expired_below = 0
        self.dropped = False
        # Version of the newest drop of a table in this log, -1 without one; None in old checkpoints.
        self.last_drop: int | None = NEVER
        self.reader_features: tuple[str, ...] = ()
        self.writer_features: tuple[str, ...] = ()

    # --- reading ----------------------------------------------------------------------------------------------

    @property
    def table(self) -> TableDefinition:
        """Return the table's definition.

        :raises TableNotFound: before it was created and after it was dropped.
        """
        if self.definition is None or self.dropped:
            raise TableNotFound(
                f"The table is {'dropped' if self.dropped else 'not created'} as of version {self.version}."
            )
        return self.definition

    @property
    def active_indexes(self) -> list[str]:
        """The names of the indexes that queries use, in their order."""
        return sorted(name for name, entry in self.indexes.items() if entry.active)

    def index(self, name: str) -> IndexEntry:
        """Return an index by its name.

        :raises IndexNotFound: if there is none, naming those that exist.
        """
        if name not in self.indexes:
            known = ", ".join(sorted(self.indexes)) or "none"
            raise IndexNotFound(f"There is no index {name!r}; the table has: {known}.", hint="Check the name.")
        return self.indexes[name]

    def index_of_tree(self, tree: str) -> IndexEntry | None:
        return next((entry for entry in self.indexes.values() if entry.definition.tree == tree), None)

    def files(self, tree: str, partition: str | None = None, group: str | None = None) -> list[DataFile]:
        """Return the live files of a merge tree (of a partition, of a group)."""
        return list(self.file_set.files(tree, partition, group))

    def groups(self, tree: str) -> dict[GroupKey, list[DataFile]]:
        """Return (partition, group) -> live files in merge order."""
        return self.file_set.groups(tree)

    def is_aborted(self, txn_id: str, attempt: int) -> bool:
        return attempt in self.aborted.get(txn_id, ())

    def is_in_effect(self, version: int) -> bool:
        """Test whether the effect of a commit is part of this state.

        It is not once a restore has taken it back, or the table that it was made on was dropped.
        """
        if self.last_drop is not None and version < self.last_drop:
            return False
        upper = self.version
        for at, to in reversed(self.restores):
            if at > upper:
                continue
            if version >= at:
                return True
            if version > to:
                return False
            upper = to
        return version <= upper

    # --- folding ----------------------------------------------------------------------------------------------

    def copy(self) -> State:
        """Return a state that can be folded further while this one stays."""
        other = State()
        other.__dict__.update(self.__dict__)
        for name in ("partitions", "indexes", "config_paths", "windows", "ended_windows", "committed"):
            setattr(other, name, dict(getattr(self, name)))
        other.aborted = {txn: list(attempts) for txn, attempts in self.aborted.items()}
        other.configs, other.meta_paths = list(self.configs), list(self.meta_paths)
        other.restores = list(self.restores)
        other.file_set = self.file_set.copy()
        return other

    def apply(self, commit: Commit) -> None:
        """Fold the next commit in.

        :raises LogDamaged: if it is not the next one, or lists files that cannot be the table's; then nothing of it was
            folded in.
        """
        if commit.version != self.version + 1:
            raise LogDamaged(f"Version {commit.version} follows version {self.version} in the log.")
        check_paths(commit.actions, self.definition)
        self.version, self.instant = commit.version, commit.instant
        self.reader_features, self.writer_features = commit.reader_features, commit.writer_features
        self.committed[commit.txn_id] = (commit.version, commit.attempt)
        lag_before = {name: entry.lag for name, entry in self.indexes.items() if entry.lag}
        effect = CommitDelta()
        for action in commit.actions:
            if type(action) is model.AddFile:
                self._add(action, commit, effect)
            else:
                self._note_changed_rows(effect, commit)
                _FOLD[type(action)](self, action, commit, effect)
        replaces = any(write.mode in ("replace", "observed") for write in commit.writes)
        if not effect.restored and replaces:
            # Rows that went without others instead: an index that was not kept in step still lists them.
            thinned = {group for group in effect.cut - effect.filled if self._has_files(group)}
            effect.changed |= thinned
            self._note_changed_rows(effect, commit)
            for name, entry in self.indexes.items():
                if not entry.by_file and entry.definition.tree not in commit.maintained:
                    self._note_removed_rows(name, thinned - effect.marked_groups(entry), commit)
            self._spread_lag(lag_before, effect.moved, commit)
        self._note_changed_rows(effect, commit)
        if not effect.restored:
            emptied = {group for group in effect.cut if not self._has_files(group)}
            moved = {group for group in emptied if replaces and group[0] in {other[0] for other in effect.moved}}
            self._forget_lag(moved)  # their rows are in other groups now, and so is what they lagged by
            self._note_emptied_groups(emptied - moved, commit, replaces, effect)
            self._note_new_groups(effect.born - effect.cut, commit, effect)

    def _has_files(self, group: GroupKey) -> bool:
        return self.file_set.has_files(DATA_TREE, *group)

    def _forget_lag(self, groups: set[GroupKey]) -> None:
        for name, entry in self.indexes.items():
            if groups & entry.lag.keys():
                self._set_lag(name, {group: at for group, at in entry.lag.items() if group not in groups}, entry.dirty)

    def _note_emptied_groups(self, groups: set[GroupKey], commit: Commit, rows_went: bool, effect: CommitDelta) -> None:
        """Note file groups that are gone.

        An index that was not kept in step, or did not cover them, still holds entries of their rows; it must not count
        as covering such a group should it come into being again.
        """
        for name, entry in self.indexes.items():
            if entry.by_file:
                self._set_lag(name, {g: at for g, at in entry.lag.items() if g not in groups}, entry.dirty)
                continue
            kept_current = not rows_went or entry.definition.tree in commit.maintained
            stale = {group for group in groups if group in entry.lag or not kept_current}
            self._note_removed_rows(name, stale - effect.marked_groups(entry), commit)

    def _note_removed_rows(self, name: str, groups: set[GroupKey], commit: Commit) -> None:
        """Note groups of which an index still lists rows that went: none of its entries on them counts."""
        if groups:
            entry, now = self.indexes[name], dict.fromkeys(groups, commit.version)
            lag = {**entry.lag, **dict.fromkeys(groups, NEVER)}
            self._set_lag(name, lag, {**entry.dirty, **now}, {**entry.gone, **now})

    def _note_new_groups(self, born: set[GroupKey], commit: Commit, effect: CommitDelta) -> None:
        """Note new file groups of a partition of which the index still lists rows that went.

        Its buckets may be counted anew, so that those entries point into any of them.
        """
        partitions = {partition for partition, _ in born}
        for name, entry in self.indexes.items():
            stale = {
                group[0]
                for group in entry.gone
                if group[0] in partitions and (group in born or not self._has_files(group))
            }
            again = {group for group in born if group[0] in stale} - effect.marked_groups(entry)
            self._note_removed_rows(name, again, commit)

    def _note_changed_rows(self, effect: CommitDelta, commit: Commit) -> None:
        """Note groups whose rows changed (of which a file is new).

        They lag behind in every index that the commit did not keep in step.
        """
        for name, entry in self.indexes.items():
            groups = effect.changed | effect.arrived if entry.by_file else effect.changed
            groups = groups - effect.marked_groups(entry)
            if groups and entry.definition.tree not in commit.maintained:
                lag = {**dict.fromkeys(groups, commit.version - 1), **entry.lag}
                self._set_lag(name, lag, {**entry.dirty, **dict.fromkeys(groups, commit.version)})
        effect.changed.clear()
        effect.arrived.clear()

    def _spread_lag(self, before: dict[str, dict[GroupKey, int]], moved: set[GroupKey], commit: Commit) -> None:
        """Spread the lag of groups of a partition whose rows moved (a rescale).

        What one group lagged by, all may lag by now.
        """
        for name in before.keys() & self.indexes.keys():
            entry = self.indexes[name]
            if entry.by_file:
                continue
            lag, dirty, gone = dict(entry.lag), dict(entry.dirty), dict(entry.gone)
            for partition in {group[0] for group in moved}:
                lagging = [group for group in before[name] if group[0] == partition]
                if not lagging:
                    continue
                lowest = min(before[name][group] for group in lagging)
                newest = max(dirty.get(group, commit.version) for group in lagging)
                went = max((entry.gone[group] for group in lagging if group in entry.gone), default=None)
                for group in moved:
                    if group[0] == partition:
                        lag[group] = min(lag.get(group, lowest), lowest)
                        dirty[group] = max(dirty.get(group, newest), newest)
                        if went is not None:
                            gone[group] = max(gone.get(group, went), went)
            self._set_lag(name, lag, dirty, gone)

    def _set_lag(
        self,
        name: str,
        lag: dict[GroupKey, int],
        dirty: dict[GroupKey, int],
        gone: dict[GroupKey, int] | None = None,
    ) -> None:
        gone = self.indexes[name].gone if gone is None else gone
        self.indexes[name] = replace(
            self.indexes[name],
            lag=lag,
            dirty={group: dirty[group] for group in lag},
            gone={group: at for group, at in gone.items() if group in lag},
        )

    def _add(self, action: model.AddFile, commit: Commit, effect: CommitDelta) -> None:
        if action.tree not in (DATA_TREE, TOMBSTONES_TREE) and self.index_of_tree(action.tree) is None:
            return  # of an index that was dropped meanwhile; the file has no owner and the cleaner takes it
        file = DataFile.of(action, commit.version)
        if self._is_known(file, effect):
            return
        if action.tree == DATA_TREE and not self._has_files(file.group_key):
            effect.born.add(file.group_key)
        self.file_set.add(file)
        if action.tree == DATA_TREE:
            effect.filled.add(file.group_key)
            effect.arrived.add(file.group_key)
            (effect.changed if file.sequence_number == commit.version else effect.moved).add(file.group_key)

    def _is_known(self, file: DataFile, effect: CommitDelta) -> bool:
        """Test whether a file of a source is listed already.

        Two refreshes at once see the same new files. If they saw different ones under one name, the later one counts.
        """
        if file.tree != DATA_TREE or self.definition is None or self.definition.source is None:
            return False
        if any(there.path == file.path for there in self.file_set.files(DATA_TREE, *file.group_key)):
            return True
        if self.file_set.has(DATA_TREE, file.path):
            other = self.file_set.remove(DATA_TREE, file.path)
            assert other is not None
            effect.cut.add(other.group_key)
        return False

    def _remove(self, action: model.RemoveFile, _commit: Commit, effect: CommitDelta) -> None:
        file = self.file_set.remove(action.tree, action.path)
        if file is not None and action.tree == DATA_TREE:
            effect.cut.add(file.group_key)

    def _put_partition(self, action: model.PutPartition, commit: Commit, _effect: CommitDelta) -> None:
        there = self.partitions.get(action.path)
        since = commit.instant if there is None or there.buckets != action.buckets else there.since
        self.partitions[action.path] = PartitionEntry(action.buckets, action.values, since)

    def _drop_partition(self, action: model.DropPartition, _commit: Commit, effect: CommitDelta) -> None:
        self.partitions.pop(action.path, None)
        for file in self.files(DATA_TREE, action.path):
            self.file_set.remove(DATA_TREE, file.path)
            effect.cut.add(file.group_key)

    def _put_table(self, action: model.PutTable, *_: Any) -> None:
        self.definition, self.dropped = action.definition, False

    def _drop_table(self, _action: model.DropTable, commit: Commit, _effect: CommitDelta) -> None:
        self.dropped, self.last_drop = True, commit.version
        self.partitions, self.indexes, self.configs = {}, {}, []
        for tree in self.file_set.trees():
            self.file_set.remove_tree(tree)

    def _put_index(self, action: model.PutIndex, commit: Commit, _effect: CommitDelta) -> None:
        old = self.indexes.get(action.definition.name)
        if old is not None and old.definition.tree == action.definition.tree:
            self.indexes[action.definition.name] = replace(old, definition=action.definition, state=action.state)
            return
        if old is not None:
            self.file_set.remove_tree(old.definition.tree)
        dirty: dict[GroupKey, int] = {}
        if not action.covered:
            for file in self.file_set.files(DATA_TREE):
                dirty[file.group_key] = max(file.sequence_number, dirty.get(file.group_key, NEVER))
        self.indexes[action.definition.name] = IndexEntry(
            action.definition, action.state, dict.fromkeys(dirty, NEVER), dirty, commit.version, commit.version
        )

    def _drop_index(self, action: model.DropIndex, *_: Any) -> None:
        entry = self.indexes.pop(action.name, None)
        if entry is not None:
            self.file_set.remove_tree(entry.definition.tree)

    def _cover(self, action: model.MarkCovered, commit: Commit, effect: CommitDelta) -> None:
        entry = self.index_of_tree(action.tree)
        if entry is None:
            return
        through = commit.version if action.through is None else action.through
        only = None if action.groups is None else frozenset(action.groups)
        if action.through is None and only is not None and not entry.by_file:
            effect.marked.setdefault(action.tree, set()).update(only)
        covered = frozenset[int]() if not entry.by_file else covered_lineages(self.file_set.files(action.tree))
        if entry.by_file:
            self.file_set.read_ahead(DATA_TREE, len(entry.lag))
        lag, gone = dict[GroupKey, int](), dict(entry.gone)
        for group, known in entry.lag.items():
            elsewhere = action.partitions is not None and group[0] not in action.partitions
            if elsewhere or (only is not None and group not in only):
                lag[group] = known
            elif gone.get(group, NEVER) > through:
                lag[group] = NEVER  # a reading of the rows of before does not cover their entries
            elif entry.dirty[group] > through:
                lag[group] = max(known, through)
                gone.pop(group, None)
            elif entry.by_file and self._is_uncovered(group, covered):
                lag[group] = known
        name = entry.definition.name
        self._set_lag(name, lag, entry.dirty, gone)
        self.indexes[name] = replace(self.indexes[name], refreshed=commit.version)

    def _is_uncovered(self, group: GroupKey, covered: frozenset[int]) -> bool:
        """Test whether an index that addresses files could cover a group and does not.

        The file may have come while the index was built, with rows of before: its sequence number then does not show
        it.
        """
        lowest = lowest_plain_file(self.file_set.group(DATA_TREE, group))
        return lowest is not None and lowest.lineage not in covered

    def _set_lag_action(self, action: model.SetLag, commit: Commit, _effect: CommitDelta) -> None:
        entry = self.index_of_tree(action.tree)
        if entry is not None:
            lag = {(partition, group): through for partition, group, through in action.groups}
            gone = {group: commit.version for group, through in lag.items() if through == NEVER and not entry.by_file}
            self._set_lag(entry.definition.name, lag, dict.fromkeys(lag, commit.version), gone)

    def _put_config(self, action: model.PutHashingConfig, commit: Commit, _effect: CommitDelta) -> None:
        self.configs.append(action.config)
        self._put_config_path(action.config.instant, action.path)

    def _drop_config(self, action: model.DropHashingConfig, commit: Commit, _effect: CommitDelta) -> None:
        self.configs = [config for config in self.configs if config.instant != action.instant]
        self._put_config_path(commit.instant, action.path)

    def _put_config_path(self, instant: str, path: str | None) -> None:
        if path:
            self.config_paths[instant] = path
            for old in list(self.config_paths)[:-CONFIGS_KEPT]:
                del self.config_paths[old]

    def _put_meta(self, action: model.HashingMeta, *_: Any) -> None:
        self.meta_paths = [*self.meta_paths, action.path][-METAS_KEPT:]

    def _open_window(self, action: model.OpenWindow, commit: Commit, _effect: CommitDelta) -> None:
        self.windows[commit.version] = Window(
            commit.version, action.holder, action.deadline, action.last_moment, action.partitions
        )

    def _renew_window(self, action: model.RenewWindow, *_: Any) -> None:
        window = self.windows.get(action.epoch)
        if window is not None:
            # Two renewals may have raced; none shortens the other's, and none passes the last moment.
            deadline = max(window.deadline, min(action.deadline, window.last_moment))
            self.windows[action.epoch] = replace(window, deadline=deadline)

    def _close_window(self, action: model.CloseWindow, commit: Commit, _effect: CommitDelta) -> None:
        self._end(action.epoch, f"was closed by its holder in version {commit.version}")

    def _end_window(self, action: model.EndWindow, commit: Commit, _effect: CommitDelta) -> None:
        self._end(
            action.epoch,
            f"passed its deadline and was ended by {action.ended_by} in version {commit.version}",
        )

    def _end(self, epoch: int, how: str) -> None:
        window = self.windows.pop(epoch, None)
        if window is not None:
            self.ended_windows[epoch] = f"the window of {window.holder} over {window.scope_text} {how}"
            for old in sorted(self.ended_windows)[:-_ENDED_WINDOWS_KEPT]:
                del self.ended_windows[old]

    def _abort(self, action: model.Abort, *_: Any) -> None:
        if not self.is_aborted(action.txn_id, action.attempt):
            self.aborted.setdefault(action.txn_id, []).append(action.attempt)

    def _expire(self, action: model.Expire, *_: Any) -> None:
        self.expired_below = max(self.expired_below, action.below)

    def _restore(self, action: model.Restore, commit: Commit, effect: CommitDelta) -> None:
        effect.restored = True
        self.restores.append((commit.version, action.to))


_FOLD: dict[type, Any] = {
    model.RemoveFile: State._remove,
    model.PutPartition: State._put_partition,
    model.DropPartition: State._drop_partition,
    model.PutTable: State._put_table,
    model.DropTable: State._drop_table,
    model.PutIndex: State._put_index,
    model.DropIndex: State._drop_index,
    model.MarkCovered: State._cover,
    model.SetLag: State._set_lag_action,
    model.PutHashingConfig: State._put_config,
    model.DropHashingConfig: State._drop_config,
    model.HashingMeta: State._put_meta,
    model.OpenWindow: State._open_window,
    model.RenewWindow: State._renew_window,
    model.CloseWindow: State._close_window,
    model.EndWindow: State._end_window,
    model.Abort: State._abort,
    model.Expire: State._expire,
    model.Restore: State._restore,
}
