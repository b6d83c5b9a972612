"""Changes of a registered source against what its log holds, found out without Spark.

Each kind of source is asked for the least that shows a change: the newest version in a Delta log, the current snapshot
in Iceberg's metadata, the list of plain files. What changed in the rows only a refresh finds out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from spark_apps.layout.partitions import unescape
from spark_apps.sources.iceberg_catalog import io_properties, load_named, metadata_file
from spark_apps.sources.listing import ListedFile, list_folder
from spark_apps.sources.logs.delta import DeltaLog
from spark_apps.storage.documents import prepare
from spark_apps.storage.errors import EnvironmentMismatch, InvalidInput, ObjectNotFound, StorageUnavailable
from spark_apps.storage.store import Store
from spark_apps.timeline.allowed_sources import CATALOG, IDENTIFIER, RECURSIVE, check_allowed, is_set
from spark_apps.timeline.locations import locate
from spark_apps.timeline.model import DATA_TREE, SourceDefinition
from spark_apps.timeline.state import State

_MAX_PARTITIONS = 100


@dataclass(frozen=True)
class Change:
    """A state of a source that its log does not know.

    :param mark: an id of that state, the same whenever it is looked at again.
    :param event: what an event says of it, as JSON types.
    """

    mark: str
    event: dict[str, Any]


class SourceState(Protocol):
    """A source of one kind, as it was observed."""

    def change(self, state: State) -> Change | None:
        """Return how the source differs from what a state of its log holds; ``None`` if it does not.

        :raises StorageUnavailable: if it cannot be looked at.
        """


def source_state(
    state: State, log: str, options: Mapping[str, Any] | None = None, partition: str | None = None
) -> SourceState:
    """Return the source of a registered table.

    :param log: address of the table's log.
    :param options: how its store is reached, and the ``source_roots`` of the connection.
    :param partition: of plain files: take no notice of changes elsewhere.
    :raises SourceNotAllowed: if the connection does not allow the log to name it.
    :raises InvalidInput: if the table has no source, or one of a format whose partitions cannot be distinguished.
    """
    definition = state.table.source
    if definition is None:
        raise InvalidInput(
            "The table is no registered source: nobody but this package writes it.",
            hint="Watch its commits, with CommitEventTrigger.",
        )
    check_allowed(log, definition, options)
    if definition.format == "hudi":
        raise InvalidInput(
            "Changes of a Hudi table are not watched.",
            hint="Refresh its indexes by a schedule, or after the tasks that write it.",
        )
    if definition.format in ("delta", "iceberg"):
        if partition is not None:
            raise InvalidInput(
                f"Changes of a {definition.format} table are not told apart by partition.",
                hint="Leave partition out; a refresh of some partitions does the rest.",
            )
        return _DeltaLog(definition, options) if definition.format == "delta" else _Iceberg(definition, options)
    return _PlainFiles(definition, options, partition)


@dataclass(frozen=True)
class _DeltaLog:
    """The newest version in the table's log."""

    source: SourceDefinition
    options: Mapping[str, Any] | None

    def change(self, state: State) -> Change | None:
        assert state.table.source is not None
        known = -1 if state.table.source.version is None else int(state.table.source.version)
        newest = DeltaLog(Store(locate(self.source.location).uri, self.options)).newest(known)
        if newest <= known:
            return None
        return Change(f"delta:{newest}", {"format": "delta", "version": str(newest), "from_version": str(known)})


class _CurrentSnapshot(msgspec.Struct):
    """The one field of a table's metadata that is asked for."""

    current: int | None = msgspec.field(default=None, name="current-snapshot-id")


