"""Where tables are that are called by name: ``db.table`` is the folder ``db/table`` below a warehouse.

There is no catalog to keep in step: a table of a warehouse is a folder with a log, and listing finds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_apps.storage.errors import InvalidName
from spark_apps.storage.names import check_table_name
from spark_apps.storage.store import Store
from spark_apps.timeline.locations import INDEXES, locate
from spark_apps.timeline.log import Timeline, commit_key
from spark_apps.timeline.model import Receipt
from spark_apps.timeline.state import State
from spark_apps.timeline.transactions import find_receipt

LOGS_OF_SOURCES = INDEXES
"""Folder beside registered sources that holds their logs."""

_DEEPEST = 3
"""How many folders a name may have when a warehouse is listed: catalog, database, table."""


@dataclass(frozen=True)
class FoundTable:
    """A table of a warehouse: its name, where it can be loaded from (a registered source by its log), and its log."""

    name: str
    location: str
    log: Store

    def state(self) -> State | None:
        """The newest state, ``None`` if the table was dropped. :raises LogDamaged: :raises NewerFormat:"""
        state = Timeline(self.log).refresh()
        return None if state.dropped or state.definition is None else state


@dataclass(frozen=True)
class Warehouse:
    """A folder of tables, and how its store is reached.

    :param root: URI or path; ``None`` where tables are only given by location.
    :param options: of :class:`~spark_apps.storage.store.Store`; may hold secrets.
    :param whose: who should have named a root, for errors.
    """

    root: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    whose: str = "the call"

    def locate(self, table: str) -> str:
        """The location of a table given by URI, by absolute path, or by name.

        :raises InvalidName: if it is none of these; a name cannot lead out of the warehouse.
        """
        if not isinstance(table, str) or not table.strip():
            raise InvalidName(f"{table!r} cannot be a table.", hint="Give a URI, an absolute path, or a name.")
        if "://" in table or table.startswith(("/", "file:")):
            return Store(table).uri
        parts = check_table_name(table)
        if self.root is None:
            raise InvalidName(
                f"The table {table!r} is given by name, and {self.whose} names no warehouse.",
                hint="Fill in the connection's warehouse (in a call, warehouse=…), or give the table's URI.",
            )
        return Store(self.root).below("/".join(parts)).uri

    def store(self, table: str) -> Store:
        """The store of a table's folder."""
        return Store(self.locate(table), self.options)

    def log_of(self, location: str) -> Store | None:
        """The store of the log of a table at a location, dropped or not; a registered source's stands beside it."""
        place = locate(location)
        whole = Store(place.base, self.options)
        above, _, folder = whole.uri.rstrip("/").rpartition("/")
        if above.endswith(":/"):  # a whole bucket, which nothing stands beside
            return whole if whole.head(commit_key(0)) is not None else None
        # Asked from above: a folder that is not there is not made by looking into it.
        parent = Store(above or "/", self.options)
        own = [folder] if place.pattern is None else []
        for path in (*own, f"{LOGS_OF_SOURCES}/{place.name}"):
            if parent.head(f"{path}/{commit_key(0)}") is not None:
                return parent.below(path)
        return None

    def receipt(self, location: str, txn_id: str) -> Receipt | None:
        """The receipt of a transaction of the table at a location, also where the table is dropped: that of its drop.

        :raises CommitUndone: if a restore took its effect back, or the table was dropped since.
        """
        log = self.log_of(location)
        return None if log is None else find_receipt(Timeline(log), txn_id)

    def tables(self) -> Iterator[FoundTable]:
        """Every table below the root, found by its log, dropped ones too.

        Only folders are listed, and none inside a table. Without a root there is nothing to list.
        """
        if self.root is not None:
            yield from self._below(Store(self.root, self.options), ())

    def _below(self, root: Store, parts: tuple[str, ...]) -> Iterator[FoundTable]:
        for name in root.folders("/".join(parts)):
            path = "/".join((*parts, name))
            if name == LOGS_OF_SOURCES:
                for source in root.folders(path):
                    log = root.below(f"{path}/{source}")
                    yield FoundTable(".".join((*parts, source)), log.uri, log)
            elif name.startswith(("_", ".")):
                continue
            elif root.head(f"{path}/{commit_key(0)}") is not None:
                yield FoundTable(".".join((*parts, name)), root.below(path).uri, root.below(path))
            elif len(parts) + 1 < _DEEPEST:
                yield from self._below(root, (*parts, name))
