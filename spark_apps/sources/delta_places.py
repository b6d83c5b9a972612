"""Places that the log of a Delta table leads to beside its data files: sidecars of checkpoints, and deletion vectors.

``deltalake`` opens both wherever the log says, and reports neither. So before it reads a version, this module reads the
files of the log that it will read, for these places alone, and looks at them again afterwards: a version that was
changed meanwhile is read anew. No Spark.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

from spark_apps.storage.documents import decode, prepare
from spark_apps.storage.errors import StorageUnavailable, UnsupportedSource, VersionNotFound
from spark_apps.storage.parquet.files import open_file
from spark_apps.storage.printing import printable
from spark_apps.storage.store import ObjectInfo, ObjectStore, Store
from spark_apps.timeline.allowed_sources import Folder

LOG = "_delta_log"
_SIDECARS = f"{LOG}/_sidecars"
_AT_ONCE = 16
_TRIES = 3
_MAX_BYTES = 1 << 31
"""Bytes of one file of the log; a checkpoint of a million files has some hundred megabytes."""

_COMMIT = re.compile(rf"{LOG}/(\d{{20}})\.json")
_COMPACTED = re.compile(rf"{LOG}/(\d{{20}})\.(\d{{20}})\.compacted\.json")
_CHECKPOINT = re.compile(
    rf"{LOG}/(\d{{20}})\.checkpoint(?:\.(\d{{10}})\.(\d{{10}})|\.[0-9A-Za-z\-]+)?\.(?:parquet|json)"
)

_VECTOR = ("storageType", "pathOrInlineDv")
_UUID = 20
"""Characters of the id that a vector's file is named by; what is before them is a folder."""


class _Vector(msgspec.Struct):
    kind: str = msgspec.field(name="storageType")
    place: str = msgspec.field(name="pathOrInlineDv")


class _File(msgspec.Struct):
    vector: _Vector | None = msgspec.field(default=None, name="deletionVector")


class _Sidecar(msgspec.Struct):
    path: str


class _Action(msgspec.Struct):
    add: _File | None = None
    remove: _File | None = None
    sidecar: _Sidecar | None = None


prepare(_Action)


def read_checked(store: Store, version: int | None, load: Callable[[int | None], Any]) -> Any:
    """Load a version of a Delta table, once each place that its log names was found to be in the table.

    :param store: of the table's folder.
    :param version: the newest by default.
    :param load: what loads a version.
    :return: what ``load`` returns; it is asked as well where there is no log, for its own words on that.
    :raises UnsupportedSource: naming a place outside of the table.
    :raises VersionNotFound: if the log has not that version.
    :raises StorageUnavailable: if the log cannot be read, or does not stay as it is.
    """
    if "://" not in store.uri and not Path(store.uri, LOG).is_dir():
        return load(None)  # a look must not leave a folder behind
    for _ in range(_TRIES):
        before = _files_of(store, version)
        if not before.files:
            return load(None)
        _Places(store).check(before.files)
        loaded = load(before.number)
        if _files_of(store, before.number) == before:
            return loaded
    raise StorageUnavailable(
        f"The log of {store.uri} changed each time that it was read.",
        outcome="Nothing was changed.",
        hint="Try again when its writers are done.",
    )


@dataclass(frozen=True)
class _LogFiles:
    """The files of a log that say what a version is: none where there is no log."""

    number: int
    files: tuple[ObjectInfo, ...]


def _files_of(store: Store, version: int | None) -> _LogFiles:
    """Return the files that a reader of a version may read: of the newest whole checkpoint, and what follows."""
    check_links(store)
    infos = store.list(LOG)
    commits = {int(found[1]): info for info in infos if (found := _COMMIT.fullmatch(info.key))}
    checkpoints: dict[int, list[tuple[ObjectInfo, int]]] = {}
    for info in infos:
        if found := _CHECKPOINT.fullmatch(info.key):
            checkpoints.setdefault(int(found[1]), []).append((info, int(found[3] or 1)))
    known = {*commits, *checkpoints}
    if not known:
        return _LogFiles(-1, ())
    number = max(known) if version is None else version
    if number not in known:
        raise VersionNotFound(
            f"Version {number} of the Delta table {store.uri} cannot be loaded: its log has none.",
            hint="Choose a version that its log still holds.",
        )
    whole = (at for at, parts in checkpoints.items() if at <= number and len(parts) >= min(most for _, most in parts))
    start = max(whole, default=-1)
    files = [info for info, _ in checkpoints.get(start, ())]
    files += [info for at, info in commits.items() if start < at <= number]
    for info in infos:
        if (found := _COMPACTED.fullmatch(info.key)) and int(found[1]) <= number and int(found[2]) > start:
            files.append(info)
    return _LogFiles(number, tuple(sorted(files, key=lambda info: info.key)))


