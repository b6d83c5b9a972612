"""Read tables that a person laid into a folder, by every kind of index: ``python -m tests.golden FOLDER``.

``make golden FROM=folder``: copies of apache/parquet-testing, of Delta's and of Iceberg's test resources. Where a table
is Delta's, and Delta has a connector for this Spark, the session has it.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

import pyspark

from tests.connectors.releases import connected_session, of_spark
from tests.golden.reading import Counts, read_all
from tests.spark.local import local_session


def main() -> int:
    """Print the counts; 1 if an answer differs."""
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.stderr.write("Give a folder: make golden FROM=/data/parquet-testing\n")
        return 2
    logging.getLogger("spark_apps").setLevel(logging.ERROR)
    folder, counts = Path(sys.argv[1]).resolve(), Counts(said=sys.stderr)
    names = {"delta"} & of_spark(pyspark.__version__).keys() if any(folder.rglob("_delta_log")) else set()
    with tempfile.TemporaryDirectory(prefix="golden-") as scratch:
        home = Path(scratch)
        spark = connected_session(home, names, quiet="OFF") if names else local_session(quiet="OFF")
        read_all(spark, folder, home, counts)
        spark.stop()
    sys.stdout.write(f"{counts}\n")
    return 1 if counts.differ else 0


if __name__ == "__main__":
    sys.exit(main())
