"""A location of an object store, seen through the few calls that a table needs.

Everything is ``obstore`` underneath, but for files written to a local disk: those outlive a loss of power, which
``obstore`` syncs nothing against. This module adds create-if-absent as an operation of its own, writing exactly once
against stores that answer wrongly about it, errors of the package's tree, the path under which Spark sees the same
object, and a file that fetches only what is read of it. It knows nothing of tables or logs.
"""

from __future__ import annotations

import builtins
import io
import logging
import os
import re
import secrets
import stat
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, cast
from urllib.parse import quote, unquote

import obstore
from obstore import exceptions as obstore_errors
from obstore.store import LocalStore, from_url

from spark_apps.storage.errors import (
    InvalidInput,
    InvalidName,
    LeadsOutside,
    ObjectExists,
    ObjectNotFound,
    ObjectTooLarge,
    StorageError,
    StorageUnavailable,
)
from spark_apps.storage.limits import MAX_READ_BACK_BYTES

logger = logging.getLogger(__name__)

_SCHEMES = {"s3", "s3a", "gs", "az", "abfs", "abfss", "adl", "azure", "memory"}
HADOOP_SCHEMES = frozenset(("hdfs", "viewfs"))
"""Of file systems that Hadoop's Java alone reaches: on the driver of a Spark session
(:mod:`spark_apps.engine.hadoop_store`)."""
# Options of the HTTP client, which obstore takes apart from those of the store.
_CLIENT_OPTIONS = {"allow_http", "allow_invalid_certificates", "connect_timeout", "http1_only", "proxy_url", "timeout"}
SOURCE_ROOTS = "source_roots"
"""Among storage options: the addresses below which a log may name any source
(:mod:`spark_apps.timeline.allowed_sources`). No store is given it."""
WAREHOUSE_ROOT = "warehouse_root"
"""Among storage options: the reader's warehouse, whose logs may name the tables of catalogs that their places are
called after (:mod:`spark_apps.timeline.catalog_names`). No store is given it."""
# Spark's Hadoop file systems answer to other schemes than the object stores' own tools.
_SPARK_SCHEMES = {"s3": "s3a"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# Keys that name the same file in every reader.
_PLAIN_KEY = re.compile(r"(?!.*\.\.)[A-Za-z0-9_=.-]+(/[A-Za-z0-9_=.-]+)*")


@dataclass(frozen=True)
class ObjectInfo:
    """An object as a listing shows it: ``size`` in bytes, ``modified`` in UTC."""

    key: str
    size: int
    modified: datetime
    etag: str | None = None


class ObjectStore(Protocol):
    """The calls of a store that the timeline makes. Tests put a failing one in its stead."""

    uri: str

    def get(self, key: str, most: int | None = None) -> bytes: ...
    def get_range(self, key: str, start: int, end: int) -> bytes: ...
    def head(self, key: str) -> ObjectInfo | None: ...
    def put(self, key: str, data: bytes) -> None: ...
    def create(self, key: str, data: bytes) -> None: ...
    def list(self, prefix: str, after: str | None = None) -> list[ObjectInfo]: ...
    def delete(self, keys: Iterable[str]) -> None: ...
    def sync(self, keys: Iterable[str]) -> None: ...
    def spark_path(self, key: str = "") -> str: ...


class Store:
    """A folder on local disk, S3, GCS or Azure.

    Objects are named by ``key``, a path below the folder; their contents are ``data``.

    :param uri: a local path, ``file:///…``, ``s3://bucket/…``, ``gs://…``, ``abfss://…`` or ``memory:///``.
    :param options: ``obstore``'s configuration for that store (region, endpoint, keys …) and its HTTP
        client (``allow_http``, ``timeout`` …). Never logged.
    :raises InvalidName: if the location cannot be understood, or is on a file system of Hadoop and no Spark session of
        this process has opened a location there.
    """

    def __new__(cls, uri: str | os.PathLike[str] = "", options: Mapping[str, Any] | None = None) -> Store:
        """Make a store; that of a location on a file system of Hadoop is of another class."""
        other = _FOR_HADOOP if cls is Store and _scheme(os.fspath(uri)) in HADOOP_SCHEMES else ()
        return super().__new__(other[0] if other else cls)

    def __init__(self, uri: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> None:
        self.uri, self._local = _normalise(os.fspath(uri))
        self._options = dict(options or {})
        self._inner: Any = None

    def __repr__(self) -> str:
        return f"Store({self.uri!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {"uri": self.uri, "_local": self._local, "_options": self._options, "_inner": None}

    @property
    def options(self) -> dict[str, Any]:
        """The options as given; may hold secrets."""
        return dict(self._options)

    def below(self, key: str) -> Store:
        """Return the store of a folder below this one."""
        return Store(f"{self.uri.rstrip('/')}/{key}", self._options)

    def get(self, key: str, most: int | None = None) -> bytes:
        """Return the bytes of an object.

        :param most: bytes that it may have.
        :raises ObjectNotFound: if there is none.
        :raises ObjectTooLarge: if it has more bytes.
        :raises LeadsOutside: if a symbolic link on the way leads out of the root.
        :raises StorageUnavailable: if the store does not answer.
        """
        self._check_links(key)
        return self._call("get", key, lambda s: _body_of(obstore.get(s, key), f"{self.uri}/{key}", most))

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Return bytes ``start`` to ``end`` (exclusive) of an object.

        :raises LeadsOutside: as :meth:`get` does.
        """
        self._check_links(key)
        if self._local is not None and _PLAIN_KEY.fullmatch(key):
            # A file at hand is read at once; the library would hand each range to a thread of its own.
            path = self._local / key
            data: bytes = self._call("get", key, lambda _: _read_range(path, start, end))
            if len(data) == end - start:
                return data
        return self._call("get", key, lambda s: bytes(obstore.get_range(s, key, start=start, end=end)))

    def get_range_and_etag(self, key: str, start: int, end: int) -> tuple[bytes, str | None]:
        """Return bytes ``start`` to ``end`` (exclusive) of an object, and its etag, by one call.

        :raises LeadsOutside: as :meth:`get` does.
        """
        self._check_links(key)

        def get(store: Any) -> tuple[bytes, str | None]:
            answer = obstore.get(store, key, options={"range": (start, end)})
            return bytes(answer.bytes()), answer.meta.get("e_tag")

        data: tuple[bytes, str | None] = self._call("get", key, get)
        return data

    def head(self, key: str) -> ObjectInfo | None:
        """Return size and times of an object, or ``None`` if there is none."""
        try:
            return self._call("head", key, lambda s: _info(obstore.head(s, key)))
        except ObjectNotFound:
            return None

    def put(self, key: str, data: bytes) -> None:
        """Write an object, replacing one that is there. It outlives a loss of power.

        :raises LeadsOutside: as :meth:`get` does.
        """
        self._check_links(key)
        path = self._plain(key)
        if path is None:
            self._call("put", key, lambda s: obstore.put(s, key, data))
        else:
            self._call("put", key, lambda _: put_file(path, data))

    def create(self, key: str, data: bytes) -> None:
        """Write an object unless there is one: of several callers at once exactly one wins.

        :raises ObjectExists: if the store answers that there is one. It may be this very call's own bytes (a request
            retried below this module), so the answer alone decides nothing: read the key back.
        :raises LeadsOutside: as :meth:`get` does.
        """
        self._check_links(key)
        path = self._plain(key)
        if path is None:
            self._call("create", key, lambda s: obstore.put(s, key, data, mode="create"))
        else:
            self._call("create", key, lambda _: create_file(path, data))

    def sync(self, keys: Iterable[str]) -> None:
        """Make objects that are there outlive a loss of power, also those of other writers.

        On a local disk files and folders are synced; an object store has done so before it answered.

        :param keys: of the objects.
        :raises ObjectNotFound: if one is gone.
        :raises LeadsOutside: as :meth:`get` does.
        :raises StorageUnavailable: if some may get lost.
        """
        if self._local is not None:
            listed = list(keys)
            for folder in {key.rpartition("/")[0] for key in listed}:
                self._check_links(folder)
            paths = [self._local / key for key in listed]
            if paths:
                self._call("sync", f"{len(paths)} files", lambda _: sync_files(paths))

    def list(self, prefix: str, after: str | None = None) -> list[ObjectInfo]:
        """Return all objects below the folder ``prefix``, sorted by key; with ``after`` only the keys behind it.

        Those that are reached through a symbolic link that leads out of this store's folder are left out.
        """
        infos = self._call("list", prefix, lambda s: self._listing(s, prefix, after))
        return sorted(self._inside(infos), key=lambda info: info.key)

    def files(self, prefix: str) -> builtins.list[ObjectInfo]:
        """Return the objects right below the folder ``prefix``, sorted by key; folders below are not looked into."""
        infos = self._call("list", prefix, lambda s: [*map(_info, obstore.list_with_delimiter(s, prefix)["objects"])])
        return sorted(self._inside(infos), key=lambda info: info.key)

    def has_any(self, prefix: str, of: Callable[[str], bool] | None = None) -> bool:
        """Return whether there is an object below the folder ``prefix``, which costs one call where there are few.

        :param of: so named: it is given the last part of a key.
        """

        def any_of(store: Any) -> bool:
            keys = (meta["path"] for chunk in obstore.list(store, prefix) for meta in chunk)
            return any(of is None or of(key.rpartition("/")[2]) for key in keys)

        found: bool = self._call("list", prefix, any_of)
        return found

    def folders(self, prefix: str = "") -> builtins.list[str]:
        """Return the names of the folders right below ``prefix``, sorted; what is inside them is not listed."""
        folders = self._call(
            "list", prefix, lambda s: obstore.list_with_delimiter(s, prefix or None)["common_prefixes"]
        )
        return sorted(path.rstrip("/").rpartition("/")[2] for path in folders)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; one that is gone already is no error.

        :param keys: of the objects.
        :raises LeadsOutside: as :meth:`get` does.
        """
        for key in keys:
            self._check_links(key.rpartition("/")[0])
            try:
                self._call("delete", key, lambda s, key=key: obstore.delete(s, key))
            except ObjectNotFound:
                continue

    def spark_path(self, key: str = "") -> str:
        """Return the same object (or the root) as a path that Spark's file systems understand.

        A key with a scheme is the address of a file of another owner.

        :raises LeadsOutside: as :meth:`get` does.
        """
        if "://" in key:
            scheme, rest = key.split("://", 1)
            return f"{_SPARK_SCHEMES.get(scheme, scheme)}://{rest}"
        if self._local is not None:
            self._check_links(key)
            # Hadoop takes the rest of a path literally: quoting it would name another file.
            return "file://" + (str(self._local / key) if key else str(self._local))
        scheme, rest = self.uri.split("://", 1)
        return f"{_SPARK_SCHEMES.get(scheme, scheme)}://{rest.rstrip('/')}" + (f"/{key}" if key else "")

    @staticmethod
    def _listing(inner: Any, prefix: str, after: str | None) -> builtins.list[ObjectInfo]:
        return [_info(meta) for chunk in obstore.list(inner, prefix or None, offset=after) for meta in chunk]

    def _check_links(self, key: str) -> None:
        """Check that no symbolic link below the root, on the way to a key, leads out of the root.

        Other stores than local disks have no links; a link that is made after the check is not seen.

        :raises LeadsOutside: if one does.
        """
        if self._local is None or not key:
            return
        path = str(self._local)
        for part in key.split("/"):
            path = f"{path}/{part}"
            if part == "..":
                raise LeadsOutside(
                    f"The key {key!r} of {self.uri} leads upwards by '..'.", outcome="Nothing was opened."
                )
            try:
                linked = stat.S_ISLNK(os.lstat(path).st_mode)
            except OSError:
                return  # what is not there is no link, and its reader meets the same error
            if linked and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self._local)):
                raise LeadsOutside(
                    f"{path} is a symbolic link that leads out of {self.uri}; it is not followed.",
                    outcome="Nothing was opened, written or deleted through it.",
                    hint="Remove the link; to keep a part of a table on another disk, mount that disk there.",
                )

    def _inside(self, infos: builtins.list[ObjectInfo]) -> Iterator[ObjectInfo]:
        """Return those of listed objects that no link outside leads to."""
        if self._local is None:
            yield from infos
            return
        folders: dict[str, bool] = {}
        for info in infos:
            folder = info.key.rpartition("/")[0]
            if folder not in folders:
                try:
                    self._check_links(folder)
                    folders[folder] = True
                except LeadsOutside as error:
                    logger.warning("%s", error.message)
                    folders[folder] = False
            if folders[folder]:
                yield info

    def _plain(self, key: str) -> Path | None:
        """Return the file of a key on a local disk; ``None`` on another store.

        It is ``None`` too for a key that only ``obstore`` can make a path of.
        """
        return self._local / key if self._local is not None and _PLAIN_KEY.fullmatch(key) else None

    def _call(self, verb: str, key: str, call: Any) -> Any:
        try:
            return call(self._open())
        except FileNotFoundError as error:
            raise ObjectNotFound(f"{self.uri}/{key} does not exist.") from error
        except (FileExistsError, obstore_errors.AlreadyExistsError) as error:
            raise ObjectExists(f"{self.uri}/{key} exists already.") from error
        except (obstore_errors.BaseError, OSError) as error:
            raise StorageUnavailable(
                f"The store failed to {verb} {self.uri}/{key}: {_first_line(error)}",
                hint="Check the address, the credentials and the storage options, then try again.",
            ) from error

    def _open(self) -> Any:
        if self._inner is None:
            if self._local is not None:
                if self._local.is_file():
                    raise InvalidInput(f"{self.uri} is a file.", hint="Give the folder that it is in.")
                self._inner = LocalStore(self._local, mkdir=True)
            else:
                settings = store_options(self._options)
                client = {key: value for key, value in settings.items() if key in _CLIENT_OPTIONS}
                config = {key: value for key, value in settings.items() if key not in _CLIENT_OPTIONS}
                try:
                    self._inner = from_url(
                        _quoted(self.uri), config=cast(Any, config or None), client_options=cast(Any, client or None)
                    )
                except obstore_errors.UnknownConfigurationKeyError as error:
                    raise InvalidInput(
                        f"The storage options of {self.uri} hold a key that its store does not know: "
                        f"{_first_line(error)}",
                        hint=f"Use obstore's keys for that store, or one of: {', '.join(sorted(_CLIENT_OPTIONS))}.",
                    ) from error
        return self._inner


