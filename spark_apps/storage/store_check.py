"""A check of what a store does of all that a table needs, by the library that keeps the log, tried once each.

The objects are in a folder of their own and are removed again. What fails is reported with what to do about it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import msgspec

from spark_apps.storage.documents import prepare
from spark_apps.storage.errors import LakeIndexError, ObjectExists, StorageUnavailable
from spark_apps.storage.store import HADOOP_SCHEMES, ObjectStore, Store

FOLDER = "_index_check"
"""The folder below a location that is checked; what is in it is removed again."""

LOG_STACK = "obstore"
HADOOP_STACK = "Hadoop"
ROW_STACK = "Spark"

_AT_ONCE = 8
_LISTED = 12
_ODD_NAME = "probe/dt=2024-11-11/a b%20+ü.parquet"
_CREATE = "create a file that is not there"
_NO_LOG = (
    "No log can be kept there: of two commits at once one would be lost. Use a store with conditional writes (S3, GCS, "
    "Azure, a recent MinIO or Ceph, a local disk), and no gateway in front of it that drops If-None-Match."
)
_HINTS = (
    (r"NotImplemented|not implemented|\b501\b", _NO_LOG),
    (r"NoSuchBucket|ContainerNotFound|bucket does not exist", "Create the bucket, or name another one."),
    (
        r"\b40[13]\b|AccessDenied|Forbidden|Unauthorized|InvalidAccessKey|SignatureDoesNotMatch|InvalidToken"
        r"|ExpiredToken|[Cc]redentials",
        "{stack} was not let in: see that its keys or role are those of this store and may list, read, write and "
        "delete there{where}.",
    ),
    (r"\b301\b|PermanentRedirect|AuthorizationHeaderMalformed|wrong region", "Name the bucket's own region."),
    (
        r"dns|resolve|refused|unreachable|timed? ?out|[Cc]onnect|UnknownHost",
        "The store was not reached: see its endpoint, and for http:// the option allow_http.",
    ),
    (r"[Rr]ead-only|Permission denied|Not a directory|File exists", "Name a folder that {stack}'s user may write to."),
)
_WHERE = {
    LOG_STACK: " (the storage options of the connection, or the variables and the role of this machine)",
    ROW_STACK: " (spark.hadoop.fs.…, or the role of the machines that Spark runs on)",
}


class Reach(msgspec.Struct, frozen=True):
    """A result of the check.

    :param stack: the library that tried it: for the log ``obstore``, or ``Hadoop`` on its file systems; for rows
        ``Spark``.
    :param what: what was tried.
    :param ok: whether it could be done.
    :param detail: why not, or a remark on what was done.
    :param hint: what to do about it.
    :param seconds: what it took.
    """

    stack: str
    what: str
    ok: bool
    detail: str = ""
    hint: str = ""
    seconds: float = 0.0

    def line(self) -> str:
        """Return the result as a line of a table for people, with what to do below it."""
        outcome = f"ok{f': {self.detail}' if self.detail else ''}" if self.ok else f"FAILED: {self.detail}"
        hint = f"\n{'':<8}   {self.hint}" if self.hint else ""
        return f"{self.stack:<8} {self.what:<50} {self.seconds:>6.2f} s  {outcome}{hint}"


def table_of(reaches: Sequence[Reach]) -> str:
    """Return all results as a small table, and how many failed."""
    failed = sum(not reach.ok for reach in reaches)
    verdict = f"{failed} of {len(reaches)} checks FAILED" if failed else f"all {len(reaches)} checks ok"
    return "".join(f"{reach.line()}\n" for reach in reaches) + f"{verdict}, {sum(r.seconds for r in reaches):.1f} s\n"


def try_store(store: Store) -> list[Reach]:
    """Try each call that a table makes, and whether it keeps what the log relies on.

    It stops where nothing can be listed, written or read; what a store does wrongly does not end it.
    """
    stack = HADOOP_STACK if store.uri.partition("://")[0] in HADOOP_SCHEMES else LOG_STACK
    names = [f"probe/{number:04d}.json" for number in range(_LISTED)]
    data = b"written by a check; may be deleted\n"
    steps: list[tuple[str, Callable[[], None]]] = [
        ("list", lambda: _listable(store)),
        ("write a file", lambda: store.put(names[0], data)),
        ("read it", lambda: _equal(store.get(names[0]), data)),
        ("read a part of it", lambda: _equal(store.get_range(names[0], 8, 18), data[8:18])),
        ("read it anew once it is replaced", lambda: _replaced(store, names[0])),
        (_CREATE, lambda: _created(store, names[1], data)),
        ("be refused to create it again", lambda: _created_twice(store, names[1])),
        (f"have one winner of {_AT_ONCE} creations at once", lambda: _raced(store)),
        (f"write {_LISTED} files", lambda: _put_all(store, names, data)),
        ("see every file listed at once, in order", lambda: _listed(store, names)),
        ("list what comes after a name", lambda: _equal(_keys(store, names[4]), names[5:])),
        ("list folders", lambda: _equal("probe" in store.folders(), True)),
        ("take a name with spaces and signs literally", lambda: _odd_name(store, data)),
        ("delete, and not see it listed any more", lambda: _deleted(store)),
    ]
    reaches: list[Reach] = []
    while steps:
        what, call = steps.pop(0)
        reaches.append(try_call(stack, what, call))
        if not reaches[-1].ok and len(reaches) <= 3:
            break
        if not reaches[-1].ok and what == _CREATE:
            del steps[:2]  # they are of creating, too
    return reaches


def try_call(stack: str, what: str, call: Callable[[], tuple[str, str] | None]) -> Reach:
    """Try one call; an error of this package is an answer.

    :param call: may give back a remark on what was done, and what could be done about it.
    """
    begun = time.monotonic()
    try:
        remark, hint = call() or ("", "")
    except LakeIndexError as error:
        return Reach(stack, what, False, error.message, hint_for(stack, error), time.monotonic() - begun)
    return Reach(stack, what, True, remark, hint, time.monotonic() - begun)


def hint_for(stack: str, error: LakeIndexError) -> str:
    """Return what to do about an error: what it says itself, and of a store's answer what its words suggest."""
    if error.hint and not isinstance(error, StorageUnavailable):
        return error.hint
    text = f"{error.message} {error.__cause__ or ''}"
    for words, hint in _HINTS:
        if re.search(words, text):
            return hint.format(stack=stack, where=_WHERE.get(stack, ""))
    return error.hint


