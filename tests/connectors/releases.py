"""Which release of each connector is tested on which Spark, and what a session needs to have it.

The one place that names them. Spark fetches the jars itself (``spark.jars.packages``) and keeps them below the home
folder.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Connector:
    """A connector of Spark's for tables of a format.

    :param packages: Spark's minor release -> the Maven coordinates of the connector for it.
    :param extension: the class for ``spark.sql.extensions``.
    :param settings: of a session, beside that; ``{warehouse}`` is a folder of the tests' own.
    """

    packages: dict[str, str]
    extension: str
    settings: dict[str, str]


SQLITE = "org.xerial:sqlite-jdbc:3.50.3.0"
"""The database of a JDBC catalog."""

CONNECTORS = {
    "delta": Connector(
        {
            "3.5": "io.delta:delta-spark_2.12:3.3.2",
            "4.1": "io.delta:delta-spark_4.1_2.13:4.4.0",
            "4.2": "io.delta:delta-spark_4.2_2.13:4.4.0",
        },
        "io.delta.sql.DeltaSparkSessionExtension",
        {
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": "2",  # 50 tasks else, whenever a log of few lines is read
        },
    ),
    "iceberg": Connector(
        {
            "3.5": f"org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.10.0,{SQLITE}",
            "4.1": f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0,{SQLITE}",
        },
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        {
            "spark.sql.catalog.prod": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.prod.type": "hadoop",
            "spark.sql.catalog.prod.warehouse": "{warehouse}/prod",
            "spark.sql.catalog.lite": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lite.type": "jdbc",
            "spark.sql.catalog.lite.uri": "jdbc:sqlite:{warehouse}/lite.db",
            "spark.sql.catalog.lite.warehouse": "{warehouse}/lite",
        },
    ),
    "hudi": Connector(
        {
            "3.5": "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0",
        },
        "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        {
            "spark.serializer": "org.apache.spark.serializer.KryoSerializer",  # it writes with no other
        },
    ),
}


def of_spark(release: str) -> dict[str, Connector]:
    """Return the connectors that are tested on a release of Spark, such as ``4.2.0``, by name."""
    minor = ".".join(release.split(".")[:2])
    return {name: one for name, one in CONNECTORS.items() if minor in one.packages}


def settings(release: str, names: Iterable[str], warehouse: str) -> dict[str, str]:
    """Return the settings of a session that has these connectors."""
    minor = ".".join(release.split(".")[:2])
    chosen = [CONNECTORS[name] for name in names]
    given = {
        "spark.jars.packages": ",".join(one.packages[minor] for one in chosen),
        "spark.sql.extensions": ",".join(one.extension for one in chosen),
        "spark.sql.warehouse.dir": warehouse,
    }
    for one in chosen:
        given |= {name: value.format(warehouse=warehouse) for name, value in one.settings.items()}
    return given


def connected_session(home: Path, names: Iterable[str], quiet: str = "ERROR", **further: str) -> SparkSession:
    """Start a small session with some connectors.

    :param home: a folder for what it writes. :param names: of connectors. :param quiet: the level of its log.
    :param further: settings, their dots written as two underscores.
    """
    import pyspark

    from tests.spark.local import local_session

    (home / "warehouse").mkdir()
    given = settings(pyspark.__version__, names, str(home / "warehouse"))
    given["spark.local.dir"] = str(home / "local")
    more = {name.replace(".", "__"): value for name, value in given.items()} | further
    return local_session(partitions=4, quiet=quiet, **more)