_FOR_HADOOP: list[type[Store]] = []


def use_for_hadoop(kind: type[Store]) -> None:
    """Let this process open locations on Hadoop's file systems by a class of stores."""
    _FOR_HADOOP[:] = [kind]


def _scheme(uri: str) -> str:
    return uri.partition("://")[0].lower() if "://" in uri else ""


def same_etag(one: str | None, other: str | None) -> bool:
    """Test whether two etags are one; an unknown one is like any other.

    Some stores quote it in one answer and not in another.
    """
    return one is None or other is None or one.strip('"') == other.strip('"')


def store_options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the storage options that a store understands: without what is meant for this package alone."""
    return {key: value for key, value in (options or {}).items() if key not in (SOURCE_ROOTS, WAREHOUSE_ROOT)}


def _body_of(answer: Any, what: str, most: int | None) -> bytes:
    if most is not None and (size := answer.meta["size"]) > most:
        raise ObjectTooLarge(f"{what} has {size:,} bytes, and may have {most:,} at most. None of them were read.")
    return bytes(answer.bytes())


def _read_range(path: Path, start: int, end: int) -> bytes:
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        return file.read(end - start) or b""


def path_of(uri: str) -> str:
    """Return the local path that a ``file:`` address names; any other text is returned as it is."""
    if not uri.lower().startswith("file:"):
        return uri
    rest = uri[len("file:") :]
    return unquote("/" + rest[2:].partition("/")[2] if rest.startswith("//") else rest)


def _normalise(uri: str) -> tuple[str, Path | None]:
    if uri.lower().startswith("file:"):
        return _local(path_of(uri))
    if "://" in uri:
        # Taken apart as Spark's file systems do: keys may hold what is a query or a fragment in other addresses.
        scheme, _, rest = uri.partition("://")
        scheme = scheme.lower()
        bucket, sign, key = rest.partition("/")
        if scheme in HADOOP_SCHEMES and not _FOR_HADOOP:
            raise InvalidName(
                f"{uri!r} is on a file system that Hadoop's Java alone reaches, and this process has no Spark session "
                "that opened it: not in an Airflow task or trigger, a Python worker of Spark, or a client of Spark "
                "Connect.",
                hint="Work on such tables by IndexedTable in a driver (spark-submit). For Airflow and the data source "
                "use an object store or a disk that all machines mount.",
            )
        if scheme not in _SCHEMES | HADOOP_SCHEMES:
            raise InvalidName(
                f"{uri!r} has the scheme {scheme!r}, which no supported store answers to.",
                hint=f"Use a local path or one of: file, {', '.join(sorted(_SCHEMES))}.",
            )
        if _CONTROL.search(uri):
            raise InvalidName(f"{uri!r} holds a control character.", hint="Give the address without it.")
        # Hadoop has a default name node, or mount table.
        nameless = scheme == "memory" or (scheme in HADOOP_SCHEMES and key.strip("/"))
        if (not bucket and not nameless) or set(bucket) & set("?#"):
            raise InvalidName(f"{uri!r} names no bucket or container.", hint=f"Write {scheme}://name/path.")
        if ".." in key.split("/"):
            raise InvalidName(f"{uri!r} leads upwards by '..'.", hint="Give the location without '..'.")
        return f"{'s3' if scheme == 's3a' else scheme}://{bucket}{sign}{key}".rstrip("/"), None
    return _local(uri)


def _quoted(uri: str) -> str:
    """Return the address as the library reads it, which undoes quoting in the key."""
    scheme, _, rest = uri.partition("://")
    bucket, sign, key = rest.partition("/")
    return f"{scheme}://{bucket}{sign}{quote(key, safe='/=')}"


def _local(path: str) -> tuple[str, Path]:
    if not path or "\n" in path or "\0" in path:
        raise InvalidName(f"{path!r} cannot be a location.", hint="Give a path or a URI.")
    local = Path(os.path.abspath(path))  # noqa: PTH100 - symlinks stay as the user gave them
    return str(local), local


def _info(meta: Any) -> ObjectInfo:
    return ObjectInfo(meta["path"], meta["size"], meta["last_modified"], meta.get("e_tag"))


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


# --- files of a local disk --------------------------------------------------------------------------------------------


_SYNC_THREADS = 8

_settled: dict[str, int] = {}
"""Folders, with their inodes, whose own names are known to be synced."""
_doubtful: set[str] = set()
"""Folders that could not be synced once: the system reports that once, and answers "done" the next time."""


def etag_of(status: os.stat_result) -> str:
    """Return an identity of a file as long as no process replaces or writes it, as a store's etag is of an object."""
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"


