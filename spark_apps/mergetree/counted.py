"""Rows counted by Spark while it writes them, to be held against the files that are found afterwards.

A file that is lost in between (executors that write to disks of their own are the usual reason) would else be rows lost
in silence.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotInTime

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from spark_apps.storage.errors import StorageError

logger = logging.getLogger(__name__)

_PATIENCE_SECONDS = 60.0


class CountedRows:
    """The rows of one write. ``frame`` is what must be written, in the order that it had."""

    def __init__(self, rows: DataFrame) -> None:
        self._observation = Observation()
        self.frame = rows.observe(self._observation, F.count(F.lit(1)).alias("rows"))

    def check(self, found: int, directory: str) -> None:
        """Compares with the rows of the files found.

        :raises StorageError: with both figures, if they differ.
        """
        written = self._written()
        if written is not None and written != found:
            raise StorageError(
                f"Spark wrote {written:,} rows below {directory}, and the files found there hold {found:,}.",
                outcome="Nothing was changed.",
                hint="If executors run on other machines, the table's location must be one that all of them share.",
            )

    def _written(self) -> int | None:
        # Spark tells the figure through a queue of events that drops some when it is full; then it never comes.
        pool = ThreadPoolExecutor(1)
        try:
            return int(pool.submit(lambda: self._observation.get).result(_PATIENCE_SECONDS)["rows"])
        except NotInTime:
            logger.warning("Spark did not tell how many rows it wrote; the files were not held against it.")
            return None
        finally:
            pool.shutdown(wait=False)