@dataclass(frozen=True)
class _Iceberg:
    """The current snapshot, by the metadata file that the version hint names, or by the catalog."""

    source: SourceDefinition
    options: Mapping[str, Any] | None

    def change(self, state: State) -> Change | None:
        assert state.table.source is not None
        known = state.table.source.version
        current = self._by_catalog() if CATALOG in self.source.options else self._by_hint()
        now = None if current in (None, -1) else str(current)
        if now is None or now == known:
            return None
        return Change(f"iceberg:{now}", {"format": "iceberg", "version": now, "from_version": known})

    def _by_hint(self) -> int | None:
        folder, _, name = metadata_file(locate(self.source.location).uri, self.options).rpartition("/")
        return _current(Store(folder, self.options).get(name))

    def _by_catalog(self) -> int | None:
        try:
            from pyiceberg.exceptions import NoSuchTableError
        except ImportError as error:
            raise EnvironmentMismatch(
                "The catalog of an Iceberg table is asked by the package pyiceberg, which is not installed here.",
                hint="Install 'airflow-provider-index[lake]' where the triggerer runs.",
            ) from error
        name = self.source.options[IDENTIFIER]
        try:
            snapshot_id: int | None = load_named(
                self.source.options, io_properties(self.options)
            ).metadata.current_snapshot_id
        except NoSuchTableError as error:
            raise ObjectNotFound(f"The catalog holds no Iceberg table {name}: {error}.") from error
        except (ValueError, KeyError, OSError) as error:
            raise StorageUnavailable(f"The Iceberg table {name} cannot be loaded: {error}.") from error
        return snapshot_id


def _current(metadata: bytes) -> int | None:
    try:
        return msgspec.json.decode(metadata, type=_CurrentSnapshot).current
    except msgspec.DecodeError as error:
        raise StorageUnavailable(f"The metadata of an Iceberg table cannot be read: {error}.") from error


@dataclass(frozen=True)
class _PlainFiles:
    """The list of files, with their sizes and times, against those of the log."""

    source: SourceDefinition
    options: Mapping[str, Any] | None
    partition: str | None

    def change(self, state: State) -> Change | None:
        location = locate(self.source.location)
        recursive = is_set(self.source.options, RECURSIVE)
        columns = {name.lower() for name in state.table.partition_by}
        there: dict[str, tuple[Any, ...]] = {}
        where: dict[str, str] = {}
        listed, read = list_folder(location, self.options), []
        for file in listed.files:
            folder = "" if recursive else _partition(file)
            # As when the source is read: files beside the partitions, or in other folders, are no part of it.
            if columns and not recursive and {name for name, _ in _values(folder)} != columns:
                continue
            if not columns and location.pattern is None and not recursive and "/" in file.relative:
                continue
            read.append(file)
            there[file.path] = _contents(file.bytes, file.modified, file.etag)
            where[file.path] = folder
        listed.check_plain(location, read)
        logged = state.files(DATA_TREE)
        known = {
            one.path: _contents(one.bytes, (one.extra or {}).get("modified"), (one.extra or {}).get("etag"))
            for one in logged
        }
        where = {**{one.path: one.partition for one in logged}, **where}
        added = [
            path for path, contents in there.items() if known.get(path) != contents and self._is_watched(where[path])
        ]
        removed = [path for path, old in known.items() if there.get(path) != old and self._is_watched(where[path])]
        if not added and not removed:
            return None
        lines = [f"{path}\0{there.get(path)}\n" for path in sorted({*added, *removed})]
        partitions = sorted({where[path] for path in (*added, *removed)})
        event = {
            "format": self.source.format,
            "version": None,
            "files_added": len(added),
            "files_removed": len(removed),
            "partitions": partitions[:_MAX_PARTITIONS] if columns else [],
        }
        return Change(f"files:{hashlib.sha256(''.join(lines).encode()).hexdigest()[:24]}", event)

    def _is_watched(self, folder: str) -> bool:
        return self.partition is None or set(_values(self.partition)) <= set(_values(folder))


def _contents(size: int, modified: float | None, etag: str | None) -> tuple[Any, ...]:
    return size, None if modified is None else round(modified, 6), etag


def _partition(file: ListedFile) -> str:
    return "/".join(folder for folder in file.relative.split("/")[:-1] if "=" in folder)


def _values(folder: str) -> list[tuple[str, str]]:
    parts = (part.partition("=") for part in folder.split("/") if part)
    return [(unescape(name).lower(), unescape(text)) for name, _, text in parts]


prepare(_CurrentSnapshot)