def same_file(status: os.stat_result, etag: str) -> bool:
    """Test whether a file is the one of an etag, as every machine that mounts its disk sees it.

    Compared are the time of its last change and its size, and not its inode.
    """
    return etag_of(status).partition("-")[2] == etag.partition("-")[2]


def create_file(path: Path, data: bytes) -> None:
    """Write a file unless there is one: of several callers at once exactly one wins.

    :raises FileExistsError: if there is one.
    :raises OSError: if the file may be there or not; it may get lost with the power.
    """
    draft = _write_draft(path, data)
    try:
        os.link(draft, path)
    finally:
        os.unlink(draft)  # noqa: PTH108 - as the calls around it
    _sync_folder(path.parent)


def put_file(path: Path, data: bytes) -> None:
    """Write a file, replacing one that is there.

    :raises OSError: as :func:`create` does.
    """
    draft = _write_draft(path, data)
    try:
        os.replace(draft, path)  # noqa: PTH105
    except OSError:
        os.unlink(draft)  # noqa: PTH108
        raise
    _sync_folder(path.parent)


def sync_files(paths: Iterable[Path]) -> None:
    """Make files that others have written outlive a loss of power, with their folders.

    :raises FileNotFoundError: if one is gone.
    :raises OSError: if some may get lost.
    """
    files = list(paths)
    if len(files) == 1:
        _sync(files[0])
    else:
        with ThreadPoolExecutor(_SYNC_THREADS) as pool:
            list(pool.map(_sync, files))
    for folder in sorted({path.parent for path in files}):
        _sync_folder(folder)


