"""Files that Spark takes for the buckets of a table: rows lie by Spark's own hash, and names end with the bucket.

A scan of such files tells Spark how its rows are dealt, so that a join or a sum by the hashed columns needs no shuffle.
Spark's own writer of bucketed tables makes them; no catalog is asked, and none learns of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark_apps.layout.hashing import SPARK_BUCKETS
from spark_apps.mergetree.buckets import bucket_column, single_target
from spark_apps.mergetree.schema import column
from spark_apps.mergetree.spark_utils import cores, over_connect, proleptic_calendar
from spark_apps.mergetree.tree import Tree
from spark_apps.mergetree.write import (
    ROWS_PER_TASK,
    CountedRows,
    list_staged,
    translate_spark_errors,
    write_options,
)
from spark_apps.storage.errors import EnvironmentMismatch
from spark_apps.storage.store import ObjectStore
from spark_apps.timeline.model import AddFile

_BUCKET = re.compile(r".*_(\d+)(?:\..*)?$")
"""How Spark finds the bucket in a file's name."""


def stage_bucket_files(
    store: ObjectStore,
    tree: Tree,
    rows: DataFrame,
    directory: str,
    buckets: int,
    sequence_number: int,
    expected: int = 0,
) -> list[AddFile]:
    """Write rows as one file per bucket, sorted by the tree's key, and return the actions that make them visible.

    :param directory: key of a directory that does not exist yet.
    :param expected: how many rows these are, about, if known: few are written by a task per core.
    :raises EnvironmentMismatch: over Spark Connect, whose clients cannot reach that writer.
    :raises StorageError: if the files do not hold as many rows as Spark wrote.
    """
    spark = rows.sparkSession
    if over_connect(spark):
        raise EnvironmentMismatch(
            f"Over Spark Connect no files can be written for the layout 'buckets' of {tree.name}.",
            outcome="Nothing was changed.",
            hint="Maintain this index from a classic session (a job by spark-submit), or lay it by 'hash'.",
        )
    rows = rows.select(*map(column, tree.columns))
    if 0 < expected <= ROWS_PER_TASK * cores(spark):
        tasks = min(buckets, cores(spark))
        dealt = rows.repartition(tasks, bucket_column(tree.hash_fields, buckets, SPARK_BUCKETS))
    else:
        dealt = rows.repartition(buckets, *map(column, tree.hash_fields))
    observed = CountedRows(dealt)
    with translate_spark_errors(), proleptic_calendar(spark):
        _write(spark, observed.frame, store.spark_path(directory), buckets, tree, write_options(tree))
    staged = list_staged(
        store, tree, directory, single_target(buckets), "base",
        {("", str(bucket)): sequence_number for bucket in range(buckets)}, bucket_of=bucket_of,
    )  # fmt: skip
    observed.check(sum(action.rows for action in staged), directory)
    return staged


def bucket_of(name: str) -> str:
    """Return the bucket that Spark reads in a file's name.

    :raises ValueError: if there is none.
    """
    found = _BUCKET.match(name)
    if found is None:
        raise ValueError(f"{name} names no bucket")
    return str(int(found[1]))


def _write(
    spark: SparkSession, rows: DataFrame, path: str, buckets: int, tree: Tree, options: Mapping[str, str]
) -> None:
    """Write rows as a bucketed table's, which Spark's public writers do only for tables of a catalog."""
    context: Any = spark.sparkContext
    session: Any = spark
    frame: Any = rows
    jvm, java_session = context._jvm, session._jsparkSession
    settings = jvm.java.util.HashMap()
    for name, text in {**options, "path": path}.items():
        settings.put(name, text)
    sequence, none = _sequence_of(jvm), jvm.scala.Option.empty()
    spec = jvm.org.apache.spark.sql.catalyst.catalog.BucketSpec(buckets, sequence(tree.hash_fields), sequence(tree.key))
    source = _with_defaults(
        jvm,
        "org.apache.spark.sql.execution.datasources.DataSource",
        java_session, "parquet", sequence(()), none, sequence(()), jvm.scala.Option.apply(spec),
        jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(settings),
    )  # fmt: skip
    command = source.planForWriting(jvm.org.apache.spark.sql.SaveMode.Overwrite, frame._jdf.queryExecution().analyzed())
    mode = jvm.org.apache.spark.sql.execution.CommandExecutionMode.ALL()
    java_session.sessionState().executePlan(command, mode).commandExecuted()


def _sequence_of(jvm: Any) -> Any:
    def sequence(values: Sequence[str]) -> Any:
        kept = jvm.java.util.ArrayList()
        for value in values:
            kept.add(value)
        return jvm.scala.collection.JavaConverters.asScalaBuffer(kept).toSeq()

    return sequence


def _with_defaults(jvm: Any, name: str, *arguments: Any) -> Any:
    """Make an object of a Scala class whose last arguments, which differ by Spark's version, have defaults."""
    loaded = jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    (constructor,) = loaded.getConstructors()
    values = jvm.java.util.ArrayList()
    for argument in arguments:
        values.add(argument)
    for number in range(len(arguments) + 1, len(constructor.getParameterTypes()) + 1):
        values.add(loaded.getMethod(f"$lessinit$greater$default${number}", None).invoke(None, None))
    return constructor.newInstance(values.toArray())
