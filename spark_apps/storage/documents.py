"""Documents in JSON: what has to be done before several threads read them, and reading those of other writers.

The type of a document defines what it may hold: the constraints that :func:`text` and msgspec's own ``Meta`` make are
checked by every decoding, so that no reader can forget one. The module of its kind limits how large it may be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from spark_apps.storage.errors import LeadsOutside, LogDamaged, ObjectTooLarge
from spark_apps.storage.limits import MAX_VALUES

if TYPE_CHECKING:
    from spark_apps.storage.store import ObjectStore

T = TypeVar("T")

_SMALL = 1 << 20
"""The objects of a document up to this many bytes are not counted: it cannot hold enough of them to matter."""

_WORDS: dict[str, str] = {}


def prepare(*kinds: Any) -> None:
    """Prepare types of documents for decoding; to be called by the module that defines them.

    Otherwise the first decoding of a type does so, and where two threads do that at once msgspec ends the whole process
    by a segmentation fault. While a module is imported no other thread has its types.
    """
    for kind in kinds:
        msgspec.json.Decoder(kind)


def text(words: str, pattern: str, longest: int) -> msgspec.Meta:
    """Return a constraint on a text.

    :param words: what it is, for errors: "a key below the table's folder".
    :param pattern: of the whole text.
    :param longest: in characters.
    """
    whole = rf"\A(?:{pattern})\Z"
    _WORDS[whole] = words
    return msgspec.Meta(pattern=whole, max_length=longest)


def decode(body: bytes, kind: type[T], what: str, *, hint: str = "") -> T:
    """Decode a document from its bytes.

    :param what: names the document and its table, for errors.
    :raises LogDamaged: if it is none of that kind, naming the field.
    """
    if len(body) > _SMALL and body.count(b"{") + body.count(b"[") > MAX_VALUES:
        raise LogDamaged(f"{what} cannot be read: it holds more than {MAX_VALUES:,} objects and lists.", hint=hint)
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LogDamaged(f"{what} cannot be read: {reason(error)}.", hint=hint) from error


def fetch(store: ObjectStore, key: str, kind: type[T], most: int) -> tuple[T, bytes]:
    """Return a document of a store, and its bytes.

    :param most: bytes that it may have.
    :raises ObjectNotFound: if there is none.
    :raises LogDamaged: if it is none of that kind.
    """
    try:
        body = store.get(key, most)
    except (ObjectTooLarge, LeadsOutside) as error:
        raise LogDamaged(error.message, hint=error.hint) from error
    return decode(body, kind, f"{store.uri}/{key}"), body


def reason(error: Exception) -> str:
    """Return the reason of a decoding error, with what was expected in words and not as a pattern."""
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    if isinstance(error, UnicodeDecodeError):
        return f"it is no UTF-8 (byte {error.start})"
    message = str(error)
    for pattern, words in _WORDS.items():
        message = message.replace(f"`str` matching regex {pattern!r}", words)
    return message
