"""The operator that registers a source: rows that somebody else writes, to be indexed in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_index.arguments import Reader, choice, default, required, text, text_list, texts_by_name
from airflow_provider_index.operators.base import SparkTableOperator
from spark_apps.storage.errors import TableNotFound

if TYPE_CHECKING:
    from spark_apps.storage.store import Store
    from spark_apps.timeline.log import Timeline


class RegisterTableOperator(SparkTableOperator):
    """Registers a folder of files, a Delta or an Iceberg table, which is never written to. Where the same is registered
    already, nothing is done; where it was registered otherwise, the task fails and names what differs. The other
    operators then take the same ``table``.

    :param table: where the source lies: URI, absolute path, or name below the connection's warehouse. Of an Iceberg
        table that ``options`` name by its catalog, the table's folder.
    :param format: "parquet", "orc", "json", "csv", "delta" or "iceberg".
    :param schema: of plain files, as a DDL string; inferred once if not given.
    :param options: of the format's reader, as Spark names them; no secrets.
    :param index_root: folder below which log and indexes lie, under ``name``; by default ``_indexes`` beside the
        source. With one of one's own, the other operators take the log's address ``<index_root>/<name>`` as ``table``.
    :param record_key: columns that name a record, for an index of kind "record".
    """

    program = "register_table"
    readers: ClassVar[Mapping[str, Reader]] = {
        **SparkTableOperator.readers,
        "format": required(choice("parquet", "orc", "json", "csv", "delta", "iceberg")),
        "schema": text,
        "options": texts_by_name,
        "index_root": text,
        "name": text,
        "record_key": default(text_list, []),
    }

    def __init__(
        self,
        *,
        format: str = "parquet",
        schema: str | None = None,
        options: Mapping[str, Any] | None = None,
        index_root: str | None = None,
        name: str | None = None,
        record_key: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.format = format
        self.schema = schema
        self.options = options
        self.index_root = index_root
        self.name = name
        self.record_key = record_key

    def arguments(self) -> dict[str, Any]:
        return {
            "format": self.format,
            "schema": self.schema,
            "options": self.options,
            "index_root": self.index_root,
            "name": self.name,
            "record_key": self.record_key,
        }

    def jobs_store(self) -> Store | None:
        """Where the log is or will be; never in the source."""
        from spark_apps.storage.store import Store

        return Store(self._log_place(), self.hook.storage_options)

    def _timeline(self) -> Timeline | None:
        if self.index_root is None and self.name is None:
            return super()._timeline()
        try:
            return self.hook.timeline(self._log_place())
        except TableNotFound:
            return None

    def _log_place(self) -> str:
        from spark_apps.timeline.locations import locate

        return locate(self.location()).default_log(self.index_root, self.name)