def _write_draft(path: Path, data: bytes) -> Path:
    """Return a synced file with the data beside ``path``, under a name that ``obstore`` passes over in listings."""
    draft = path.with_name(f"{path.name}#{secrets.randbits(63)}")
    _make_folder(path.parent)
    handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        unwritten = memoryview(data)
        while unwritten:
            unwritten = unwritten[os.write(handle, unwritten) :]
        os.fsync(handle)
    except BaseException:
        os.unlink(draft)  # noqa: PTH108
        raise
    finally:
        os.close(handle)
    return draft


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    try:
        os.mkdir(folder)  # noqa: PTH102
    except FileExistsError:
        if not folder.is_dir():
            raise
    _settled.pop(str(folder), None)


def _sync_folder(folder: Path) -> None:
    """Sync the names in a folder, and the names of the folders above it that are not known to be synced."""
    _sync(folder)
    while folder != folder.parent:
        inode = os.stat(folder).st_ino  # noqa: PTH116
        if _settled.get(str(folder)) == inode:
            return
        try:
            _sync(folder.parent)
        except PermissionError:
            return  # a folder of another owner, who made what is in it
        _settled[str(folder)] = inode
        folder = folder.parent


def _sync(path: Path) -> None:
    if str(path) in _doubtful:
        raise OSError(f"{path} could not be synced to its disk before; what was written there may get lost")
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        _doubtful.add(str(path))
        raise
    finally:
        os.close(handle)


