"""Checks of what several fields of a commit hold together: numbers that fit its version, paths that are its table's.

What each field may hold by itself, its type defines (:mod:`spark_apps.timeline.field_types`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from typing import Any

import msgspec

from spark_apps.storage.documents import prepare, reason
from spark_apps.storage.errors import LogDamaged
from spark_apps.timeline import model
from spark_apps.timeline.field_types import (
    FILE_PATH,
    GROUP,
    INDEX_FILES,
    KEY_NAME,
    LAST_VERSION,
    PARTITION,
    TREE,
    Bytes,
    Count,
    Label,
    Moment,
    Words,
)
from spark_apps.timeline.limits import MAX_ACTIONS, MAX_TYPE_DEPTH
from spark_apps.timeline.model import (
    DATA_TREE,
    TOMBSTONES_TREE,
    AddFile,
    AnyAction,
    Commit,
    PutTable,
    RemoveFile,
    SourceDefinition,
    Struct,
    TableDefinition,
)

HINT = "Nothing was opened. Restore the log from a backup, or find out who wrote to it."
_BELOW = frozenset(("parquet", "orc", "csv", "json", "delta"))
_PATTERN = re.compile(r"[*?\[{].*")


def check_commit(commit: Commit, where: str) -> None:
    """Check a commit that was read.

    :param where: names the commit and its table.
    :raises LogDamaged: if it cannot be, naming the field.
    """
    version, actions = commit.version, commit.actions
    try:
        date(int(commit.instant[:4]), int(commit.instant[4:6]), int(commit.instant[6:8]))
    except ValueError as error:
        raise _damaged(where, "instant", commit.instant) from error
    if commit.base >= version:
        raise _damaged(where, "base", commit.base)
    if commit.epoch is not None and commit.epoch >= version:
        raise _damaged(where, "epoch", commit.epoch)
    check_actions(actions, version, where)


def check_actions(actions: Sequence[AnyAction], version: int | None, where: str) -> None:
    """Check the actions of a commit or a stage.

    :param version: that the actions are published as, ``None`` for a stage's, which are not yet.
    :raises LogDamaged: if one cannot be, naming the action and its field.
    """
    if len(actions) > MAX_ACTIONS:
        raise _damaged(where, "number of actions", len(actions))
    texts, last = _Texts(), LAST_VERSION if version is None else version
    for number, action in enumerate(actions):
        if type(action) is AddFile:
            wrong = texts.invalid_field(action)
            if wrong is None and action.sequence_number is not None and action.sequence_number > last:
                raise _damaged(where, f"actions[{number}].place", action.sequence_number)
            if action.extra:
                try:
                    check_extra(action.extra)
                except LogDamaged as error:
                    raise LogDamaged(f"{where}, actions[{number}].extra: {error.message}", hint=HINT) from error
        elif type(action) is RemoveFile:
            wrong = None if texts.is_tree(action.tree) else "tree"
        else:
            check = _CHECKS.get(type(action))
            wrong = None if check is None else check(action, last)
        if wrong is not None:
            value = getattr(action, wrong.partition(".")[0])
            raise _damaged(where, f"actions[{number}].{wrong}", value)


def check_together(actions: Mapping[str, AnyAction], version: int, where: str) -> None:
    """Check a state by the rules for actions that lead to it.

    :param actions: by the prefix of their fields' names in the state.
    :param version: of the state.
    :raises LogDamaged: if a field cannot be, naming it.
    """
    for prefix, action in actions.items():
        wrong = _CHECKS[type(action)](action, version)
        if wrong is not None:
            raise _damaged(where, f"{prefix}{wrong}", getattr(action, wrong.partition(".")[0]))


class _Part(Struct, frozen=True):
    columns: tuple[Label, ...]
    lineages: tuple[Count, ...]
    stage: Label = ""
    lacks: tuple[Label, ...] = ()
    bytes: tuple[Count, ...] = ()
    dropped: tuple[Count, ...] = ()


class _Positions(Struct, frozen=True, forbid_unknown_fields=True):
    over: Count
    hidden: Count = 0
    bytes: Bytes = 0


class _Extra(Struct, frozen=True):
    """The known part of :attr:`AddFile.extra`; handlers of indexes may have more in it."""

    covers: tuple[_Part, ...] = ()
    positions: _Positions | None = None
    new_keys: bool = False
    replaced: Count | None = None
    ordered: bool = False
    kept: Moment | None = None
    modified: float | None = None
    etag: Label | None = None
    values: dict[Label, Words | None] | None = None
    state: Words | None = None
    through: Label | None = None
    why: Words | None = None
    footer: Label | None = None
    page_index: tuple[Count, Label] | None = None


def check_extra(extra: dict[str, Any]) -> None:
    """Check the extra part of a file.

    :raises LogDamaged: if it cannot be, naming the field.
    """
    try:
        known = msgspec.convert(extra, _Extra)
    except (msgspec.ValidationError, RecursionError) as error:
        raise LogDamaged(f"What is extra of a file cannot be read: {reason(error)}.", hint=HINT) from error
    if any(part.bytes and len(part.bytes) != len(part.lineages) for part in known.covers):
        raise LogDamaged("What is extra of a file cannot be read: it has other bytes than lineages - at `$.covers`.")


class _Texts:
    """The texts of actions on files, of which few are different but the names of the files: each is checked once."""

    def __init__(self) -> None:
        self._trees: set[str] = set()
        self._partitions: set[str] = set()
        self._groups: set[str] = set()
        self._folders: set[str] = set()

    def invalid_field(self, action: AddFile) -> str | None:
        """Return the field of a file that cannot be, or ``None``."""
        if action.tree not in self._trees and not self.is_tree(action.tree):
            return "tree"
        if action.partition not in self._partitions and not _new(self._partitions, PARTITION, action.partition):
            return "partition"
        if action.group not in self._groups and not _new(self._groups, GROUP, action.group):
            return "group"
        folder, _, name = action.path.rpartition("/")
        if folder in self._folders and KEY_NAME.fullmatch(name):
            return None
        if not FILE_PATH.fullmatch(action.path):
            return "path"
        if "://" not in action.path:
            self._folders.add(folder)
        return None

    def is_tree(self, name: str) -> bool:
        return name in self._trees or _new(self._trees, TREE, name)


def _new(known: set[str], pattern: re.Pattern[str], text: str) -> bool:
    """Test whether a text fits; it is known from then on."""
    fits = pattern.fullmatch(text) is not None
    if fits:
        known.add(text)
    return fits


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _damaged(where: str, field: str, value: Any) -> LogDamaged:
    return LogDamaged(f"{where} cannot be read: its {field} cannot be {_shown(value)}.", hint=HINT)


def _before(name: str) -> Callable[[Any, int], str | None]:
    """Return a check that a field names an earlier version."""
    return lambda action, version: name if getattr(action, name) >= version else None


def _up_to(name: str) -> Callable[[Any, int], str | None]:
    """Return a check that a field names a version up to the commit's own."""
    return lambda action, version: name if (getattr(action, name) or 0) > version else None


