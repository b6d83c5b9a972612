"""Locations of tables, sources and logs: addresses, globs, names below a warehouse, and a log's default location.

A registered source may be overwritten by its owner, so its log is beside it, in ``<parent>/_indexes/<name>``, or below
a root of the user's. This module does not touch the source. What a table is called by is resolved by
:meth:`Warehouse.locate` alone: an address, the name that a catalog has for it, or the name of a folder.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spark_apps.storage.errors import InvalidInput, InvalidName, LakeIndexError, StorageError, TableNotFound
from spark_apps.storage.names import check_name, check_table_name
from spark_apps.storage.store import Store
from spark_apps.timeline import catalog_names
from spark_apps.timeline.catalog_names import INDEXES, NAMES, PREFIX, CatalogName, Registration, is_plain, may_be_named
from spark_apps.timeline.log import Timeline, commit_key
from spark_apps.timeline.model import Receipt
from spark_apps.timeline.reader_roots import is_below, with_warehouse
from spark_apps.timeline.state import State
from spark_apps.timeline.transactions import find_receipt

logger = logging.getLogger(__name__)

_GLOB_CHARS = re.compile(r"[*?\[{]")


@dataclass(frozen=True)
class Location:
    """A normalised address.

    :param base: the part before the first segment that is a pattern.
    :param pattern: the rest, ``None`` for a plain folder or file.
    :param uri: a local path without scheme, or ``s3://…`` and its like; with the pattern, where there is one.
    """

    uri: str
    base: str
    pattern: str | None = None

    @property
    def is_local(self) -> bool:
        return "://" not in self.uri

    @property
    def parent(self) -> str:
        """The folder that ``base`` is in. :raises InvalidInput: if there is none."""
        head, _, name = self.base.rstrip("/").rpartition("/")
        if not name or head.endswith("/") or (self.is_local and not head):
            raise InvalidInput(
                f"{self.uri} is in no folder that could hold its log.", hint="Give index_root=…, a folder for it."
            )
        return head

    @property
    def name(self) -> str:
        """A name for the source, one for each location."""
        last = self.base.rstrip("/").rpartition("/")[2]
        plain = re.sub(r"[^A-Za-z0-9_\-]", "-", last)[:100]
        plain = plain if plain[:1].isalpha() or plain[:1] == "_" else f"t{plain}"
        if plain == last and self.pattern is None:
            return plain
        return f"{plain}-{hashlib.blake2b(self.uri.encode(), digest_size=4).hexdigest()}"

    def default_log(self, index_root: str | None = None, name: str | None = None) -> str:
        """Return the folder of the log.

        :raises InvalidName: if no folder can be named after the source.
        :raises InvalidInput: if the source is in no folder.
        """
        root = f"{self.parent}/{INDEXES}" if index_root is None else Store(index_root).uri
        return f"{root.rstrip('/')}/{check_name('table', name) if name is not None else self.name}"


def locate(uri: str | os.PathLike[str]) -> Location:
    """Return the location of an address, which may be a glob with ``* ? [] {}``.

    A local path that exists as it is written is no glob, whatever characters it holds.

    :raises InvalidName: if the address cannot be understood.
    """
    text = os.fspath(uri)
    if not text or text != text.strip():
        raise InvalidName(f"{text!r} cannot be a location.", hint="Give a path or a URI.")
    plain = "://" not in text and not text.startswith("file:")
    if not _GLOB_CHARS.search(text) or (plain and Path(text).exists()):
        whole = Store(text).uri
        return Location(whole, whole)
    scheme, sign, rest = text.partition("://")
    if not sign:
        scheme, rest = "", text
    segments = rest.split("/")
    first = next(n for n, segment in enumerate(segments) if _GLOB_CHARS.search(segment))
    head = "/".join(segments[:first])
    base = Store(f"{scheme}{sign}{head}" if sign else (head or ("/" if rest.startswith("/") else "."))).uri.rstrip("/")
    pattern = "/".join(segments[first:]).strip("/")
    return Location(f"{base}/{pattern}", base, pattern)


# --- Where tables are that are called by name -----------------------------------------------------------------------


LOGS_OF_SOURCES = INDEXES
"""Folder beside registered sources that holds their logs."""

_MAX_DEPTH = 3
"""How many folders a name may have when a warehouse is listed: catalog, database, table."""


@dataclass(frozen=True)
class WarehouseTable:
    """A table of a warehouse: its name, where it can be loaded from (a registered source by its log), and its log.

    :param trouble: why the folder cannot be looked into; then it may be a table, or hold some.
    :param of_catalog: whether a catalog has the name, and not a folder below the root.
    """

    name: str
    location: str
    log: Store
    trouble: StorageError | None = None
    of_catalog: bool = False

    def state(self) -> State | None:
        """Return the newest state, ``None`` if the table was dropped.

        :raises StorageError: if the folder cannot be looked into.
        :raises LogDamaged: if the log cannot be read.
        :raises NewerFormat: if a newer version of this package wrote the log.
        """
        if self.trouble is not None:
            raise self.trouble
        state = Timeline(self.log).refresh()
        return None if state.dropped or state.definition is None else state


@dataclass(frozen=True)
class Warehouse:
    """A folder of tables, and how its store is reached.

    :param root: URI or path; ``None`` where tables are only given by location.
    :param options: of :class:`~spark_apps.storage.store.Store`; may hold secrets.
    :param whose: the setting that should have named a root, for errors.
    """

    root: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    whose: str = "the call"

    def locate(self, table: str) -> str:
        """Return the location of a table given by URI, by absolute path, or by name.

        A name is looked for among those that catalogs have for registered tables (:mod:`.catalog_names`), and the
        location is that of the log; then it is a folder below the root. ``catalog:`` before it excludes the folder.

        :raises InvalidName: if it is none of these, or if it is both; a name cannot lead out of the warehouse.
        :raises TableNotFound: if no table is registered by the name of a catalog.
        """
        if not isinstance(table, str) or not table.strip():
            raise InvalidName(f"{table!r} cannot be a table.", hint="Give a URI, an absolute path, or a name.")
        if "://" in table or table.startswith(("/", "file:")):
            return Store(table).uri
        if is_plain(table) or may_be_named(table) is None:
            folder = self.folder(table)
            return self.log_by_name(table, folder) or folder
        log = self.log_by_name(table)
        if log is None:
            raise TableNotFound(
                f"No table is registered by the name {table} in "
                f"{self.root or f'a warehouse, for {self.whose} names none'}.",
                hint="Register it: IndexedTable.register(spark, name, warehouse=…), or RegisterTableOperator.",
            )
        return log

    def log_by_name(self, table: str, folder: str | None = None) -> str | None:
        """Return the location of the log of a catalog's table, ``None`` if none is registered by the name.

        :param folder: that the name may mean too.
        :raises InvalidName: if that is a table.
        """
        name = may_be_named(table)
        named = None if name is None else self.registered(name)
        if named is None:
            return None
        if folder is not None:
            self._check_alone(table, named, folder)
        return Store(named.log).uri

    def is_of_catalog(self, location: str) -> bool:
        """Test whether a location is that of the log of a table whose place is a catalog's."""
        return self.root is not None and is_below(location, f"{Store(self.root).uri.rstrip('/')}/{INDEXES}")

    def folder(self, table: str) -> str:
        """Return the folder below the root that a name means, whatever a catalog has by that name.

        :raises InvalidName: if it cannot be the name of one, or there is no root.
        """
        path = "/".join(check_table_name(table))
        if self.root is None:
            raise InvalidName(
                f"The table {table!r} is given by name, and {self.whose} names no warehouse.",
                hint="Fill in the connection's warehouse (in a call, warehouse=…), or give the table's URI.",
            )
        return Store(self.root).below(path).uri

    def registered(self, name: CatalogName) -> Registration | None:
        """Return the registration of a catalog's table, by one request; ``None`` if there is none.

        :raises LakeIndexError: if what the warehouse says of the name cannot be believed.
        """
        root = self.root_store()
        return None if root is None else catalog_names.find(root, name)

    @property
    def reader_options(self) -> dict[str, Any]:
        """The options by which a reader believes the logs of this warehouse about tables of catalogs."""
        return with_warehouse(self.options, self.root)

    def root_store(self) -> Store | None:
        """Return the store of the root, ``None`` where tables are only given by location."""
        return None if self.root is None else Store(self.root, self.options)

    def _check_alone(self, table: str, named: Registration, folder: str) -> None:
        """Check that no table below the root has the name that a catalog's table has too.

        :raises InvalidName: naming both.
        """
        log = self.log_of(folder)
        if log is None or log.uri == Store(named.log).uri or Timeline(log).refresh().dropped:
            return
        raise InvalidName(
            f"{table!r} is the table {named.name} of a catalog, whose log is {named.log}, and a table below the "
            f"warehouse, whose log is {log.uri}.",
            hint=f"Write {PREFIX}{named.name} for the first, or give the address: {folder}.",
        )

    def store(self, table: str) -> Store:
        """Return the store of a table's folder."""
        return Store(self.locate(table), self.options)

    def log_of(self, location: str) -> Store | None:
        """Return the store of the log of a table at a location, dropped or not.

        That of a registered source is beside the source.
        """
        source = locate(location)
        whole = Store(source.base, self.options)
        above, _, folder = whole.uri.rstrip("/").rpartition("/")
        if above.endswith(":/"):  # a whole bucket, which nothing is beside
            return whole if whole.head(commit_key(0)) is not None else None
        # Asked from above: a folder that is not there is not made by looking into it, nor is the one above.
        if "://" not in whole.uri and not Path(above or "/").is_dir():
            return None
        parent = Store(above or "/", self.options)
        folders = [folder] if source.pattern is None else []
        for path in (*folders, f"{LOGS_OF_SOURCES}/{source.name}"):
            if parent.head(f"{path}/{commit_key(0)}") is not None:
                return parent.below(path)
        return None

    def receipt(self, location: str, txn_id: str) -> Receipt | None:
        """Return the receipt of a transaction of the table at a location, also where the table is dropped.

        A dropped table's last receipt is that of its drop.

        :raises CommitUndone: if a restore took its effect back, or the table was dropped since.
        """
        log = self.log_of(location)
        return None if log is None else find_receipt(Timeline(log), txn_id)

    def tables(self) -> Iterator[WarehouseTable]:
        """Yield every table below the root, known by its log, dropped ones too, and every one that has a name there.

        Only folders are listed, and none inside a table. Without a root there is nothing to list. A folder below the
        root that cannot be looked into is yielded with its trouble; it keeps no other from being listed.

        :raises StorageError: if the root cannot be listed.
        """
        root = self.root_store()
        if root is None:
            return
        named = list(self._named(root))
        yield from named
        yield from self._below(root, (), catalog_names.catalogs_of(one.name for one in named))

    def _named(self, root: Store) -> Iterator[WarehouseTable]:
        for name, said in catalog_names.find_all(root):
            if isinstance(said, LakeIndexError):
                trouble = StorageError(said.message, hint=said.hint)
                yield WarehouseTable(name, root.below(NAMES).uri, root.below(NAMES), trouble, of_catalog=True)
            else:
                log = Store(said.log, self.options)
                yield WarehouseTable(name, log.uri, log, of_catalog=True)

    def known_tables(self) -> Iterator[WarehouseTable]:
        """Yield the tables below the root, without folders that cannot be looked into, which a warning names."""
        for table in self.tables():
            if table.trouble is None:
                yield table
            else:
                logger.warning("The folder %s is left out: %s", table.location, table.trouble.message)

    def _below(self, root: Store, parts: tuple[str, ...], catalogs: Collection[str] = ()) -> Iterator[WarehouseTable]:
        for name in root.folders("/".join(parts)):
            inside = (*parts, name)
            try:
                yield from self._at(root, inside, catalogs)
            except StorageError as error:
                folder = root.below("/".join(inside))
                yield WarehouseTable(".".join(inside), folder.uri, folder, error)

    def _at(self, root: Store, parts: tuple[str, ...], catalogs: Collection[str]) -> Iterator[WarehouseTable]:
        """Yield the tables of a folder: those of sources, the folder itself, or those below it.

        :param catalogs: folders of the root's logs that hold those of catalogs' tables, which are known by their names.
        """
        path, name = "/".join(parts), parts[-1]
        if name == LOGS_OF_SOURCES:
            for source in root.folders(path):
                log = root.below(f"{path}/{source}")
                if source.startswith(".") or (source in catalogs and log.head(commit_key(0)) is None):
                    continue
                yield WarehouseTable(".".join((*parts[:-1], source)), log.uri, log)
        elif name.startswith(("_", ".")):
            return
        elif root.head(f"{path}/{commit_key(0)}") is not None:
            yield WarehouseTable(".".join(parts), root.below(path).uri, root.below(path))
        elif len(parts) < _MAX_DEPTH:
            yield from self._below(root, parts)
