"""Names that come from users: checked once, by this module, before they become a path or an identifier.

What a name may hold is the intersection of what object stores, Hive paths and SQL take without quoting; anything
else is refused with the reason rather than escaped into something the user would not find again.
"""

from __future__ import annotations

import re

from spark_apps.storage.errors import InvalidName

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_\-]{0,127}\Z")
_TXN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{0,127}\Z")

RESERVED_PREFIX = "__index_"

DELETED = RESERVED_PREFIX + "deleted"
"""Column of delta files: true for a tombstone, null for a row. Null, not false, so that a file's footer counts the
tombstones, and a base file, which lacks the column, reads as rows."""

_RESERVED_PREFIXES = (RESERVED_PREFIX, "__lakeindex_")
"""What the names of all columns begin with that this package adds to rows, in any case."""

_METADATA = "_metadata"
"""Spark's column with the file of a row and its position there, which a column of that name would hide."""

_RESERVED_NAMES = (_METADATA, "__number")
"""Names as a whole. Earlier versions, which may read a published table too, number rows by the second one."""


def check_name(kind: str, value: str) -> str:
    """Return ``value`` if it can name a ``kind`` ("index", "stage", …).

    :raises InvalidName: if it is empty, longer than 128 characters, or holds anything but letters, digits, ``_``,
        ``-``.
    """
    if not isinstance(value, str) or not _NAME.match(value):
        raise InvalidName(
            f"{value!r} cannot be the name of {'an' if kind[:1] in 'aeiou' else 'a'} {kind}.",
            hint="Use letters, digits, '_' and '-', beginning with a letter or '_', at most 128 characters.",
        )
    return value


def check_txn_id(value: str) -> str:
    """Return ``value`` if it can be a transaction id: letters, digits, ``.``, ``_``, ``-``; at most 128.

    :raises InvalidName: otherwise.
    """
    if not isinstance(value, str) or not _TXN_ID.match(value) or ".." in value:
        raise InvalidName(
            f"{value!r} cannot be a transaction id.",
            hint="Use letters, digits, '.', '_' and '-', beginning with a letter or digit, at most 128 characters.",
        )
    return value


def check_column_name(value: str) -> str:
    """Return ``value`` if a table may have a column of that name.

    :raises InvalidName: if it is empty, holds a control character or a backtick, or is reserved.
    """
    _check_signs(value)
    if value.lower().startswith(_RESERVED_PREFIXES) or value.lower() in _RESERVED_NAMES:
        raise _reserved(value)
    return value


def check_source_column_name(value: str) -> str:
    """Return ``value`` if rows that others write may have a column of that name, which nothing is added to them under.

    :raises InvalidName: if it cannot be a name at all, or is one that is added.
    """
    _check_signs(value)
    if value.lower().startswith(RESERVED_PREFIX) or value.lower() == _METADATA:
        raise _reserved(value)
    return value


def _check_signs(value: str) -> None:
    if not isinstance(value, str) or not value.strip() or "`" in value or not value.isprintable():
        raise InvalidName(
            f"{value!r} cannot be the name of a column.",
            hint="Use a name that is not empty and holds no backtick, newline or other control character.",
        )


def _reserved(value: str) -> InvalidName:
    prefixes = " or ".join(map(repr, _RESERVED_PREFIXES))
    return InvalidName(
        f"{value!r} cannot be the name of a column: names that begin with {prefixes}, and "
        f"{' and '.join(map(repr, _RESERVED_NAMES))}, are kept for what is added to rows while they are read.",
        hint="Rename the column.",
    )


def check_table_name(value: str) -> tuple[str, ...]:
    """Split ``db.table`` into its checked parts, which are folders below a warehouse.

    :raises InvalidName: if a part is not a plain name, so that no name leads out of the warehouse.
    """
    if not isinstance(value, str) or not value:
        raise InvalidName(f"{value!r} cannot be the name of a table.", hint="Use 'table' or 'database.table'.")
    return tuple(check_name("table", part) for part in value.split("."))


def quote(name: str) -> str:
    """Return a name as SQL takes it, whatever it holds."""
    return "`" + name.replace("`", "``") + "`"
