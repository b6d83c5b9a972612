"""Writes ``tests/spark_apps/sources/hudi_timelines.tar.gz``: what Hudi's own writers keep beside the files of tables.

By it timelines are read in tests without Spark. Run as ``python -m tests.connectors.write_hudi_timelines FOLDER`` with
PySpark 3.5 and Hudi's bundle; the folder gets the tables.
"""

from __future__ import annotations

import os
import sys
import tarfile
from pathlib import Path
from typing import Any

from tests.connectors.hudi_tables import CATALOG, rows_of, write
from tests.connectors.releases import CONNECTORS

TO = Path(__file__).parents[1] / "spark_apps/sources/hudi_timelines.tar.gz"


def written(spark: Any, path: str, kind: str, version: str) -> None:
    """A table by each of some operations, of a version of the format."""
    more = {"hoodie__write__table__version": version}
    write(rows_of(spark, 0, 20), path, "bulk_insert", kind, **more)
    write(rows_of(spark, 5, 8), path, "upsert", kind, **more)
    write(rows_of(spark, 20, 25), path, "insert", kind, **more)
    write(rows_of(spark, 0, 2), path, "delete", kind, **more)
    if kind == "mor":
        folded = {"hoodie__compact__inline": "true", "hoodie__compact__inline__max__delta__commits": "1"}
        write(rows_of(spark, 5, 9), path, "upsert", kind, **more, **folded)
    write(rows_of(spark, 30, 34), path, "insert_overwrite_table", kind, **more)


def archived(spark: Any, path: str) -> None:
    """A table whose first commits are in its archive."""
    few = {"hoodie__clean__automatic": "true", "hoodie__clean__commits__retained": "1",
           "hoodie__keep__min__commits": "3", "hoodie__keep__max__commits": "4"}  # fmt: skip
    for n in range(12):
        write(rows_of(spark, n, n + 2), path, "upsert", "cow", **few)


def looked_after(spark: Any, path: str) -> None:
    """A table with savepoints, a clustering, and a commit that was rolled back."""
    for n in range(3):
        write(rows_of(spark, n, n + 5), path, "upsert", "cow")
    spark.sql(f"CREATE TABLE looked_after USING hudi LOCATION '{path}'")
    spark.sql(f"CALL create_savepoint(table => 'looked_after', commit_time => '{_instants(path)[0]}')")
    write(rows_of(spark, 10, 12), path, "upsert", "cow")
    spark.sql("CALL run_clustering(table => 'looked_after', op => 'scheduleAndExecute', order => 'id')").collect()
    write(rows_of(spark, 20, 22), path, "upsert", "cow")
    spark.sql(f"CALL rollback_to_instant(table => 'looked_after', instant_time => '{_instants(path)[-1]}')").collect()


def _instants(path: str) -> list[str]:
    return sorted(name.partition("_")[0] for name in os.listdir(f"{path}/.hoodie/timeline") if name.endswith("commit"))


def _timeline_only(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    _, *inside = member.name.split("/")
    beside = inside[1:2] == ["metadata"] or any(part.startswith(".") for part in inside[1:])
    return member if not inside or (inside[0] == ".hoodie" and not beside) else None


if __name__ == "__main__":
    from pyspark.sql import SparkSession

    folder = Path(sys.argv[1])
    settings = {"spark.serializer": "org.apache.spark.serializer.KryoSerializer",
                "spark.jars.packages": CONNECTORS["hudi"].packages["3.5"],
                "spark.sql.extensions": CONNECTORS["hudi"].extension,
                "spark.sql.catalog.spark_catalog": CATALOG,
                "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar"}  # fmt: skip
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    for table, kind, version in (
        ("cow6", "cow", "6"),
        ("mor6", "mor", "6"),
        ("mor8", "mor", "8"),
        ("cow9", "cow", "9"),
    ):
        written(session, f"{folder}/{table}", kind, version)
    archived(session, f"{folder}/archived")
    looked_after(session, f"{folder}/looked_after")
    with tarfile.open(TO, "w:gz") as archive:
        for table in sorted(os.listdir(folder)):
            archive.add(folder / table, table, filter=_timeline_only)
