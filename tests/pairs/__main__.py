"""A resumable run of all pairs: ``python -m tests.pairs``.

``SHAPES`` (all): of the starting table; ``PAIRS`` (a list such as ``upsert x restore;restore x upsert``): these alone,
whatever was done; ``MINUTES`` (60): when to stop; ``PROCESSES`` (2), each with a Spark and a shape of its own; ``DEEP``
(0): the share of tables whose indexes are verified by Spark afterwards, and that are worked on further;
``EARLY`` (0): whether each second action comes before the first has done its work instead of before its commit;
``TRIPLES`` (0): so many random threes instead, from ``SEED`` (0) on. ``RECORD=1`` writes what became of the pairs to
``tests/pairs/results.json`` and the matrix to ``docs/timeline.md``. What was done stands in ``.pairs``.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.pairs.matrix import record
from tests.pairs.shapes import SHAPES
from tests.pairs.tally import HOME, Tally
from tests.pairs.working import Wanted, work


def main() -> int:
    given = os.environ.get("SHAPES")
    shapes = [name.strip() for name in given.split(",")] if given else list(SHAPES)
    wanted = Wanted(
        pairs=tuple(_pair(text) for text in os.environ.get("PAIRS", "").split(";") if text.strip()),
        triples=int(os.environ.get("TRIPLES", "0")),
        seed=int(os.environ.get("SEED", "0")),
        deep=float(os.environ.get("DEEP", "0")),
        early=os.environ.get("EARLY", "0") == "1",
        until=time.time() + 60 * float(os.environ.get("MINUTES", "60")),
    )
    processes = min(int(os.environ.get("PROCESSES", "2")), len(shapes))
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=fresh, max_tasks_per_child=1) as pool:
        for running in as_completed([pool.submit(work, shape, wanted, HOME) for shape in shapes]):
            running.result()
    tallies = [Tally(HOME, shape, wanted.kind) for shape in shapes]
    for tally in tallies:
        sys.stdout.write(f"{tally}\n")
    if os.environ.get("RECORD") == "1":
        record(tallies)
    return 1 if any(tally.failed for tally in tallies) else 0


def _pair(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(" x "))


if __name__ == "__main__":
    sys.exit(main())
