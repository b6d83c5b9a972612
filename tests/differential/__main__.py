"""A resumable run of many histories: ``python -m tests.differential``.

``HISTORIES`` (1000): seeds from 0 on; ``MINUTES`` (60): when to stop; ``SEEDS`` (a list): these alone, whatever was
done; ``PROCESSES`` (2), each with a Spark of its own. What was done stands in ``.differential/state.json``, so that the
next run goes on.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.differential.histories import history
from tests.differential.tally import Tally

HOME = Path(".differential")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def session() -> Any:
    """As the tests' own."""
    from pyspark.sql import SparkSession

    from spark_apps.environment import java_home

    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


@dataclass(frozen=True)
class Outcome:
    """Of one history; without ``seconds`` if the time was up before it began."""

    seed: int
    seconds: float | None = None
    counts: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    trace: str = ""


class Progress:
    """Seeds done and failed, and the counters of all runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        told = json.loads(path.read_text()) if path.exists() else {}
        self.done = set(told.get("done", []))
        self.failed: dict[str, str] = told.get("failed", {})
        self.tally = Tally(told.get("tally"))

    def take(self, outcome: Outcome) -> None:
        if outcome.seconds is None:
            return
        if outcome.error:
            self.failed[str(outcome.seed)] = outcome.error
            say(f"seed {outcome.seed}: FAILED\n{outcome.trace}")
        else:
            self.failed.pop(str(outcome.seed), None)
            self.done.add(outcome.seed)
            self.tally.take(Tally(outcome.counts))
            say(f"seed {outcome.seed}: {outcome.seconds:.1f} s; {len(self.done):,} agree, {len(self.failed):,} do not")
        self.save()

    def save(self) -> None:
        told = {"done": sorted(self.done), "failed": self.failed, "tally": self.tally.counts}
        self.path.parent.mkdir(exist_ok=True)
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(told, indent=1))
        fresh.replace(self.path)


class Work:
    """What a process of its own does: one history after the other, in a Spark of its own."""

    spark: Any = None

    @classmethod
    def begin(cls) -> None:
        cls.spark = session()

    @classmethod
    def run(cls, seed: int, until: float) -> Outcome:
        if time.time() > until:
            return Outcome(seed)
        started, tally, folder = time.monotonic(), Tally(), Path(tempfile.mkdtemp(prefix="differential"))
        try:
            history(cls.spark, folder, seed, tally, long=True)
        except Exception as error:  # noqa: BLE001 - whatever a history finds is told, and the others go on
            told = "".join(traceback.format_exception(error))
            return Outcome(seed, time.monotonic() - started, tally.counts, f"{error}"[:4000], told[-6000:])
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return Outcome(seed, time.monotonic() - started, tally.counts)


def main() -> int:
    progress = Progress(HOME / "state.json")
    given = os.environ.get("SEEDS")
    seeds = [int(text) for text in given.split(",")] if given else range(int(os.environ.get("HISTORIES", "1000")))
    left = [seed for seed in seeds if given or (seed not in progress.done and str(seed) not in progress.failed)]
    until = time.time() + 60 * float(os.environ.get("MINUTES", "60"))
    processes = min(int(os.environ.get("PROCESSES", "2")), len(left))
    if left:
        with multiprocessing.get_context("spawn").Pool(processes, Work.begin) as pool:
            for outcome in pool.imap_unordered(partial(Work.run, until=until), left):
                progress.take(outcome)
    say(f"\n{progress.tally}")
    names = ", ".join(progress.failed) or "none"
    say(f"{len(progress.done):,} histories agree, {len(progress.failed):,} do not: {names}")
    return 1 if progress.failed else 0


if __name__ == "__main__":
    sys.exit(main())
