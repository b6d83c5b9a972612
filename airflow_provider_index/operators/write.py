"""Operators that write rows, or register a source: rows of files or SQL are committed with all kept indexes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from airflow_provider_index.arguments import (
    Reader,
    choice,
    declares_arguments,
    default,
    each,
    flag,
    integer,
    members,
    required,
    rules,
    text,
    text_list,
    texts_by_name,
    values_by_name,
)
from airflow_provider_index.identity import prefix_of
from airflow_provider_index.operators.base import SparkTableOperator
from airflow_provider_index.operators.staged import transaction_of
from spark_apps.storage.errors import InvalidInput, KeysExist, TableNotFound
from spark_apps.timeline.operations import DELETE, DELETE_REPEATED_KEYS, INSERT, INSERT_OVERWRITE, UPSERT

if TYPE_CHECKING:
    from spark_apps.jobs.job import Job, Outcome
    from spark_apps.storage.store import Store
    from spark_apps.timeline.log import Timeline

REPEATED = DELETE_REPEATED_KEYS.name
OPERATIONS = (UPSERT.name, INSERT.name, DELETE.name, INSERT_OVERWRITE.name, REPEATED)

BATCH = ("operation", "sql", "deleted", "where", "until", "parameters", "partitions")
"""The arguments of one write, which a batch may have as well."""

_CREATE: dict[str, Reader] = {
    "schema": text,
    "record_key": required(text_list),
    "partition_by": text_list,
    "ordering_column": text,
    "merge_by": required(choice("commit", "ordering")),
    "buckets": integer,
    "bucket_rule": required(text),
    "bucket_expressions": rules,
    "hash_fields": text_list,
    "hash_function": required(text),
    "write_mode": required(choice("merge_on_read", "copy_on_write")),
    "properties": texts_by_name,
    "positions": default(flag, False),
    "from_source": text,
    "source_format": text,
    "source_options": texts_by_name,
    "publish": text_list,
}


def batch(name: str, given: Any) -> dict[str, Any] | None:
    """Return one of several writes, or ``None``: some of the arguments in :data:`BATCH`."""
    return members(**{argument: WriteTableOperator.readers[argument] for argument in BATCH})(name, given)


class WriteTableOperator(SparkTableOperator):
    """Writes the rows of its source, in one commit.

    The source is files (``source`` and ``format``), a query (``sql``), or both; then the query reads the files as the
    view ``source``. ``delete`` may have a predicate (``where``) instead. Columns are matched by name. With
    ``create={"from_source": …}`` there need not be any of these: the table is created from that source's rows.

    ::

        WriteTableOperator(
            task_id="load",
            table="shop.orders",
            source="s3://landing/orders/{{ ds }}/*.csv",
            format="csv",
            options={"header": True},
            sql="SELECT id, city, CAST(price AS decimal(9, 2)) AS price FROM source",
        )

    :param operation: ``upsert``, ``insert`` (refuses keys that exist, also those that this task itself inserted before
        it was cleared), ``delete`` (rows by their record key),
        ``insert_overwrite`` (replaces the partitions that the rows fall into, or ``partitions``), or
        ``delete_repeated_keys`` (keeps one row of each record key that is in several partitions, and builds the
        ``record`` index again), which takes no source.
    :param source: one or several paths, with patterns if the store allows them.
    :param format: ``parquet``, ``csv``, ``json`` or ``orc``.
    :param options: options of Spark's reader.
    :param schema: the files' schema as DDL; inferred by default.
    :param sql: a query over the view ``source``, over tables below the connection's warehouse, whose indexes are used,
        and over everything that the Spark session knows.
    :param deleted: with ``upsert``, a boolean column of the rows, besides those of the table: if it is true, the row
        with this key is deleted, in the same commit.
    :param where: with ``delete``, a SQL predicate on the table.
    :param until: with ``delete``, in a table that is merged by its ordering column: the ordering of the delete, as text
        of that column's type. Rows with a higher one stay, and rows that come later with one that is not higher are
        not written.
    :param parameters: name -> value, bound to ``:name`` in ``where`` and ``sql`` and never read as SQL: text, numbers,
        booleans, dates, times, ``None``.
    :param partitions: with ``insert_overwrite``, the partitions to replace, as paths.
    :param create: creates the table first if it does not exist: the arguments of ``IndexedTable.create``, such as
        ``{"schema": "id bigint, …", "record_key": ["id"], "partition_by": ["dt"], "buckets": 8}``. With
        ``from_source`` it starts with the rows of a Delta or Iceberg table or a folder of files, in a commit before
        that of the batch.
    :param batches: several writes in one app, each a commit of its own, in order. Each is an object with any of
        ``operation``, ``sql``, ``where``, ``until``, ``parameters``, ``partitions``, which replace those above. A retry
        continues after the last one that was committed. Not in a transaction of several tasks.
    :param leave_indexes: in a transaction of several tasks, the indexes kept with the data that are left to other
        stages.

    Returns the receipt, or with ``batches`` a list of them.
    """

    program = "write_table"
    stageable = "rows"
    template_fields_renderers = {"sql": "sql", "create": "json", "options": "json", "batches": "json"}

    @declares_arguments
    def __init__(
        self,
        *,
        operation: Annotated[str, required(choice(*OPERATIONS))] = "upsert",
        source: str | Sequence[str] | None = None,
        format: Annotated[str, required(text)] = "parquet",
        options: Annotated[Mapping[str, Any] | None, texts_by_name] = None,
        schema: str | None = None,
        sql: str | None = None,
        deleted: str | None = None,
        where: str | None = None,
        until: str | None = None,
        parameters: Annotated[Mapping[str, Any] | None, values_by_name] = None,
        partitions: Sequence[str] | None = None,
        create: Annotated[Mapping[str, Any] | None, members(**_CREATE)] = None,
        batches: Annotated[Sequence[Mapping[str, Any]] | None, each(batch)] = None,
        leave_indexes: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)

    @property
    def indexes_to_leave(self) -> Sequence[str]:
        return self.leave_indexes

    def check_may_be_stage(self) -> None:
        super().check_may_be_stage()
        if self.batches is not None:
            raise InvalidInput("A stage of a transaction is one write.", hint="Give each batch a task of its own.")

    def arguments(self) -> dict[str, Any]:
        if self.leave_indexes and self.transaction is None:
            raise InvalidInput(
                "Indexes kept with the data can be left to others only where these are committed with the rows.",
                hint="Leave 'leave_indexes' out, or put the task into an index_transaction.",
            )
        # Without one, a task's transaction is named as before there was an "until".
        of_all = (name for name in BATCH if name != "until" or self.until is not None)
        shared = {name: getattr(self, name) for name in of_all}
        batches = [{**shared, **batch} for batch in self.batches] if self.batches is not None else [shared]
        for batch in () if self.takes_over else batches:
            self._check(batch)
        batches = [_bound(batch) for batch in batches]
        return {
            "source": {
                "paths": self.paths,
                "format": self.format,
                "options": dict(self.options or {}),
                "schema": self.schema,
            }
            if self.paths
            else None,
            "create": self.create,
            "batches": batches,
            "several": self.batches is not None,
            **({"takes_over": True} if self.takes_over else {}),
        }

    def job(self, context: Mapping[str, Any], txn_id: str | None) -> Job:
        """Return the job of the app: the arguments, and the warehouse for table names in queries."""
        from msgspec.structs import replace

        job = super().job(context, txn_id)
        if self.hook.warehouse is None or not any(batch["sql"] for batch in job.arguments["batches"]):
            return job
        return replace(job, arguments={**job.arguments, "warehouse": self.hook.warehouse})

    @property
    def takes_over(self) -> bool:
        """True if the table is created from a source's rows, and nothing else is written."""
        given = (self.paths, self.sql, self.where, self.partitions, self.batches)
        made_of = None if self.create is None else self.create.get("from_source")
        return made_of is not None and self.operation in ("insert", "upsert") and not any(given)

    @property
    def paths(self) -> list[str]:
        """The source's paths as a list."""
        return list(self.source or ())

    def source_fingerprint(self) -> Any:
        from airflow_provider_index.source_files import fingerprint

        if not self.paths:
            return None
        return fingerprint(self.paths, self.hook.storage_options)

    def check_before_spark(self) -> None:
        from airflow_provider_index.source_files import check_there
        from spark_apps.jobs.checks import check_query

        for batch in self.arguments()["batches"]:
            if batch["sql"] is not None:
                check_query(batch["sql"])
        check_there(self.paths, self.hook.storage_options, here=self._spark_is_here())
        if self.create is None or self._timeline() is not None:
            super().check_before_spark()

    def transactions(self, txn_id: str) -> list[str]:
        if self.batches is None:
            return [txn_id]
        return [f"{txn_id}.{number:03d}" for number in range(len(self.batches))]

    def conclude(self, txn_id: str | None, outcome: Outcome | None) -> Any:
        try:
            return super().conclude(txn_id, outcome)
        except KeysExist as error:
            raise self._inserted_before(error, txn_id) from error

    def _inserted_before(self, error: KeysExist, txn_id: str | None) -> KeysExist:
        """Return the error of keys that exist; it names the commit of an earlier round of the task, if there is one."""
        from spark_apps.timeline.transactions import commits_below

        timeline = self._timeline()
        if timeline is None or txn_id is None:
            return error
        one_of_round = txn_id if self.transaction is None else transaction_of(self.transaction)[0]
        earlier = (
            commit for commit in commits_below(timeline, prefix_of(one_of_round))
            if not commit.txn_id.startswith(txn_id) and commit.writes and timeline.head.is_in_effect(commit.version)
        )  # fmt: skip
        commit = next(earlier, None)
        if commit is None:
            return error
        return KeysExist(
            f"{error.message} This task has inserted rows before it was cleared, in version {commit.version} "
            f"(transaction {commit.txn_id}).",
            outcome=error.outcome,
            hint="If these rows are to stay as they are, mark the task as success. To replace them, use the operation "
            "'upsert'. To insert them anew, delete them first, with the operation 'delete', then clear this task.",
        )

    def _check(self, batch: Mapping[str, Any]) -> None:
        operation = batch["operation"]
        if batch["deleted"] is not None and operation != "upsert":
            raise InvalidInput(f"{operation} takes no 'deleted'.", hint="Give it with the operation 'upsert'.")
        if batch["where"] is not None and operation != "delete":
            raise InvalidInput(
                f"{operation} takes no predicate.", hint="Give 'where' with the operation 'delete', or filter in 'sql'."
            )
        if batch.get("until") is not None and operation != "delete":
            raise InvalidInput(f"{operation} takes no 'until'.", hint="Give it with the operation 'delete'.")
        if operation == REPEATED:
            if self.paths or any(batch[name] is not None for name in ("sql", "partitions")):
                raise InvalidInput(f"{operation} takes no rows.", hint="It looks at the rows of the table itself.")
            return
        if batch["where"] is None and batch["sql"] is None and not self.paths:
            raise InvalidInput(
                "There is nothing to write: neither source nor sql" + (" nor where." if operation == "delete" else "."),
                hint="Give the source's path, a query, or both.",
            )