# --- writing an object exactly once -----------------------------------------------------------------------------------


_TRIES = 5
_BACKOFF_SECONDS = 0.05


class OutcomeUnknown(StorageUnavailable):
    """An object may be there, or appear later: no answer and no reading decided whether it was written."""


def write_once(store: ObjectStore, key: str, body: bytes, sleep: Callable[[float], None]) -> bytes:
    """Create an object and return the bytes that it has now: ``body``, or what another writer wrote first.

    :param sleep: waits between two tries, for the seconds given.
    :raises OutcomeUnknown: if the store did not let us find out.
    """
    for tried in range(_TRIES):
        try:
            store.create(key, body)
            return body
        except StorageError as error:
            logger.info("Creating %s: %s It is read back.", key, error.message)
            stored = _read_back(store, key, error, sleep)
            cause = error
        if stored == body:
            _sync_found(store, key)
        if stored is not None:
            return stored
        sleep(_BACKOFF_SECONDS * 2**tried)
    raise OutcomeUnknown(
        f"{store.uri}/{key} could not be written in {_TRIES} tries: the store answers with errors ({cause.message}) "
        "and shows no such object."
    )


def _sync_found(store: ObjectStore, key: str) -> None:
    """Sync an object that is there: the error of its creation may have been that it is written and not kept."""
    try:
        store.sync([key])
    except StorageError as error:
        raise OutcomeUnknown(f"{store.uri}/{key} is there, and may get lost: {error.message}") from error


