"""The tables that a command is about: where their warehouse is, how its store is reached, which of them is meant.

A warehouse comes from an option, a variable of the environment, or an Airflow connection in the
environment (``AIRFLOW_CONN_…``, as JSON), which is read without Airflow. Storage options may hold secrets: they are
given in files or in the environment, refused on a command line that other users of the machine can read, and never
printed.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from spark_apps.cli.output import Output
from spark_apps.storage.errors import IndexNotFound, InvalidInput, LakeIndexError, TableNotFound, UnknownColumn
from spark_apps.storage.secrets import hide, is_secret, known_secrets
from spark_apps.storage.store import SOURCE_ROOTS, Store
from spark_apps.timeline.locations import Warehouse, WarehouseTable
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.reader_roots import with_warehouse
from spark_apps.timeline.state import State

WAREHOUSE = "LAKEINDEX_WAREHOUSE"
STORAGE_OPTIONS = "LAKEINDEX_STORAGE_OPTIONS"
CONNECTION = "LAKEINDEX_CONNECTION"
"""Variables of the environment for what the options of the same names say."""

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Lake:
    """Tables by name or address, and where answers about them go."""

    warehouse: Warehouse
    output: Output

    # --- which table --------------------------------------------------------------------------------------------------

    def log(self, table: str) -> Store:
        """Return the store of the log of a table, or of a registered source.

        :raises TableNotFound: if there is none, with a name that is like it.
        :raises InvalidName: if it can be no name.
        """
        if "://" not in table and "/" in table and not table.startswith("file:"):
            table = str(Path(table).resolve())  # as every program takes a path
        if "/" not in table and self.warehouse.root is None:
            raise InvalidInput(
                f"The table {table} is given by name, and no warehouse is named.",
                hint=f"Give --warehouse, or set {WAREHOUSE}; or its address, as ./{table} for a folder below this one.",
            )
        location = self.warehouse.locate(table)
        log = self.warehouse.log_of(location)
        if log is not None:
            return log
        raise TableNotFound(f"There is no table {table}.", hint=self._hint(table, location))

    def timeline(self, table: str) -> Timeline:
        """Return the log of a table, read to its end. :raises TableNotFound: as :meth:`log` does."""
        return Timeline.load(self.log(table))

    def state(self, table: str, version: int | None = None, as_of: str | None = None) -> tuple[Timeline, State]:
        """Return the log of a table and its state as of a version or an instant.

        :raises VersionNotFound: if there is none. :raises SnapshotExpired: if it was expired.
        """
        _check_one(version, as_of)
        timeline = self.timeline(table)
        return timeline, timeline.at(version, as_of)

    def open(
        self, table: str, version: int | None = None, as_of: str | None = None, time_zone: str | None = None
    ) -> Any:
        """Open a table to read its rows; see :func:`spark_apps.arrow_table.open_table`."""
        from spark_apps.arrow_table import open_table

        _check_one(version, as_of)
        return open_table(self.log(table).uri, version, as_of, self.warehouse.options, time_zone=time_zone)

    def tables(self) -> Iterable[WarehouseTable]:
        """Return the tables of the warehouse.

        :raises InvalidInput: if none is named, or it is no folder of this machine.
        """
        root = self.root
        if "://" not in root and not Path(root).is_dir():
            raise InvalidInput(f"The warehouse {root} is no folder of this machine.", hint="Check its address.")
        return self.warehouse.tables()

    @property
    def root(self) -> str:
        """The address of the warehouse. :raises InvalidInput: if none is named."""
        if self.warehouse.root is None:
            raise InvalidInput("No warehouse is named.", hint=f"Give --warehouse, or set {WAREHOUSE}.")
        return Store(self.warehouse.root).uri

    def names(self) -> list[str]:
        """Return the names of the warehouse's tables; none where they cannot be listed."""
        if self.warehouse.root is None:
            return []
        try:
            return sorted(table.name for table in self.tables() if table.trouble is None)
        except LakeIndexError:
            return []

    def secrets(self) -> list[str]:
        """Return what no text may show."""
        return known_secrets(self.warehouse.options)

    def _hint(self, table: str, location: str) -> str:
        names = self.names()
        near = nearest(table, names)
        if near is not None:
            return f"Did you mean {near}?"
        if "/" in table:
            return "Give the folder of a table, the address of a registered source, or a name below --warehouse."
        return "See `lakeindex tables`." if names else f"There is nothing at {location}."


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the name that a misspelt one was meant to be, ``None`` if none is like it."""
    by_text = {one.lower(): one for one in names}
    near = difflib.get_close_matches(name.lower(), by_text, 1)
    return by_text[near[0]] if near else None


def with_nearest(error: LakeIndexError, state: State | None) -> str:
    """Return the hint of an error about a name: the name that was meant, where there is one like it."""
    quoted = re.search(r"'([^']*)'", error.message)
    if state is None or quoted is None or not isinstance(error, UnknownColumn | IndexNotFound):
        return error.hint
    names = list(state.indexes) if isinstance(error, IndexNotFound) else [field.name for field in state.table.fields]
    near = nearest(quoted[1], names)
    return error.hint if near is None else f"Did you mean {near}?"


def _check_one(version: int | None, as_of: str | None) -> None:
    if version is not None and as_of is not None:
        raise InvalidInput("--version and --as-of were both given.", hint="Give one of them.")


# --- what was given ---------------------------------------------------------------------------------------------------


def warehouse_of(
    root: str | None, connection: str | None, storage_options: str | None, options: Iterable[str], on_line: bool
) -> Warehouse:
    """Return the warehouse that the options of a command line and the environment name.

    :param storage_options: a file of a JSON object, or the object itself.
    :param options: ``name=value`` each.
    :param on_line: whether ``storage_options`` is from the command line.
    :raises InvalidInput: for what cannot be understood, or a secret on the command line.
    """
    of_connection = {} if connection is None else _connection(connection)
    merged: dict[str, Any] = {}
    for name in ("storage_options", "secret_storage_options"):
        merged |= _object(of_connection.get(name) or {}, f"{name} of the connection {connection!r}")
    if of_connection.get(SOURCE_ROOTS):
        merged[SOURCE_ROOTS] = of_connection[SOURCE_ROOTS]
    if storage_options is not None:
        merged |= _storage_options(storage_options, on_line)
    for one in options:
        name, sign, value = one.partition("=")
        if not sign or not name:
            raise InvalidInput(f"--option {one!r} is no option.", hint="Write it as aws_region=eu-central-1.")
        merged |= _open_options({name: value})
    warehouse = root or of_connection.get("warehouse") or None
    return Warehouse(warehouse, with_warehouse(merged, warehouse) if merged or warehouse else merged)


def _connection(conn_id: str) -> dict[str, Any]:
    variable = f"AIRFLOW_CONN_{conn_id.upper()}"
    text = os.environ.get(variable)
    if text is None:
        raise InvalidInput(
            f"There is no connection {conn_id!r} in the environment.",
            hint=f"Set {variable} to its JSON, as for Airflow, whose database the command line does not read.",
        )
    return _object(_object(text, f"The variable {variable}").get("extra") or {}, f"extra in {variable}")


def _object(given: Any, what: str) -> dict[str, Any]:
    """Return an object, or that of its JSON. Its text is in no message: it may hold secrets."""
    try:
        value = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        value = None
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{what} is no JSON object.", hint='Write it as {"aws_region": "eu-central-1", …}.')
    return dict(value)


def _storage_options(given: str, on_line: bool) -> dict[str, Any]:
    if given.lstrip().startswith("{"):
        return (_open_options if on_line else dict)(_object(given, "The text of the storage options"))
    try:
        text = Path(given).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InvalidInput(f"The storage options in {given} cannot be read: {why}.") from None
    return _object(text, f"The text of {given}")


def _open_options(options: dict[str, Any]) -> dict[str, Any]:
    for name in options:
        if is_secret(name):
            raise InvalidInput(
                f"The option {name} is a secret, and others of this machine can read a command line.",
                hint=f"Give it in a file (--storage-options FILE) or in {STORAGE_OPTIONS}.",
            )
    return options


# --- options of commands ----------------------------------------------------------------------------------------------


def table_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the tables of the warehouse that begin so, for completion in a shell."""
    given = context.params
    try:
        lake = Lake(
            warehouse_of(
                given.get("warehouse") or os.environ.get(WAREHOUSE),
                given.get("connection") or os.environ.get(CONNECTION),
                given.get("storage_options") or os.environ.get(STORAGE_OPTIONS),
                given.get("option") or (),
                False,
            ),
            Output(),
        )
    except LakeIndexError:
        return []
    return [name for name in lake.names() if name.startswith(incomplete)]


def hidden(text: str, lake: Lake | None) -> str:
    """Return a text without what is secret."""
    return hide(text, [] if lake is None else lake.secrets())