def check_links(store: ObjectStore) -> None:
    """Check that no symbolic link in the folder of a log, nor the folder itself, leads out of the table.

    :raises UnsupportedSource: naming one that does.
    """
    if "://" in store.uri:
        return
    folder, table = f"{store.uri.rstrip('/')}/{LOG}", Folder(store.uri)
    with os.scandir(folder) as entries:
        links = [entry.path for entry in entries if entry.is_symlink()]
    for path in [folder, *links]:
        if not table.holds(path):
            raise _outside(store, "the file", path)


class _Places:
    """The places that files of one log name."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._table, self._sidecars = Folder(store.uri), Folder(f"{store.uri}/{_SIDECARS}")

    def check(self, files: Iterable[ObjectInfo]) -> None:
        """Check the places that files of the log name, and that their sidecars name.

        :raises UnsupportedSource: naming one outside of the table.
        """
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            sidecars = sorted({key for keys in pool.map(lambda info: self._check(info.key), files) for key in keys})
            for further in pool.map(self._check, sidecars):
                if further:
                    raise _outside(self._store, "the sidecar", further[0])

    def _check(self, key: str) -> list[str]:
        """Check what one file names, and return the keys of sidecars that it lists."""
        body = self._store.get(key, _MAX_BYTES)
        sidecars = []
        what = f"{self._store.uri}/{key}"
        for action in _of_parquet(body, what) if key.endswith(".parquet") else _of_lines(body, what):
            for file in (action.add, action.remove):
                if file is not None and file.vector is not None:
                    self._check_vector(file.vector)
            if action.sidecar is not None:
                sidecars.append(self._sidecar(action.sidecar.path))
        return sidecars

    def _check_vector(self, vector: _Vector) -> None:
        if not is_inside(self._table, vector.kind, vector.place):
            raise _outside(self._store, "the deletion vector", vector.place)

    def _sidecar(self, path: str) -> str:
        key = self._sidecars.key(path)
        if key is None:
            raise _outside(self._store, "the sidecar", path)
        return f"{_SIDECARS}/{key}"


def is_inside(table: Folder, kind: str, place: str) -> bool:
    """Test whether a deletion vector is in the folder of its table, or in the log itself."""
    if kind == "i":
        return True
    if kind == "u":
        return table.key(f"{place[:-_UUID]}/vector" if len(place) > _UUID else "vector") is not None
    return kind == "p" and table.holds(place) and table.holds(unquote(place))


def _outside(store: ObjectStore, what: str, path: str) -> UnsupportedSource:
    return UnsupportedSource(
        f"The log of {store.uri} leads to {what} {printable(path[:300])}, which is outside of the table.",
        hint="Register the table that it belongs to.",
    )


def _of_lines(body: bytes, what: str) -> Iterator[_Action]:
    for line in body.split(b"\n"):
        if line.strip():
            yield decode(line, _Action, what)


def _of_parquet(body: bytes, what: str) -> Iterator[_Action]:
    """Yield the actions of a checkpoint that name a place, of no other column than those that do."""
    import pyarrow as pa

    try:
        opened = open_file(body)
        names = _columns(opened.schema_arrow)
        if not names:
            return
        rows = opened.read(columns=names)
        for kind in rows.column_names:
            present = rows.column(kind).filter(rows.column(kind).is_valid()).combine_chunks()
            for value in present.to_pylist():
                try:
                    yield msgspec.convert({kind: value}, _Action)
                except msgspec.ValidationError as error:
                    raise StorageUnavailable(f"{what} cannot be read: {error}.") from error
    except (pa.ArrowException, OSError, NotImplementedError) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StorageUnavailable(f"{what} cannot be read: {text}.") from error


def _columns(schema: Any) -> list[str]:
    import pyarrow.types as types

    names = []
    for kind in ("add", "remove"):
        at = schema.get_field_index(kind)
        struct = schema.field(at).type if at >= 0 else None
        if struct is not None and types.is_struct(struct) and struct.get_field_index("deletionVector") >= 0:
            names += [f"{kind}.deletionVector.{name}" for name in _VECTOR]
    return [*names, "sidecar.path"] if schema.get_field_index("sidecar") >= 0 else names