def _read_back(store: ObjectStore, key: str, cause: StorageError, sleep: Callable[[float], None]) -> bytes | None:
    error: StorageError = cause
    for tried in range(_TRIES):
        try:
            return store.get(key, MAX_READ_BACK_BYTES)
        except ObjectNotFound:
            return None
        except StorageError as unreadable:
            error = unreadable
            sleep(_BACKOFF_SECONDS * 2**tried)
    raise OutcomeUnknown(
        f"{store.uri}/{key} was sent ({cause.message}) and could not be read back ({error.message})."
    ) from error


# --- a file read by ranges --------------------------------------------------------------------------------------------


WHOLE_BYTES = 256 * 1024
"""A file up to this size is fetched in one request."""


class Rewritten(OSError):
    """A file that was listed is another one by now."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} was rewritten after it was listed; load the table again, which lists the source again"
        )


class RangedFile(io.RawIOBase):
    """A file read by ranges.

    :param fetch: gives bytes ``start`` to ``end`` (exclusive).
    :param size: of the whole file, in bytes.
    :param whole_below: a file up to this size is fetched at once.
    :raises OSError: if there are fewer bytes than asked for.
    """

    def __init__(self, fetch: Callable[[int, int], bytes], size: int, whole_below: int = WHOLE_BYTES) -> None:
        super().__init__()
        self._fetch = fetch
        self._size = size
        self._position = 0
        self.fetched = 0
        """Bytes fetched so far."""
        self._tail = b""
        self._kept, self._kept_from = b"", 0
        if 0 < size <= whole_below:
            self.keep(0, size)

    @classmethod
    def of(cls, body: bytes) -> RangedFile:
        """Return a file that is in memory."""
        return cls(lambda start, end: body[start:end], len(body), len(body))

    @property
    def size(self) -> int:
        """The size of the whole file, in bytes."""
        return self._size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._size, self._position + size)
        start, self._position = self._position, max(self._position, end)
        if end <= start:
            return b""
        return self._read(start, end)

    def tail(self, size: int) -> bytes:
        """Return the last ``size`` bytes, or all there are; they are kept for the reads to come."""
        size = min(size, self._size)
        if len(self._tail) < size:
            self._tail = self._read(self._size - size, self._size)
        return self._tail[-size:] if size else b""

    @property
    def whole(self) -> bytes | None:
        """All of its bytes, if they are held."""
        return self._kept if 0 < self._size == len(self._kept) else None

    def range(self, start: int, end: int) -> bytes:
        """Return bytes ``start`` to ``end`` (exclusive), wherever the file is being read."""
        return self._read(start, end)

    def keep(self, start: int, end: int) -> None:
        """Fetch bytes ``start`` to ``end`` (exclusive) at once, for the reads to come, unless they are held."""
        if self._held(start, end) is None:
            self._kept, self._kept_from = self._get(start, end), start

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _read(self, start: int, end: int) -> bytes:
        cached = self._held(start, end)
        return self._get(start, end) if cached is None else cached

    def _held(self, start: int, end: int) -> bytes | None:
        for cached, first in ((self._kept, self._kept_from), (self._tail, self._size - len(self._tail))):
            if first <= start and end <= first + len(cached):
                return cached[start - first : end - first]
        return None

    def _get(self, start: int, end: int) -> bytes:
        if not 0 <= start <= end <= self._size:  # what a footer says of where things are
            raise OSError(f"it has {self._size:,} bytes, and there are none from {start:,} to {end:,}")
        data = self._fetch(start, end)
        self.fetched += len(data)
        if len(data) != end - start:
            raise OSError(f"it ends before byte {end}")
        return data


def _read_at(descriptor: int, start: int, end: int) -> bytes:
    """Return bytes of an open file, fewer where it ends: of more than two gigabytes Linux gives some at a time."""
    data = os.pread(descriptor, end - start, start)
    while 0 < len(data) < end - start and (more := os.pread(descriptor, end - start - len(data), start + len(data))):
        data += more
    return data


class _LocalFile:
    """Ranges of a local file that is never written again: it is opened at the first, and closed when nobody reads."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor: int | None = None

    def __call__(self, start: int, end: int) -> bytes:
        descriptor = self._descriptor
        if descriptor is None:
            descriptor = self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, descriptor)
        return _read_at(descriptor, start, end)


