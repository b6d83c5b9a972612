"""The tables behind one connection, as the page may see them: those below its warehouse, and nothing else.

A table's address comes from the browser, so it is held against the warehouse before any store is asked. Reading makes
nothing: not even the folder of a local warehouse that this machine does not have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xxhash

from airflow_provider_index.hooks.table_store import TableStoreHook
from spark_apps.storage.errors import InvalidName, LakeIndexError, StorageUnavailable, TableNotFound
from spark_apps.storage.store import Store
from spark_apps.timeline.log import commit_key
from spark_apps.timeline.warehouse import LOGS_OF_SOURCES, Warehouse

_PATIENCE = {"connect_timeout": "3s", "timeout": "10s"}
"""Of the HTTP client, unless the connection says otherwise."""

_DEEPEST = 4
"""How many folders below the warehouse a log can be: catalog, database, ``_indexes``, table."""

_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]+@")
_QUERY_OF_URL = re.compile(r"(://[^\s?]+)\?[^\s'\"]+")


@dataclass(frozen=True)
class TableName:
    """A table of a warehouse: its name (``db.table``), and its location as the page's links carry it."""

    name: str
    location: str


@dataclass(frozen=True)
class Lake:
    """One connection's tables.

    :param options: of the store; may hold secrets.
    """

    conn_id: str
    root: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, conn_id: str) -> Lake:
        """Reads the connection.

        :raises InvalidInput: if there is none, or if it is not well formed.
        :raises InvalidName: if it names no warehouse.
        """
        hook = TableStoreHook(conn_id)
        if not hook.warehouse:
            raise InvalidName(f"The connection {conn_id!r} names no warehouse.", hint="Fill it in to see its tables.")
        store = Store(hook.warehouse)
        patience = _PATIENCE if "://" in store.uri else {}
        return cls(conn_id, store.uri, {**patience, **hook.storage_options})

    @property
    def identity(self) -> str:
        """Changes with all that decides what is read: another password is another lake."""
        said = json.dumps([self.conn_id, self.root, dict(self.options)], sort_keys=True, default=str)
        return xxhash.xxh3_128_hexdigest(said.encode())

    def tables(self) -> list[TableName]:
        """Every table of the warehouse, by name. :raises StorageUnavailable: if it cannot be listed."""
        self._check_there()
        found = Warehouse(self.root, self.options).tables()
        return sorted((TableName(table.name, table.location) for table in found), key=lambda table: table.name)

    def find(self, table: str) -> tuple[TableName, Store]:
        """A table by the location or name that somebody asks for, and the store of its log.

        :raises InvalidName: if it does not lie below the warehouse. :raises TableNotFound: if there is none.
        """
        parts = self._parts_below(table)
        self._check_there()
        root = Store(self.root, self.options)
        beside = [*parts[:-1], LOGS_OF_SOURCES, parts[-1]]
        for path in (parts, beside):
            if root.head(f"{'/'.join(path)}/{commit_key(0)}") is not None:
                log = root.below("/".join(path))
                return TableName(".".join(part for part in path if part != LOGS_OF_SOURCES), log.uri), log
        raise TableNotFound(f"There is no table {'.'.join(parts)} below the warehouse of {self.conn_id!r}.")

    def log(self, table: TableName) -> Store:
        """The store of the log of a table that was listed. :raises TableNotFound: if its folder has gone since."""
        if "://" not in table.location and not Path(table.location).is_dir():
            raise TableNotFound(f"There is no table at {table.location} any more.")
        return Store(table.location, self.options)

    def reason(self, error: BaseException) -> str:
        """What to say of an error, without anything of the connection that may be secret."""
        said = error.message if isinstance(error, LakeIndexError) else type(error).__name__
        for value in _texts(self.options):
            said = said.replace(value, "***")
        return _QUERY_OF_URL.sub(r"\1?***", _USER_IN_URL.sub("***@", said))

    def _parts_below(self, table: str) -> list[str]:
        outside = InvalidName(
            f"{table!r} does not lie below the warehouse of the connection {self.conn_id!r}.",
            hint="The page shows tables of warehouses only: give the connection whose warehouse holds this one.",
        )
        if "://" in table or table.startswith(("/", "file:")):
            location = Store(table).uri
            if not location.startswith(f"{self.root.rstrip('/')}/"):
                raise outside
            parts = location[len(self.root.rstrip("/")) + 1 :].rstrip("/").split("/")
        else:
            parts = table.split(".")
        usable = all((part and not part.startswith((".", "_"))) or part == LOGS_OF_SOURCES for part in parts)
        if not usable or len(parts) > _DEEPEST or any(set(part) & set("/\\\0\n%?#") for part in parts):
            raise outside
        return parts

    def _check_there(self) -> None:
        if "://" not in self.root and not Path(self.root).is_dir():
            raise StorageUnavailable(f"The API server's machine has no folder {self.root}.")


def _texts(options: Mapping[str, Any]) -> list[str]:
    """The values of options that are long enough to be recognised; longest first, so that none hides another."""
    values = [value for key, value in options.items() if key not in _PATIENCE]
    return sorted((str(value) for value in values if len(str(value)) > 3), key=len, reverse=True)
