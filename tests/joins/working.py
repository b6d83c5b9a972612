"""What each process of a long run does: one drawn query after the other, over tables made once."""

from __future__ import annotations

import tempfile
import time
import traceback
from pathlib import Path

from tests.differential.tally import Tally
from tests.differential.working import Outcome
from tests.joins.tables import Tables
from tests.spark.local import has_ended, local_session

_tables: Tables | None = None


def begin() -> None:
    """Start the Spark of this process, and make its tables."""
    global _tables
    _tables = Tables(local_session(quiet="OFF"), Path(tempfile.mkdtemp(prefix="joins")))


def work(seed: int, until: float) -> Outcome:
    """Compare one query, unless the time (of the clock, in seconds) is up."""
    if time.time() > until:
        return Outcome(seed)
    started, tally = time.monotonic(), Tally()
    assert _tables is not None
    try:
        _tables.compare(seed, tally)
    except Exception as error:
        if has_ended(_tables.spark):  # whatever else a query finds is reported, and the others go on
            raise
        trace = "".join(traceback.format_exception(error))
        return Outcome(seed, time.monotonic() - started, tally.counts, f"{error}"[:4000], trace[-3000:])
    return Outcome(seed, time.monotonic() - started, tally.counts)
