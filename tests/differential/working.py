"""What each process of a long run does: one history after the other, in a Spark of its own."""

from __future__ import annotations

import shutil
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.differential.histories import history
from tests.differential.tally import Tally
from tests.spark.local import local_session

_spark: Any = None


@dataclass(frozen=True)
class Outcome:
    """Of one history; without ``seconds`` if the time was up before it began."""

    seed: int
    seconds: float | None = None
    counts: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    trace: str = ""


def begin() -> None:
    """Starts the Spark of this process, as the tests' own."""
    global _spark
    _spark = local_session(quiet="OFF")


def work(seed: int, until: float) -> Outcome:
    """One history, unless the time (of the clock, in seconds) is up."""
    if time.time() > until:
        return Outcome(seed)
    started, tally, folder = time.monotonic(), Tally(), Path(tempfile.mkdtemp(prefix="differential"))
    try:
        history(_spark, folder, seed, tally, long=True)
    except Exception as error:  # noqa: BLE001 - whatever a history finds is reported, and the others go on
        trace = "".join(traceback.format_exception(error))
        return Outcome(seed, time.monotonic() - started, tally.counts, f"{error}"[:4000], trace[-6000:])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Outcome(seed, time.monotonic() - started, tally.counts)