def _lag(action: model.SetLag, version: int) -> str | None:
    return "groups" if any(through > version for _, _, through in action.groups) else None


def _window(action: model.OpenWindow, _version: int) -> str | None:
    return "last_moment" if action.last_moment < action.deadline else None


def _partition(action: model.PutPartition, _version: int) -> str | None:
    """Check that there is a value for each column of the path, or none at all."""
    if not action.values:
        return None
    return None if len(action.values) == action.path.count("=") else "values"


def _table(action: model.PutTable, _version: int) -> str | None:
    table: TableDefinition = action.definition
    if any(_depth(field.type) > MAX_TYPE_DEPTH for field in table.fields):
        return "definition.fields"
    if len({field.name for field in table.fields}) < len(table.fields):
        return "definition.fields"
    if table.source is None and not table.record_key:
        return "definition.record_key"
    names = {field.name.lower() for field in table.fields}
    for field in ("record_key", "partition_by", "hash_fields"):
        if any(name.lower() not in names for name in getattr(table, field)):
            return f"definition.{field}"
    if table.ordering_column is not None and table.ordering_column.lower() not in names:
        return "definition.ordering_column"
    return None


def _depth(type_text: str) -> int:
    depth = deepest = 0
    for sign in re.findall("[<>]", type_text):
        depth += 1 if sign == "<" else -1
        deepest = max(deepest, depth)
    return deepest


_CHECKS: dict[type, Callable[[Any, int], str | None]] = {
    model.MarkCovered: _up_to("through"),
    model.RenewWindow: _before("epoch"),
    model.CloseWindow: _before("epoch"),
    model.EndWindow: _before("epoch"),
    model.Expire: _up_to("below"),
    model.Restore: _before("to"),
    model.SetLag: _lag,
    model.OpenWindow: _window,
    model.PutPartition: _partition,
    model.PutTable: _table,
}


# --- files ------------------------------------------------------------------------------------------------------------


def data_prefix(source: SourceDefinition | None) -> str:
    """Return what the paths of a table's data files begin with.

    Files of its own are below ``data/``, those of a source below its location. Iceberg's metadata may name any, so that
    of these only is known that they are addresses.
    """
    if source is None:
        return "data/"
    if source.format not in _BELOW:
        return ""
    location = source.location if "://" in source.location else f"file://{source.location}"
    plain = _PATTERN.sub("", location)
    return plain if plain != location else f"{plain.rstrip('/')}/"


def check_paths(actions: Iterable[AnyAction], table: TableDefinition | None) -> None:
    """Check the paths of files against the table that they are to belong to.

    :param table: as of before the actions.
    :raises LogDamaged: if a file is none of the table, nor of its source.
    """
    begins = data_prefix(None if table is None else table.source)
    for action in actions:
        if type(action) is AddFile:
            inside = begins if action.tree in (DATA_TREE, TOMBSTONES_TREE) else INDEX_FILES
            # A source may be one file, which then has the location for its path.
            if not f"{action.path}/".startswith(inside) or not (inside or "://" in action.path):
                raise LogDamaged(
                    f"A file of the merge tree {action.tree!r} has the path {_shown(action.path)}, which does not "
                    f"begin with {inside or 'a scheme'!r}.",
                    hint=HINT,
                )
        elif type(action) is PutTable:
            begins = data_prefix(action.definition.source)


prepare(_Extra)
