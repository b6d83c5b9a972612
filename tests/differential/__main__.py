"""A resumable run of many histories: ``python -m tests.differential``.

``HISTORIES`` (1000): seeds from 0 on; ``MINUTES`` (60): when to stop; ``SEEDS`` (a list): these alone, whatever was
done. What was done stands in ``.differential/state.json``, so that the next run goes on.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
import traceback
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


class Progress:
    """Seeds done and failed, and the counters of all runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        told = json.loads(path.read_text()) if path.exists() else {}
        self.done = set(told.get("done", []))
        self.failed: dict[str, str] = told.get("failed", {})
        self.tally = Tally(told.get("tally"))

    def save(self) -> None:
        told = {"done": sorted(self.done), "failed": self.failed, "tally": self.tally.counts}
        self.path.parent.mkdir(exist_ok=True)
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(told, indent=1))
        fresh.replace(self.path)


def main() -> int:
    progress = Progress(HOME / "state.json")
    given = os.environ.get("SEEDS")
    seeds = [int(text) for text in given.split(",")] if given else range(int(os.environ.get("HISTORIES", "1000")))
    left = [seed for seed in seeds if given or (seed not in progress.done and str(seed) not in progress.failed)]
    until = time.monotonic() + 60 * float(os.environ.get("MINUTES", "60"))
    spark = session() if left else None
    for seed in left:
        if time.monotonic() > until:
            break
        started, tally, folder = time.monotonic(), Tally(), Path(tempfile.mkdtemp(prefix="differential"))
        try:
            history(spark, folder, seed, tally, long=True)
        except Exception as error:  # noqa: BLE001 - whatever a history finds is told, and the others go on
            progress.failed[str(seed)] = f"{error}"[:4000]
            say(f"seed {seed}: FAILED\n{''.join(traceback.format_exception(error))[-6000:]}")
        else:
            progress.failed.pop(str(seed), None)
            progress.done.add(seed)
            progress.tally.take(tally)
            say(f"seed {seed}: {time.monotonic() - started:.1f} s")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        progress.save()
    if spark is not None:
        spark.stop()
    say(f"\n{progress.tally}")
    names = ", ".join(progress.failed) or "none"
    say(f"{len(progress.done):,} histories agree, {len(progress.failed):,} do not: {names}")
    return 1 if progress.failed else 0


if __name__ == "__main__":
    sys.exit(main())
