"""Program: tries what both stacks of a driver can do in a store, and whether each sees what the other wrote.

Airflow hands it a job; by hand it is ``spark-submit … check_storage.py --at s3://lake/some/folder [--options FILE]``.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from spark_apps.engine.hadoop_store import reach
from spark_apps.jobs.environment import hadoop_version
from spark_apps.jobs.job import Job, Outcome
from spark_apps.jobs.program import log, main, start_session
from spark_apps.storage.credentials import hadoop_settings, missing_file_system
from spark_apps.storage.errors import InvalidInput, LakeIndexError
from spark_apps.storage.store import Store
from spark_apps.storage.store_check import FOLDER, ROW_STACK, Reach, table_of, try_call, try_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_PARTITION = "a b%+ü"
_COMMITTERS = "spark.sql.sources.commitProtocolClass"
_RENAME_FREE = "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol"
_BY_RENAMES = (
    "each file is written twice, as the committer renames it at the end, which an object store can only do by a copy",
    "It is slower, not wrong. For the committers of S3A: the jar org.apache.spark:spark-hadoop-cloud_2.13 of Spark's "
    f"release, {_COMMITTERS}={_RENAME_FREE}, spark.sql.parquet.output.committer.class="
    "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter, spark.hadoop.fs.s3a.committer.name=magic.",
)


def check_storage(spark: SparkSession, job: Job) -> Outcome:
    """Return a list of what was tried.

    The job's table is a folder of the check's own, which is empty again afterwards.
    """
    reach(spark, job.table)
    store = Store(job.table, job.storage_options)
    reaches = try_store(store)
    try:
        reaches += _try_spark(spark, store)
    finally:
        try:
            store.delete([info.key for info in store.list("")])
        except LakeIndexError as error:
            log.warning("Files of the check may be left in %s: %s", store.uri, error.message)
    for line in table_of(reaches).splitlines():
        log.info("%s", line)
    return Outcome("report", msgspec.to_builtins(reaches))


def _try_spark(spark: SparkSession, store: Store) -> list[Reach]:
    rows = store.spark_path("rows")
    scheme = rows.partition("://")[0]
    steps: list[tuple[str, Callable[[], tuple[str, str] | None]]] = [
        (f"write rows to {scheme}://", lambda: _write(spark, rows, scheme)),
        ("read them", lambda: _count(spark, rows)),
        ("see its files as the log would, and no others", lambda: _seen(store)),
        ("read what the log's side wrote", lambda: _exchange(spark, store)),
        ("write a folder with spaces and signs in its name", lambda: _odd_folder(spark, store)),
    ]
    reaches: list[Reach] = []
    for what, call in steps:
        reaches.append(try_call(ROW_STACK, what, lambda call=call: _translated(call)))  # type: ignore[misc]
        if not reaches[-1].ok:
            break
    return reaches


def _write(spark: SparkSession, path: str, scheme: str) -> tuple[str, str] | None:
    spark.range(3).write.mode("overwrite").parquet(path)
    if scheme != "s3a" or spark.conf.get(_COMMITTERS, None) == _RENAME_FREE:
        return None
    return _BY_RENAMES


def _count(spark: SparkSession, path: str) -> None:
    count = spark.read.parquet(path).count()
    if count != 3:
        raise LakeIndexError(f"{count} rows were read where 3 were written")


def _seen(store: Store) -> None:
    keys = [info.key for info in store.list("rows")]
    if not any(key.endswith(".parquet") for key in keys):
        raise LakeIndexError(
            "Spark's files are not there: the executors write to disks of their own, or the two stacks mean two stores",
            hint="Name a folder that all machines share, or one endpoint and region for both.",
        )
    if left := [key for key in keys if "_temporary" in key]:
        raise LakeIndexError(
            f"Spark left {len(left)} files that it was to remove, such as {left[0]}",
            hint="Let Spark's keys or role delete there too.",
        )


def _exchange(spark: SparkSession, store: Store) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(pa.table({"id": [1, 2, 3]}), buffer)
    store.create("exchange.parquet", buffer.getvalue())
    _count(spark, store.spark_path("exchange.parquet"))


def _odd_folder(spark: SparkSession, store: Store) -> None:
    """Write a partition, and read its file by the key that the listing of the log's stack shows."""
    from pyspark.sql import functions as F

    rows = spark.range(3).withColumn("p", F.lit(_PARTITION))
    rows.write.partitionBy("p").mode("overwrite").parquet(store.spark_path("partitions"))
    keys = [info.key for info in store.list("partitions") if info.key.endswith(".parquet")]
    if not keys or not all("/p=" in key for key in keys):
        raise LakeIndexError(f"the partition {_PARTITION!r} is listed as {sorted(keys)[:1]}")
    for key in keys:
        store.get(key)
    count = spark.read.parquet(*(store.spark_path(key) for key in keys)).count()
    if count != 3:
        raise LakeIndexError(f"{count} rows were read by their files where 3 were written")


def _translated(call: Callable[[], tuple[str, str] | None]) -> tuple[str, str] | None:
    """Make a call; what Spark raises becomes an error of this package, with what to do."""
    try:
        return call()
    except LakeIndexError:
        raise
    except Exception as error:
        message, hint = missing_file_system(str(error), hadoop_version()) or (str(error).split("\n")[0][:500], "")
        raise LakeIndexError(message, hint=hint) from error


# --- by hand ----------------------------------------------------------------------------------------------------------


def by_hand(arguments: Sequence[str]) -> int:
    """Check a location with the Spark that ``spark-submit`` gives; print a table; return 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="check_storage.py", description="Tries what tables need of a store.")
    parser.add_argument(
        "--at", required=True, metavar="URI", help="a folder of the store; one is made in it for a while"
    )
    parser.add_argument(
        "--options", type=Path, metavar="FILE", help="storage options as JSON, since they may hold keys"
    )
    chosen = parser.parse_args(arguments)
    try:
        options = json.loads(chosen.options.read_text(encoding="utf-8")) if chosen.options else {}
        if not isinstance(options, dict):
            raise InvalidInput(f"{chosen.options} holds no JSON object.", hint='Write {"region": "eu-central-1"}.')
        folder = f"{chosen.at.rstrip('/')}/{FOLDER}/{uuid.uuid4().hex}"
        at = folder if "://" in folder else Store(folder).uri
        job = Job("check_storage", at, storage_options=options, app_name="check storage")
        begun = time.monotonic()
        spark = start_session(job)
    except (LakeIndexError, OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    started = Reach(ROW_STACK, f"start Spark {spark.version}", True, seconds=time.monotonic() - begun)
    try:
        reaches = [started, *msgspec.convert(check_storage(spark, job).value, list[Reach])]
    finally:
        spark.stop()
    sys.stdout.write(table_of(reaches))
    for name in hadoop_settings(at, options).unsupported_options:
        sys.stdout.write(f"Spark has no setting for the storage option {name}.\n")
    return 0 if all(reach.ok for reach in reaches) else 1


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].startswith("--"):
        sys.exit(by_hand(sys.argv[1:]))
    main(check_storage)
