"""A check of what can be reached of a store by ``obstore``: each call that a table needs, tried once.

The files lie in a folder of their own and are removed again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from spark_apps.storage.documents import prepare
from spark_apps.storage.errors import LakeIndexError, ObjectExists
from spark_apps.storage.store import ObjectStore

LOG_STACK = "obstore"
ROW_STACK = "Spark"


class Reach(msgspec.Struct, frozen=True):
    """A result of the check.

    :param stack: the library that tried it: ``obstore``, for the log, or ``Spark``, for rows.
    :param what: what was tried.
    :param ok: whether it could be done.
    :param detail: why not.
    """

    stack: str
    what: str
    ok: bool
    detail: str = ""

    def line(self) -> str:
        """Return the result as one line for people."""
        outcome = "ok" if self.ok else f"FAILED: {self.detail}"
        return f"{self.stack:<8} {self.what:<50} {outcome}"


def try_store(store: ObjectStore) -> list[Reach]:
    """Create, create again, read, list and delete an object; stop at the first call that fails."""
    name, data = "probe/by-obstore", b"written by a check; may be deleted\n"

    def create_twice() -> None:
        try:
            store.create(name, data)
        except ObjectExists:
            return
        raise LakeIndexError("a file was created over one that was there: no log can be kept here")

    steps: list[tuple[str, Callable[[], Any]]] = [
        ("list", lambda: store.list("probe")),
        ("create a file", lambda: store.create(name, data)),
        ("be refused to create it again", create_twice),
        ("read it", lambda: _equal(store.get(name), data)),
        ("see it listed", lambda: _equal([info.key for info in store.list("probe")], [name])),
        ("delete it", lambda: store.delete([name])),
    ]
    reaches: list[Reach] = []
    for what, call in steps:
        reaches.append(try_call(LOG_STACK, what, call))
        if not reaches[-1].ok:
            break
    return reaches


def try_call(stack: str, what: str, call: Callable[[], Any]) -> Reach:
    """Try one call; an error of this package is an answer."""
    try:
        call()
    except LakeIndexError as error:
        return Reach(stack, what, False, error.message)
    return Reach(stack, what, True)


def _equal(actual: Any, expected: Any) -> None:
    if actual != expected:
        raise LakeIndexError(f"found {actual!r} where {expected!r} was written")


prepare(Reach)
