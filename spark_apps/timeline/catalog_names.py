"""Tables by the names that catalogs give them: ``prod.db.trips``, and what a warehouse keeps about such a name.

Where a catalog owns the place of a table, the table's log is in the warehouse, at
``_indexes/<catalog>/<db>/<table>-<id>``; the id is the format's own, so a table that was dropped and made anew has
another log. A file below ``_indexes/.names`` says which id and which log the name has now. Both are found from the name
alone, without Spark. The file is input, and is checked where it is read: by this module.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from spark_apps.storage.documents import decode, prepare
from spark_apps.storage.errors import InvalidName, LakeIndexError, LogDamaged, ObjectNotFound, SourceNotAllowed
from spark_apps.storage.names import quote
from spark_apps.storage.store import SOURCE_ROOTS, Store
from spark_apps.timeline.field_types import Id, Label
from spark_apps.timeline.limits import MAX_NAME_BYTES, MAX_NAME_PARTS, MAX_NAMES
from spark_apps.timeline.reader_roots import is_below, source_roots

logger = logging.getLogger(__name__)

INDEXES = "_indexes"
NAMES = f"{INDEXES}/.names"
"""Folder of a warehouse with a file for each name. No log of a source can be called so."""
SESSION_CATALOG = "spark_catalog"
"""The catalog of a name that says none."""
PREFIX = "catalog:"
"""Before a name that is a catalog's, and no path below the warehouse."""

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_\-]*")
_UNQUOTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_PART = 128
_PART = re.compile(r"`((?:[^`]|``)*)`|([A-Za-z0-9_][A-Za-z0-9_\-]*)")
_MAX_FOLDER = 100
_AT_ONCE = 16
_SUFFIX = ".json"


@dataclass(frozen=True)
class CatalogName:
    """A table's name in full: the catalog, the namespaces below it, and the table."""

    parts: tuple[str, ...]

    def __post_init__(self) -> None:
        if not 2 <= len(self.parts) <= MAX_NAME_PARTS:
            raise InvalidName(
                f"{'.'.join(self.parts)[:300]!r} has {len(self.parts)} parts, as no table of a catalog has.",
                hint=f"Write catalog.database.table, of at most {MAX_NAME_PARTS} parts.",
            )
        for part in self.parts:
            if not _can_be_part(part):
                raise InvalidName(
                    f"{part[:200]!r} cannot be a part of a table's name.",
                    hint=f"Use printable characters but '/' and '\\', at most {_MAX_PART}.",
                )

    @classmethod
    def parse(cls, text: str) -> CatalogName:
        """Return the name that a text writes as SQL does: parts with other characters are in back-ticks.

        A name of two parts is one of the session's own catalog.

        :raises InvalidName: if it is none.
        """
        parts = split(text.removeprefix(PREFIX))
        return cls((SESSION_CATALOG, *parts) if len(parts) == 2 else parts)

    @classmethod
    def of(cls, catalog: str, identifier: str) -> CatalogName:
        """Return the name of a registered table. :raises InvalidName: if its log names none."""
        return cls((catalog, *split(identifier)))

    def __str__(self) -> str:
        return join(self.parts)

    @property
    def identifier(self) -> str:
        """The name within the catalog, as SQL writes it."""
        return join(self.parts[1:])

    @property
    def key(self) -> str:
        """The key of the name's file, below a warehouse."""
        return f"{NAMES}/{'/'.join(map(_folder, self.parts))}{_SUFFIX}"

    def log_folder(self, table_id: str) -> str:
        """Return the folder of the log of the table with an id, below a warehouse."""
        *above, last = map(_folder, self.parts)
        return f"{INDEXES}/{'/'.join(above)}/{last}-{_folder(table_id)}"


class Registration(Struct, frozen=True):
    """The file of a name: which table has it now.

    :param name: in full, as SQL writes it. :param format: of the table. :param id: the format's own, of the table.
    :param log: address of the log's folder.
    """

    name: Label
    format: Label
    id: Id
    log: Label


prepare(Registration)


def split(text: str) -> tuple[str, ...]:
    """Return the parts of a name that is written as SQL does. :raises InvalidName: if it is none."""
    parts, at = [], 0
    while True:
        found = _PART.match(text, at)
        if found is None:
            break
        parts.append(found[2] if found[1] is None else found[1].replace("``", "`"))
        at = found.end()
        if at == len(text):
            return tuple(parts)
        if text[at] != ".":
            break
        at += 1
    raise InvalidName(
        f"{text[:300]!r} cannot be the name of a table.", hint="Write catalog.database.table, odd parts in back-ticks."
    )


def join(parts: Iterable[str]) -> str:
    """Return a name as SQL writes it, from its parts."""
    return ".".join(part if _UNQUOTED.fullmatch(part) else quote(part) for part in parts)


