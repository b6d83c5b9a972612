"""What each process of a long run does: one history after the other, in a Spark of its own."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import pyspark

from tests.connectors.histories import HISTORIES
from tests.connectors.releases import connected_session, of_spark
from tests.differential.tally import Tally
from tests.differential.working import Outcome
from tests.spark.local import has_ended

_spark: Any = None


def begin() -> None:
    """Start the Spark of this process."""
    global _spark
    names = HISTORIES.keys() & of_spark(pyspark.__version__)
    _spark = connected_session(Path(tempfile.mkdtemp(prefix="connectors")), names, quiet="OFF")
    if "iceberg" in names:
        _spark.sql("CREATE NAMESPACE IF NOT EXISTS prod.db")


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