class _ListedFile:
    """Ranges of a local file that its owner may write again: each is of the file that was listed, or of none.

    :raises Rewritten: when it is read, if it is another file by now.
    """

    def __init__(self, path: str, local: str, etag: str) -> None:
        self._path, self._local, self._etag = path, local, etag

    def __call__(self, start: int, end: int) -> bytes:
        descriptor = os.open(self._local, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if not same_file(os.fstat(descriptor), self._etag):
                raise Rewritten(self._path)
            return _read_at(descriptor, start, end)
        finally:
            os.close(descriptor)


def open_key(store: ObjectStore, key: str, size: int, whole_below: int = WHOLE_BYTES) -> RangedFile:
    """Open an object of a store that is not written again.

    :param size: of it, in bytes. :param whole_below: up to this size it is fetched at once.
    """
    return RangedFile(lambda start, end: store.get_range(key, start, end), size, whole_below)


def open_by_address(
    path: str, size: int, options: Mapping[str, Any] | None = None, etag: str | None = None
) -> RangedFile:
    """Open a file by its address, on any machine that reaches it.

    ::

        open_by_address("s3://lake/trips/data/a.parquet", 1_234, {"aws_region": "eu-central-1"}).tail(8)

    :param path: unquoted: a local path, with or without ``file://``, or a URI of a store.
    :param options: of that store.
    :param etag: its etag when it was listed, if the file may change.
    :raises OSError: while it is read, if it is gone or shorter.
    :raises Rewritten: if its etag is another.
    """
    if path.startswith("file:") or "://" not in path:
        local = "/" + path.removeprefix("file:").lstrip("/")
        return RangedFile(_LocalFile(local) if etag is None else _ListedFile(path, local, etag), size)
    folder, _, name = path.rpartition("/")
    store = Store(folder, options)

    def ranged(start: int, end: int) -> bytes:
        try:
            if etag is None:
                return store.get_range(name, start, end)
            data, stored_etag = store.get_range_and_etag(name, start, end)
        except StorageError as error:
            raise OSError(error.message) from error
        if not same_etag(stored_etag, etag):
            raise Rewritten(path)
        return data

    return RangedFile(ranged, size)
