"""Locations of tables: a connection names a warehouse, how to reach its store, and which Spark works on it.

The hook turns what a DAG calls a table into a location and opens that table's timeline. It reads and
commits through :mod:`spark_apps.timeline` only, and opens rows by :func:`spark_apps.open_table`, so a worker needs no
Spark for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from airflow_provider_index.arguments import json_object, text_list
from airflow_provider_index.compat import connection_missing
from airflow_provider_index.hooks.connection_forms import with_form
from airflow_provider_index.masking import SECRET, mask_all
from spark_apps.storage.errors import InvalidInput, LakeIndexError, TableNotFound

if TYPE_CHECKING:
    from airflow_provider_index.runners.settings import SparkSettings
    from spark_apps.arrow_table import OpenTable
    from spark_apps.storage.store import Store
    from spark_apps.timeline.locations import Warehouse
    from spark_apps.timeline.log import Timeline

DEFAULT_SPARK_CONN_ID = "spark_default"
LISTED_TABLES = "listed_tables"
MAX_LISTED = 500


def is_address(table: str) -> bool:
    """Return whether a table is given by URI or path, rather than by name."""
    return "://" in table or table.startswith(("/", "file:"))


@with_form
class TableStoreHook(BaseHook):
    """Finds tables.

    The connection's extra may have ``warehouse`` (the URI or path below which tables have names), ``storage_options``
    (an object, or its JSON, with what ``obstore`` needs to reach the store), ``secret_storage_options`` (the same for
    options that Airflow's API must not show), ``source_roots`` (the addresses below which a log may name any source),
    ``listed_tables`` (addresses outside the warehouse that the page lists) and ``spark_conn_id``.

    :param table_conn_id: id of a connection of type ``index_table_store``. The default connection need not exist if
        tables are given by URI or path and their store needs no options.
    """

    conn_name_attr = "table_conn_id"
    default_conn_name = "index_table_store_default"
    conn_type = "index_table_store"
    hook_name = "Index table store"

    def __init__(self, table_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table_conn_id = table_conn_id
        self._extra: dict[str, Any] | None = None

    @property
    def extra(self) -> dict[str, Any]:
        """The connection's fields; empty if the default connection does not exist.

        :raises InvalidInput: if a connection that was asked for does not exist.
        """
        if self._extra is None:
            connection = self._found(self.table_conn_id)
            if connection is None and self.table_conn_id != self.default_conn_name:
                raise InvalidInput(
                    f"There is no Airflow connection {self.table_conn_id!r}.",
                    hint="Create it with type 'index_table_store', or correct table_conn_id.",
                )
            self._extra = {} if connection is None else dict(connection.extra_dejson)
        return self._extra

    def _found(self, conn_id: str) -> Any:
        """Return a connection; ``None`` if there is none of that id."""
        try:
            return self.get_connection(conn_id)
        except Exception as error:
            if not connection_missing(error):
                raise
            return None

    @property
    def warehouse(self) -> str | None:
        """URI or path under which tables have names."""
        return self.extra.get("warehouse") or None

    @property
    def storage_options(self) -> dict[str, Any]:
        """Return the options by which the store is reached, with what the connection believes logs about.

        Values that look like secrets are hidden from logs from now on.

        :raises InvalidInput: if the connection's text is no JSON object.
        """
        from spark_apps.storage.store import SOURCE_ROOTS
        from spark_apps.timeline.reader_roots import with_warehouse

        options = {**self._object("storage_options"), **self._object(SECRET + "storage_options")}
        mask_all(options)
        roots = self.extra.get(SOURCE_ROOTS)
        return with_warehouse({**options, SOURCE_ROOTS: roots} if roots else options, self.warehouse)

    @property
    def listed_tables(self) -> tuple[str, ...]:
        """Addresses of tables and sources outside of the warehouse, or of the folders of sources' logs.

        :raises InvalidInput: if the connection's text is no list of addresses, naming what cannot be one.
        """
        name = f"{LISTED_TABLES} of the connection {self.table_conn_id!r}"
        given = text_list(name, self.extra.get(LISTED_TABLES) or None) or []
        if len(given) > MAX_LISTED:
            raise InvalidInput(
                f"{name} has {len(given)} addresses, more than {MAX_LISTED}.",
                hint="Give folders _indexes, each with the logs of many sources.",
            )
        return tuple(dict.fromkeys(self._address(one.strip()) for one in given))

    def _address(self, text: str) -> str:
        from spark_apps.storage.store import Store

        if not is_address(text) or ".." in text.split("/"):
            raise InvalidInput(
                f"{text!r:.200} in {LISTED_TABLES} of the connection {self.table_conn_id!r} is no address.",
                hint="Give absolute paths or URIs: of a table, a registered source, its log, or a folder _indexes.",
            )
        return Store(text).uri.rstrip("/")

    def _object(self, name: str) -> dict[str, Any]:
        value = json_object(self.extra.get(name))
        if value is None:
            raise InvalidInput(
                f"{name} of the connection {self.table_conn_id!r} are not a JSON object.",
                hint='Write them as {"aws_region": "eu-central-1", …}.',
            )
        return value

    def spark_settings(self, spark_conn_id: str | None = None) -> SparkSettings:
        """Return the settings of a Spark connection: the given one, or the one that this connection names.

        :raises InvalidInput: if there is no such connection.
        """
        from airflow_provider_index.runners.settings import SparkSettings

        conn_id = spark_conn_id or self.extra.get("spark_conn_id") or DEFAULT_SPARK_CONN_ID
        connection = self._found(conn_id)
        if connection is None:
            raise InvalidInput(
                f"There is no Airflow connection {conn_id!r}, which says where Spark is.",
                hint="Create it with type 'spark' and the master as its host, for instance local[4].",
            )
        settings = SparkSettings.from_connection(connection)
        mask_all({"secrets": settings.secrets()})
        return settings

    def locate(self, table: str) -> str:
        """Return the location of a table given by URI, by absolute path, or by name.

        A name is a registered table's in a catalog, which the warehouse knows by a file, or a folder's below the
        warehouse.

        :raises InvalidName: if it is none of these, or both; a name cannot lead out of the warehouse.
        :raises TableNotFound: if no table is registered by a name with ``catalog:`` before it.
        """
        return self.tables_by_name().locate(table)

    def tables_by_name(self) -> Warehouse:
        """Return the tables below the warehouse, as they are known by name."""
        from spark_apps.timeline.locations import Warehouse

        options = {} if self.warehouse is None else self.storage_options
        return Warehouse(self.warehouse, options, f"the connection {self.table_conn_id!r}")

    def store(self, table: str) -> Store:
        """Return the store of a table's folder."""
        from spark_apps.storage.store import Store

        return Store(self.locate(table), self.storage_options)

    def timeline(self, table: str) -> Timeline:
        """Return the timeline of a table, or of the source registered there, read to its end.

        :raises TableNotFound: :raises LogVanished:
        """
        from spark_apps.timeline.log import Timeline

        store = self.log_store(table)
        if "://" not in store.uri and not Path(store.uri).is_dir():
            # A folder that is not there is not made by looking into it.
            raise TableNotFound(f"There is no table at {store.uri}.", hint="Check the location, or create the table.")
        return Timeline.load(store)

    def open(
        self, table: str, version: int | None = None, as_of: str | None = None, time_zone: str | None = None
    ) -> OpenTable:
        """Open a table, or the source registered there, to read its rows in this process, without Spark.

        ::

            orders = TableStoreHook("lake").open("shop.orders", as_of="2026-11-20T00:00Z")
            rows = orders.read(where="city = 'sfo'", columns=["id"])

        :param version: and ``as_of`` and ``time_zone``: as of :func:`spark_apps.open_table`.
        :raises TableNotFound: :raises VersionNotFound: :raises SnapshotExpired:
        """
        from spark_apps.arrow_table import open_table

        return open_table(self.locate(table), version, as_of, self.storage_options, time_zone=time_zone)

    def log_store(self, table: str) -> Store:
        """Return the store of a table's log, or of the source registered there; of none, where a table's would be."""
        from spark_apps.storage.store import Store
        from spark_apps.timeline.locations import Warehouse

        location = self.locate(table)
        log = Warehouse(self.warehouse, self.storage_options).log_of(location)
        return log or Store(location, self.storage_options)

    def get_conn(self) -> Any:
        """Return the store of the warehouse.

        :raises InvalidInput: if the connection names no warehouse.
        """
        from spark_apps.storage.store import Store

        if self.warehouse is None:
            raise InvalidInput(f"The connection {self.table_conn_id!r} names no warehouse.", hint="Fill it in.")
        return Store(self.warehouse, self.storage_options)

    def test_connection(self) -> tuple[bool, str]:
        """Return whether a log can be kept in the warehouse, for the button in Airflow's form.

        No Spark is started: that is what ``python -m airflow_provider_index check`` does.
        """
        from airflow_provider_index.hooks.connection_check import check_store, unsupported_options
        from airflow_provider_index.masking import shown_by_airflow

        try:
            checks = check_store(self)
        except LakeIndexError as error:
            return False, str(error)
        failed = next((one for one in checks if not one.ok), None)
        if failed is not None:
            return False, f"obstore cannot {failed.what} in {self.warehouse}: {failed.detail} {failed.hint}".rstrip()
        try:
            _ = self.listed_tables
        except LakeIndexError as error:
            return False, str(error)
        more = unsupported_options(self)
        remarks = f" Spark has no setting for {', '.join(more)}." if more else ""
        remarks += shown_by_airflow(self.extra, "storage_options")
        return True, f"{self.warehouse} can be listed, written and read by obstore.{remarks}"
