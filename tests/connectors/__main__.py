"""A resumable run of many random histories: ``python -m tests.connectors``.

``HISTORIES`` (200): seeds from 0 on, of each format that has a connector for this Spark; ``STEPS`` (8) of each;
``FORMATS`` (a list): these alone; ``MINUTES`` (60) of each: when to stop; ``SEEDS`` (a list): these alone, whatever was
done; ``PROCESSES`` (1), each with a Spark of its own. What was done is in ``.connectors``, a file for each format and
release of Spark, so that the next run goes on.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

from tests.connectors.histories import HISTORIES
from tests.connectors.releases import of_spark
from tests.connectors.working import begin, work
from tests.seeds import run_seeds


def main() -> int:
    import pyspark

    os.environ.setdefault("PROCESSES", "1")
    minor, ended = ".".join(pyspark.__version__.split(".")[:2]), 0
    asked = os.environ.get("FORMATS", ",".join(HISTORIES)).split(",")
    for kind in sorted(HISTORIES.keys() & of_spark(pyspark.__version__) & set(asked)):
        done = Path(".connectors", f"{kind}-{minor}.json")
        seeds = range(int(os.environ.get("HISTORIES", "200")))
        ended |= run_seeds(done, seeds, f"histories of {kind}", partial(begin, kind), partial(work, kind=kind))
    return ended


if __name__ == "__main__":
    sys.exit(main())
