"""Read tables that a person laid into a folder, by every kind of index: ``python -m tests.golden FOLDER``.

``make golden FROM=folder``: copies of apache/parquet-testing, of Delta's and of Iceberg's test resources.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

from tests.golden.reading import Counts, read_all
from tests.spark.local import local_session


def main() -> int:
    """Print the counts; 1 if an answer differs."""
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.stderr.write("Give a folder: make golden FROM=/data/parquet-testing\n")
        return 2
    logging.getLogger("spark_apps").setLevel(logging.ERROR)
    spark, counts = local_session(quiet="OFF"), Counts(said=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="golden-") as scratch:
        read_all(spark, Path(sys.argv[1]).resolve(), Path(scratch), counts)
    sys.stdout.write(f"{counts}\n")
    return 1 if counts.differ else 0


if __name__ == "__main__":
    sys.exit(main())
