"""What each process of a long run does: one history or walk after the other, in a Spark of its own."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers import Peer, PeerFailed, environment
from tests.differential.histories import history
from tests.differential.tally import Tally
from tests.differential.walks import shrunk, walk
from tests.spark.local import has_ended, local_session

_SHRINKING = 180.0
"""Seconds at most in which a walk that fails is tried without some of its steps."""

_MEMORY = next((place for place in ("/dev/shm",) if os.access(place, os.W_OK)), None)
"""Where tables take no disk's time: each commit waits until its files are on the disk."""

_READERS = Path(__file__).parents[1] / "foreign" / "readers.txt"

_spark: Any = None
_peer: Peer | None = None


@dataclass(frozen=True)
class Outcome:
    """Of one history; without ``seconds`` if the time was up before it began."""

    seed: int
    seconds: float | None = None
    counts: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    trace: str = ""


def begin(search: str = "histories") -> None:
    """Starts the Spark of this process, as the tests' own, and for walks the engines that read what is published."""
    global _spark, _peer
    _spark = local_session(quiet="OFF")
    if search == "walks":
        try:
            _peer = Peer("foreign", module="tests.foreign.readers", python=environment("foreign", _READERS))
        except PeerFailed as failed:
            sys.stderr.write(f"DuckDB and Polars read no published table in this run. {failed}\n")


def work(seed: int, until: float, search: str = "histories", without: Sequence[int] = ()) -> Outcome:
    """One history or walk, unless the time (of the clock, in seconds) is up."""
    if time.time() > until:
        return Outcome(seed)
    started, tally, folder = time.monotonic(), Tally(), Path(tempfile.mkdtemp(prefix="differential", dir=_MEMORY))
    try:
        if search == "walks":
            walk(_spark, folder, seed, tally, without=without, peer=_peer)
        else:
            history(_spark, folder, seed, tally, long=True)
    except Exception as error:
        if has_ended(_spark):  # whatever else a history finds is reported, and the others go on
            raise
        trace, said = "".join(traceback.format_exception(error))[-6000:], f"{error}"[:4000]
        if search == "walks" and not without and os.environ.get("FIRST") != "1":
            steps, failure = shrunk(_spark, folder, seed, time.time() + _SHRINKING, _peer)
            if steps:
                listed = ",".join(map(str, steps))
                said = f"{failure[:4000]}\n(again: SEEDS={seed} WITHOUT={listed} make walks)"
                trace += f"\nAlso without the steps {listed}:\n{said}"
        return Outcome(seed, time.monotonic() - started, tally.counts, said, trace)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Outcome(seed, time.monotonic() - started, tally.counts)
