"""What each process of a long run does: one history after the other, in a Spark of its own."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from tests.connectors import hudi_tables
from tests.connectors.histories import HISTORIES
from tests.connectors.releases import connected_session
from tests.differential.tally import Tally
from tests.differential.working import Outcome
from tests.spark.local import JVM, has_ended

SMALL = {
    "spark__sql__shuffle__partitions": "1",
    "spark__default__parallelism": "1",
    "spark__databricks__delta__snapshotPartitions": "1",
    # A process of many histories gains what one of minutes does not.
    "spark__driver__extraJavaOptions": JVM.replace("-XX:TieredStopAtLevel=1 ", "") + " -Xms1g -Xmn600m",
}
"""Settings of tables of a few rows: each task of a job takes longer than its rows."""

_spark: Any = None


def begin(kind: str) -> None:
    """Start the Spark of this process, with the connector of one format."""
    global _spark
    home = Path(tempfile.mkdtemp(prefix="connectors"))
    _spark = connected_session(home, {kind}, quiet="OFF", **SMALL)
    if kind == "iceberg":
        _spark.sql("CREATE NAMESPACE IF NOT EXISTS prod.db")
    if kind == "hudi":
        _spark = hudi_tables.session_of(_spark)


def work(seed: int, until: float, kind: str) -> Outcome:
    """Do one history, unless the time (of the clock, in seconds) is up."""
    if time.time() > until:
        return Outcome(seed)
    started, tally, home = time.monotonic(), Tally(), Path(tempfile.mkdtemp(prefix="history"))
    try:
        history = HISTORIES[kind](_spark, home, seed, tally)
        for _ in range(int(os.environ.get("STEPS", "8"))):
            history.step()
            history.ask()
    except Exception as error:
        if has_ended(_spark):  # whatever else a history finds is reported, and the others go on
            raise
        trace = "".join(traceback.format_exception(error))
        return Outcome(seed, time.monotonic() - started, tally.counts, f"{error}"[:6000], trace[-3000:])
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return Outcome(seed, time.monotonic() - started, tally.counts)