def may_be_named(text: str) -> CatalogName | None:
    """Return the name of a catalog's table that a text may be; ``None`` if it is an address or a single word."""
    if "/" in text or "\\" in text or text.startswith("file:"):
        return None
    try:
        return CatalogName.parse(text)
    except InvalidName:
        if text.startswith(PREFIX):
            raise
        return None


def is_plain(text: str) -> bool:
    """Test whether a name may be that of a folder too: it says nothing of a catalog, and has no odd part."""
    return not text.startswith(PREFIX) and "`" not in text


# --- the files of a warehouse ---------------------------------------------------------------------------------------


def find(root: Store, name: CatalogName) -> Registration | None:
    """Return what a warehouse says of a name, ``None`` if no table is registered by it. This costs one request.

    :raises LogDamaged: if the file of the name cannot be read, or is of another name.
    :raises SourceNotAllowed: if it names a log that is neither the name's own nor where the reader allows one.
    """
    if not _is_there(root):
        return None
    try:
        body = root.get(name.key, MAX_NAME_BYTES)
    except ObjectNotFound:
        return None
    return _checked(root, body, name)


def write(root: Store, table: Registration) -> None:
    """Write the file of a name; that of a table which had the name before is replaced."""
    root.put(CatalogName.parse(table.name).key, msgspec.json.encode(table))


def find_all(root: Store) -> Iterator[tuple[str, Registration | LakeIndexError]]:
    """Yield every name of a warehouse with what its file says, or why that cannot be read.

    This costs a request for each, many at once.

    :raises StorageError: if they cannot be listed.
    """
    if not _is_there(root):
        return
    keys = [info.key for info in root.list(NAMES) if info.key.endswith(_SUFFIX)]
    if len(keys) > MAX_NAMES:
        logger.warning(
            "%s has %d names of tables, of which %d are left out.", root.uri, len(keys), len(keys) - MAX_NAMES
        )

    def read(key: str) -> tuple[str, Registration | LakeIndexError]:
        called = key[len(NAMES) + 1 : -len(_SUFFIX)].replace("/", ".")
        try:
            table = _checked(root, root.get(key, MAX_NAME_BYTES), None)
            if CatalogName.parse(table.name).key != key:
                raise _of_another(root, key, table)
        except LakeIndexError as error:
            return called, error
        return table.name, table

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(read, keys[:MAX_NAMES])


def log_address(root: Store, name: CatalogName, table_id: str) -> str:
    """Return the address of the log of a catalog's table in a warehouse."""
    return f"{root.uri.rstrip('/')}/{name.log_folder(table_id)}"


def catalogs_of(names: Iterable[str]) -> set[str]:
    """Return the folders below ``_indexes`` that hold the logs of catalogs with these names."""
    return {_folder(split(name)[0]) for name in names}


def _checked(root: Store, body: bytes, name: CatalogName | None) -> Registration:
    table = decode(body, Registration, f"The file of a name below {root.uri}/{NAMES}")
    own = CatalogName.parse(table.name)
    if name is not None and own != name:
        raise _of_another(root, name.key, table)
    if not is_believed(root, table):
        raise SourceNotAllowed(
            f"The file {root.uri}/{own.key} says that the log of {own} is at {table.log[:300]}, where no log of that "
            "name has its place.",
            hint=f"Register the table again; or add the log's folder to {SOURCE_ROOTS}, if it was given an index_root.",
        )
    return table


def is_believed(root: Store, table: Registration) -> bool:
    """Test whether the log of a name is where those of the name are, or where its reader allows any."""
    if table.log == log_address(root, CatalogName.parse(table.name), table.id):
        return True
    return ".." not in table.log.split("/") and any(is_below(table.log, one) for one in source_roots(root.options))


def _of_another(root: Store, key: str, table: Registration) -> LogDamaged:
    return LogDamaged(
        f"The file {root.uri}/{key} is of the name {table.name[:300]}.",
        hint="Register the table again, which writes the file anew.",
    )


def _is_there(root: Store) -> bool:
    """Test whether a look makes no folder: a store of a local folder makes it."""
    return "://" in root.uri or Path(root.uri, NAMES).is_dir()


def _can_be_part(part: str) -> bool:
    usable = 0 < len(part) <= _MAX_PART and part.isprintable() and part == part.strip()
    return usable and not set(part) & set("/\\") and part not in (".", "..")


def _folder(part: str) -> str:
    """Return the name of the folder of a part: another one for each part, of letters that every store takes."""
    if _PLAIN.fullmatch(part) and len(part) <= _MAX_FOLDER:
        return part
    plain = re.sub(r"[^A-Za-z0-9_\-]", "-", part)[: _MAX_FOLDER - 20]
    return f"{plain}-{hashlib.blake2b(part.encode(), digest_size=8).hexdigest()}"
