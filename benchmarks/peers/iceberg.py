"""Iceberg's Java runtime on Spark 3.5: tables made, merged into and read, in a local Hadoop catalog.

The runtime comes from a wheel that left its shaded Jackson out, so the classes of Spark's own Jackson are put where the
runtime looks for them. Runs in the environment of ``iceberg.txt``; nothing of ours is imported.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.peers.relocate import relocate
from benchmarks.peers.serve import serve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MODES = ("copy-on-write", "merge-on-read")
_RUNTIME = "iceberg-spark-runtime-3.5_2.12-*.jar"
_CATALOG = "lake"


def start(warehouse: str, memory: str = "4g", cores: int = 2) -> dict[str, Any]:
    """Starts Spark with a catalog in a folder; every other call needs it."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": memory,
        "spark.jars": ",".join(map(str, _jars())),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        f"spark.sql.catalog.{_CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{_CATALOG}.type": "hadoop",
        f"spark.sql.catalog.{_CATALOG}.warehouse": warehouse,
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName("iceberg")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    return {"spark": spark.version}


def make(table: str, folder: str, mode: str, partition_by: Sequence[str] = (), codec: str = "zstd") -> dict[str, Any]:
    """A table of the rows of a folder of Parquet files; ``mode`` is how it is merged into."""
    if mode not in _MODES:
        raise ValueError(f"The mode {mode!r} is none of {', '.join(_MODES)}.")
    spark = _spark()
    writer = spark.read.parquet(folder).writeTo(_name(table)).using("iceberg")
    for name, value in (
        ("format-version", "2"),
        ("write.merge.mode", mode),
        ("write.parquet.compression-codec", codec),
    ):
        writer = writer.tableProperty(name, value)
    if partition_by:
        from pyspark.sql import functions as F

        writer = writer.partitionedBy(*map(F.col, partition_by))
    begun = time.perf_counter()
    writer.create()
    return {"seconds": time.perf_counter() - begun, **_added(table)}


def merge(table: str, changes: str, on: Sequence[str]) -> dict[str, Any]:
    """MERGE of a folder of Parquet files: rows replace those that are equal in the columns ``on``, others are new."""
    spark = _spark()
    spark.read.parquet(changes).createOrReplaceTempView("changes")
    same = " AND ".join(f"t.`{name}` = s.`{name}`" for name in on)
    begun = time.perf_counter()
    spark.sql(
        f"MERGE INTO {_name(table)} t USING changes s ON {same} "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    return {"seconds": time.perf_counter() - begun, **_added(table)}


def count(table: str, where: str = "true") -> dict[str, Any]:
    """How many rows a table has that satisfy a predicate."""
    return {"rows": _spark().table(_name(table)).where(where).count()}


def scan(table: str, columns: Sequence[str] = ()) -> None:
    """Reads all rows."""
    _spark().table(_name(table)).select(*(columns or ["*"])).write.format("noop").mode("overwrite").save()


def _added(table: str) -> dict[str, int]:
    """What the newest commit of a table wrote."""
    rows = _spark().table(f"{_name(table)}.snapshots").orderBy("committed_at", ascending=False).limit(1).collect()
    summary = rows[0]["summary"]
    files = int(summary.get("added-data-files", 0)) + int(summary.get("added-delete-files", 0))
    return {"files": files, "bytes": int(summary.get("added-files-size", 0))}


def _name(table: str) -> str:
    return f"{_CATALOG}.measured.{table}"


def _spark() -> SparkSession:
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    if spark is None:
        raise RuntimeError("Spark was not started: call 'start' first.")
    return spark


@cache
def _jars() -> list[Path]:
    """The runtime, and the Jackson that it lacks, made once for the environment from the jars of its Spark."""
    import pyspark
    import snowpark_connect_deps_iceberg as wheel

    jackson = Path(sys.prefix) / "jackson-for-iceberg.jar"
    if not jackson.exists():
        of_spark = Path(pyspark.__file__).parent / "jars"
        jars = [next(of_spark.glob(f"jackson-{part}-[0-9]*.jar")) for part in ("annotations", "core", "databind")]
        relocate([jar for jar in jars if "asl" not in jar.name], "com.fasterxml.jackson", "org.apache.iceberg.shaded",
                 jackson)  # fmt: skip
    runtime = next((Path(wheel.__file__).parent / "jars").glob(_RUNTIME))
    return [jackson, runtime]


if __name__ == "__main__":
    functions = {"start": start, "make": make, "merge": merge, "count": count, "scan": scan}
    serve(functions, Path(__file__).with_suffix(".txt"))
