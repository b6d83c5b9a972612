"""Program: tries what both stacks of a driver can reach of a store, and whether each sees what the other wrote."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from spark_apps.jobs.environment import hadoop_version
from spark_apps.jobs.job import Job, Outcome
from spark_apps.jobs.program import log, main
from spark_apps.storage.credentials import FILE_SYSTEMS
from spark_apps.storage.errors import LakeIndexError
from spark_apps.storage.store import Store
from spark_apps.storage.store_check import ROW_STACK, Reach, try_call, try_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NO_CLASS = re.compile(r"ClassNotFoundException: (?:Class )?([\w.$]+)|No FileSystem for scheme \"?([\w]+)\"?")


def check_storage(spark: SparkSession, job: Job) -> Outcome:
    """Return a list of what was tried.

    The job's table is a folder of the check's own, which is empty again afterwards.
    """
    store = Store(job.table, job.storage_options)
    reaches = try_store(store)
    try:
        reaches += _try_spark(spark, store)
    finally:
        try:
            store.delete([info.key for info in store.list("")])
        except LakeIndexError as error:
            log.warning("Files of the check may be left in %s: %s", store.uri, error.message)
    for reach in reaches:
        log.info("%s", reach.line())
    return Outcome("report", msgspec.to_builtins(reaches))


def _try_spark(spark: SparkSession, store: Store) -> list[Reach]:
    rows = store.spark_path("rows")
    steps: list[tuple[str, Callable[[], Any]]] = [
        (f"write rows to {rows.partition('://')[0]}://", lambda: spark.range(3).write.mode("overwrite").parquet(rows)),
        ("read them", lambda: _count(spark, rows)),
        ("see its files by obstore", lambda: _seen(store)),
        ("read what obstore wrote", lambda: _exchange(spark, store)),
    ]
    reaches: list[Reach] = []
    for what, call in steps:
        reaches.append(try_call(ROW_STACK, what, lambda call=call: _translated(call, rows)))  # type: ignore[misc]
        if not reaches[-1].ok:
            break
    return reaches


def _count(spark: SparkSession, path: str) -> None:
    count = spark.read.parquet(path).count()
    if count != 3:
        raise LakeIndexError(f"{count} rows were read where 3 were written")


def _seen(store: Store) -> None:
    if not any(info.key.endswith(".parquet") for info in store.list("rows")):
        raise LakeIndexError(
            "Spark's files are not there: the executors write to disks of their own, or the two stacks mean two stores"
        )


def _exchange(spark: SparkSession, store: Store) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(pa.table({"id": [1, 2, 3]}), buffer)
    store.create("exchange.parquet", buffer.getvalue())
    _count(spark, store.spark_path("exchange.parquet"))


def _translated(call: Callable[[], Any], path: str) -> None:
    """Make a call; what Spark raises becomes an error of this package, with what to do."""
    try:
        call()
    except LakeIndexError:
        raise
    except Exception as error:
        raise LakeIndexError(_words(str(error), path)) from error


def _words(text: str, path: str) -> str:
    missing = _NO_CLASS.search(text)
    scheme = path.partition("://")[0]
    if missing is None or scheme not in FILE_SYSTEMS:
        return text.split("\n")[0][:500]
    name, package = FILE_SYSTEMS[scheme]
    version = hadoop_version()
    if version is not None:
        package = package.replace("<Spark's Hadoop version>", version)
    return (
        f"Spark has no class for {scheme}:// ({missing[1] or name}): give the Spark connection "
        f'"packages": "{package}", or put its jars where Spark is'
    )


if __name__ == "__main__":
    main(check_storage)