# --- the single checks ------------------------------------------------------------------------------------------------


def _listable(store: ObjectStore) -> None:
    store.list("probe")


def _replaced(store: ObjectStore, name: str) -> None:
    other = b"written once more\n"
    store.put(name, other)
    if store.get(name) != other:
        raise LakeIndexError(
            "the bytes of before were read",
            hint="Turn off the cache between this process and the store: a log needs the newest bytes.",
        )


def _created(store: ObjectStore, name: str, data: bytes) -> None:
    store.create(name, data)
    _equal(store.get(name), data)


def _created_twice(store: ObjectStore, name: str) -> None:
    try:
        store.create(name, b"another")
    except ObjectExists:
        return
    raise LakeIndexError("a file was created over one that was there", hint=_NO_LOG)


def _raced(store: ObjectStore) -> None:
    """Let several threads create one file at once."""
    name, start = "probe-race/one", Barrier(_AT_ONCE)

    def create(number: int) -> int | None:
        start.wait(30)
        try:
            store.create(name, b"%d" % number)
        except ObjectExists:
            return None
        return number

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        winners = [number for number in pool.map(create, range(_AT_ONCE)) if number is not None]
    if len(winners) != 1:
        raise LakeIndexError(f"{len(winners)} of {_AT_ONCE} writers got the answer that they created it", hint=_NO_LOG)
    _equal(store.get(name), b"%d" % winners[0])


def _put_all(store: ObjectStore, names: Iterable[str], data: bytes) -> None:
    for name in names:
        store.put(name, data)


def _listed(store: ObjectStore, names: list[str]) -> None:
    listed = _keys(store)
    missing = [name for name in names if name not in listed]
    if missing:
        raise LakeIndexError(
            f"{len(missing)} of {len(names)} files that were written are not listed, such as {missing[0]}",
            hint="A log cannot be kept where listings come late. Turn off caches of listings, or use another store.",
        )
    _equal(listed, names)


def _odd_name(store: ObjectStore, data: bytes) -> None:
    store.put(_ODD_NAME, data)
    _equal(store.get(_ODD_NAME), data)
    _equal(_ODD_NAME in _keys(store), True)


def _deleted(store: ObjectStore) -> None:
    for folder in ("probe", "probe-race"):
        store.delete([info.key for info in store.list(folder)])
        _equal(store.list(folder), [])


def _keys(store: ObjectStore, after: str | None = None) -> list[str]:
    return [info.key for info in store.list("probe", after)]


def _equal(actual: Any, expected: Any) -> None:
    if actual != expected:
        raise LakeIndexError(f"found {actual!r} where {expected!r} was written")


prepare(Reach)
