"""Program: writes rows from files or queries into a table, in one commit or, batch by batch, in several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from spark_apps.jobs.job import Job
from spark_apps.jobs.program import commit_options, load_table, log, main, use_indexes
from spark_apps.storage.errors import AlreadyCommitted, InvalidInput, TableExists, TableNotFound, note_done_before
from spark_apps.storage.store import Store
from spark_apps.timeline.commit import new_txn_id
from spark_apps.timeline.log import Timeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_apps.table import IndexedTable
    from spark_apps.timeline.model import Receipt

SOURCE_VIEW = "source"


def write_table(spark: SparkSession, job: Job) -> Any:
    """Write the job's batches; return one receipt, or a list of them where the job has several batches."""
    arguments = job.arguments
    if arguments.get("takes_over"):
        return _take_over(spark, job)
    # Before the table is made: what cannot be read makes none.
    source = _read(spark, arguments["source"]) if arguments.get("source") else None
    table, created = _open(spark, job)
    if source is not None:
        source.createOrReplaceTempView(SOURCE_VIEW)
    batches = arguments["batches"]
    if any(batch.get("sql") for batch in batches):
        use_indexes(spark, job, arguments.get("warehouse"))
    if job.transaction is not None and arguments.get("several"):
        raise InvalidInput("A stage of a transaction is one write.", hint="Give each batch a stage of its own.")
    receipts: list[Receipt] = []
    for number, batch in enumerate(batches):
        txn_id = None if job.txn_id is None else _txn_id(job.txn_id, number, arguments)
        try:
            rows = _query(spark, job, batch["sql"]) if batch.get("sql") else source
            receipt = _write(table, rows, batch, commit_options(job, txn_id))
        except Exception as error:
            if done := _done_before(created, len(receipts), len(batches)):
                note_done_before(error, done)
            raise
        receipts.append(receipt)
    return receipts if arguments.get("several") else receipts[0]


def _txn_id(txn_id: str, number: int, arguments: Mapping[str, Any]) -> str:
    return f"{txn_id}.{number:03d}" if arguments.get("several") else txn_id


def _done_before(created: bool, written: int, batches: int) -> str:
    """Return what a job has done before the batch that failed; an empty text if nothing."""
    parts = ["The table was created"] if created else []
    parts += [f"{written} of {batches} batches were written before"] if written else []
    return f"{', and '.join(parts)}; this write changed nothing." if parts else ""


def _open(spark: SparkSession, job: Job) -> tuple[IndexedTable, bool]:
    """Return the job's table, and whether it was created now."""
    from spark_apps.table import IndexedTable
    from spark_apps.timeline.model import DATA_TREE

    create = job.arguments.get("create")
    from_source = None if create is None else create.get("from_source")
    try:
        table = load_table(spark, job)
        if from_source is None or table.snapshot.state.files(DATA_TREE):
            return _agreeing(table, create), False
    except TableNotFound:
        if create is None:
            raise
    create = dict(create or {})
    try:
        table = IndexedTable.create(spark, job.table, **create, options=job.storage_options)
    except TableExists:
        # Another task was first; its table is as good as one that this task made.
        return _agreeing(load_table(spark, job), create), False
    log.info("created %s%s", job.table, "" if from_source is None else f" from {from_source}")
    return table, True


def _take_over(spark: SparkSession, job: Job) -> Receipt:
    """Make the table of a source's rows, where there is nothing else to write."""
    from spark_apps.table import IndexedTable
    from spark_apps.timeline.model import Receipt
    from spark_apps.timeline.transactions import find_receipt

    create, txn_id = job.arguments["create"], job.txn_id or new_txn_id("take-over")
    table = IndexedTable.create(spark, job.table, **create, options=job.storage_options, txn_id=txn_id)
    receipt = find_receipt(Timeline.load(Store(table.uri, job.storage_options)), txn_id)
    return receipt or Receipt(None, txn_id, "insert")


def _agreeing(table: IndexedTable, create: Mapping[str, Any] | None) -> IndexedTable:
    """Return a table that is there, unless the job would have made it with other bucket rules or another hash."""
    from spark_apps.actions.bucket_rules import check_agrees

    check_agrees(table.snapshot.state, create or {})
    return table


def _read(spark: SparkSession, source: Mapping[str, Any]) -> DataFrame:
    with _refused_by_spark("source"):
        reader = spark.read.format(source["format"]).options(**source["options"])
        if source.get("schema"):
            reader = reader.schema(source["schema"])
        return reader.load(source["paths"])


def _query(spark: SparkSession, job: Job, text: str) -> DataFrame:
    from spark_apps.sql.queries import query_frame

    with _refused_by_spark("query"):
        return query_frame(spark, text, job.arguments.get("warehouse"), job.storage_options)


@contextmanager
def _refused_by_spark(what: str) -> Iterator[None]:
    """Turn what Spark says of a query or a reader, before it runs, into a mistake of the caller."""
    from pyspark.errors import AnalysisException

    try:
        yield
    except AnalysisException as error:
        said = str(error).split("\nJVM stacktrace:")[0].strip()
        raise InvalidInput(f"Spark refuses the {what}: {said}", hint=f"Correct the {what}.") from None


def _write(
    table: IndexedTable,
    rows: DataFrame | None,
    batch: Mapping[str, Any],
    commit: Mapping[str, Any],
) -> Receipt:
    operation = batch["operation"]
    try:
        if operation == "delete_repeated_keys":
            return table.delete_repeated_keys(**commit)
        if operation == "delete" and batch.get("where") is not None:
            return table.delete(batch["where"], until=batch.get("until"), **commit)
        if rows is None:
            raise InvalidInput("There is nothing to write.", hint="Give a source or a query.")
        if operation == "insert_overwrite" and batch.get("partitions") is not None:
            return table.insert_overwrite(rows, partitions=batch["partitions"], **commit)
        if operation == "upsert":
            return table.upsert(rows, deleted=batch.get("deleted"), **commit)
        if operation == "delete":
            return table.delete(rows, until=batch.get("until"), **commit)
        return {
            "insert": table.insert,
            "insert_overwrite": table.insert_overwrite,
        }[operation](rows, **commit)
    except AlreadyCommitted as error:
        receipt: Receipt = error.receipt
        return receipt


if __name__ == "__main__":
    main(write_table)