def _bound(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a batch with its parameters bound. :raises InvalidInput: for one that is missing or unknown."""
    from spark_apps.storage.parameters import bind_all

    others = {name: value for name, value in batch.items() if name != "parameters"}
    parameters, texts = batch["parameters"], {name: batch[name] for name in ("where", "sql") if batch[name] is not None}
    if parameters is None:
        return others
    return {**others, **bind_all(texts, parameters)}


# --- The operator that registers a source ---------------------------------------------------------------------------


class RegisterTableOperator(SparkTableOperator):
    """Registers a folder of files, a Delta or an Iceberg table, which is never written to.

    If the same is registered already, nothing is done; if it was registered differently, the task fails and names the
    difference. The other operators then take the same ``table``.

    ::

        RegisterTableOperator(
            task_id="register", table="s3://lake/raw/riders", format="delta", record_key=["id"], name="riders"
        )

    :param table: the address of the source: URI, absolute path, or name below the connection's warehouse; or the name
        of a table in a catalog of the Spark session, ``prod.db.trips``. Its log is then below the warehouse, and all
        operators take its name. ``catalog:`` before it says that no folder is meant. For an Iceberg table in a catalog
        of pyiceberg's (see ``options``), the table's folder.
    :param format: "parquet", "orc", "json", "csv", "delta", "iceberg" or "hudi".
    :param schema: schema of plain files, as a DDL string; by default it is inferred once.
    :param options: options of the format's reader, by Spark's names; no secrets.
    :param index_root: the folder that contains the folder ``name`` with log and indexes; by default ``_indexes``
        beside the source. If it is given, the other operators take the log's address ``<index_root>/<name>`` as
        ``table``.
    :param name: the name of the folder with log and indexes; by default that of the source.
    :param record_key: columns that identify a record, for an index of kind "record".
    """

    program = "register_table"

    @declares_arguments
    def __init__(
        self,
        *,
        format: Annotated[
            str, required(choice("parquet", "orc", "json", "csv", "delta", "iceberg", "hudi"))
        ] = "parquet",
        schema: str | None = None,
        options: Annotated[Mapping[str, Any] | None, texts_by_name] = None,
        index_root: str | None = None,
        name: str | None = None,
        record_key: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)

    def arguments(self) -> dict[str, Any]:
        others = super().arguments()
        if not self._may_be_of_catalog():
            return others
        return {**others, "catalog_name": self.table, "warehouse": self.hook.warehouse}

    def check_before_spark(self) -> None:
        from airflow_provider_index.source_files import check_there

        if not self._may_be_of_catalog():
            check_there([self.location()], self.hook.storage_options, here=self._spark_is_here())

    def location(self) -> str:
        """Return the source's address, or its name where that can be no folder's: the app asks the catalogs."""
        from spark_apps.timeline.catalog_names import is_plain

        if not self._may_be_of_catalog():
            return super().location()
        return self.hook.tables_by_name().folder(self.table) if is_plain(self.table) else self.table

    def _may_be_of_catalog(self) -> bool:
        from spark_apps.timeline.catalog_names import may_be_named

        return self.hook.warehouse is not None and may_be_named(self.table) is not None

    def has_log(self) -> bool:
        return self._may_be_of_catalog() or super().has_log()

    def jobs_store(self) -> Store | None:
        """Return where the log is or will be, which is never inside the source.

        For a name it is the warehouse: where the log will be is not known before the catalogs are asked.
        """
        from spark_apps.storage.store import Store

        if self._may_be_of_catalog():
            return self.hook.tables_by_name().root_store()
        return Store(self._log_location(), self.hook.storage_options)

    def _timeline(self) -> Timeline | None:
        if self.index_root is None and self.name is None:
            return super()._timeline()
        try:
            return self.hook.timeline(self._log_location())
        except TableNotFound:
            return None

    def _log_location(self) -> str:
        from spark_apps.timeline.catalog_names import PREFIX
        from spark_apps.timeline.locations import locate

        if self.table.startswith(PREFIX) and (self.index_root is None or self.name is None):
            raise InvalidInput(
                f"The log of {self.table} is to be kept elsewhere, and only one of index_root and name is given.",
                hint="Give both, or neither: the log is then below the connection's warehouse.",
            )
        return locate(self.location()).default_log(self.index_root, self.name)
