"""A resumable run of many drawn joins: ``python -m tests.joins``.

``CASES`` (2000): seeds from 0 on; ``MINUTES`` (60): when to stop; ``SEEDS`` (a list): these alone, whatever was done;
``PROCESSES`` (2), each with a Spark of its own. What was done is in
``.joins/state.json``, so that the next run goes on.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.joins.working import begin, work
from tests.seeds import run_seeds


def main() -> int:
    return run_seeds(Path(".joins/state.json"), range(int(os.environ.get("CASES", "2000"))), "queries", begin, work)


if __name__ == "__main__":
    sys.exit(main())
