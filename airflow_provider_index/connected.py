"""The parts of operators and sensors that work on tables: connection, hook, and errors as Airflow acts on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Annotated, Any

from airflow_provider_index.arguments import ReadsArguments, declares_arguments, flag, required
from airflow_provider_index.compat import conf
from airflow_provider_index.documentation import with_documentation
from airflow_provider_index.failures import as_airflow_error
from airflow_provider_index.hooks.table_store import TableStoreHook
from airflow_provider_index.masking import MaskedFields
from spark_apps.storage.errors import LakeIndexError


class Connected(MaskedFields, ReadsArguments):
    """A task on tables of a connection.

    :param table_conn_id: a connection of type ``index_table_store``, with the warehouse, storage options and the Spark
        to use.
    """

    ui_color = "#dcecf5"

    @declares_arguments
    def __init__(self, *, table_conn_id: str = TableStoreHook.default_conn_name, **kwargs: Any) -> None:
        super().__init__(**with_documentation(type(self), kwargs))

    @cached_property
    def hook(self) -> TableStoreHook:
        """The hook of the tables' connection."""
        return TableStoreHook(self.table_conn_id)

    @contextmanager
    def reading(self, context: Mapping[str, Any]) -> Iterator[None]:
        """Read the arguments; fail the task as :meth:`failed` says for an error of that or of what is done then."""
        try:
            self.read_arguments()
            yield
        except LakeIndexError as error:
            raise self.failed(context, error) from error

    def push(self, context: Mapping[str, Any], **values: Any) -> None:
        """Push values to XCom, each under a key of its own."""
        for key, value in values.items():
            context["ti"].xcom_push(key=key, value=value)

    def failed(self, context: Mapping[str, Any], error: LakeIndexError) -> Exception:
        """Return the error to raise: one that fails the task at once if a retry cannot help."""
        return as_airflow_error(error)


class OnTable(Connected):
    """A task on one table.

    :param table: URI, absolute path, or name (``db.table``) below the connection's warehouse.
    :param deferrable: wait in the triggerer instead of in a worker, if there is something to wait for; by default
        Airflow's ``default_deferrable``.
    """

    # Airflow asks for it before the task runs.
    not_templates = frozenset({"deferrable"})

    @declares_arguments
    def __init__(self, *, table: str, deferrable: Annotated[bool | None, required(flag)] = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if deferrable is None:
            self.deferrable = bool(conf.getboolean("operators", "default_deferrable", fallback=False))
