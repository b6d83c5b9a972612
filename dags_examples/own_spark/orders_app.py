"""An app of one's own, as `spark-submit` starts it: where a table is, and the epoch of a stop-write window.

Beside the DAG that submits it; it is no DAG.
"""

from __future__ import annotations

import sys


def main(location: str, epoch: str) -> None:
    """Upsert ten orders within the window."""
    from pyspark.sql import SparkSession

    from spark_apps import IndexedTable

    spark = SparkSession.builder.appName("orders").getOrCreate()
    table = IndexedTable.load(spark, location)
    receipt = table.upsert(spark.sql("SELECT id, 'lima' AS city FROM range(200, 210)"), window=int(epoch))
    sys.stdout.write(f"Version {receipt.version}: {receipt.metrics}\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
