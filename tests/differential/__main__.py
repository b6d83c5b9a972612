"""Resumable runs of many histories, ``python -m tests.differential``, or walks, ``python -m tests.differential walks``.

``HISTORIES`` or ``WALKS`` (1000): seeds from 0 on; ``ODDITIES`` (150): odd histories before them; ``MINUTES`` (60):
when to stop; ``SEEDS`` (a list): these alone, whatever was done, ``WITHOUT`` some steps of a walk; ``PROCESSES`` (2),
each with a Spark of its own; ``FIRST=1`` ends with the first that differs. What was done stands in ``.differential``,
so that the next run goes on.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

from tests.differential.histories import ODD
from tests.differential.working import begin, work
from tests.seeds import run_seeds

HOME = Path(".differential")


def wanted(search: str) -> list[int]:
    """The seeds of a search."""
    if search == "walks":
        return list(range(int(os.environ.get("WALKS", "1000"))))
    odd = range(ODD, ODD + int(os.environ.get("ODDITIES", "150")))
    return [*odd, *range(int(os.environ.get("HISTORIES", "1000")))]


def main(search: str = "histories") -> int:
    steps = [int(text) for text in os.environ.get("WITHOUT", "").split(",") if text]
    done = HOME / ("state.json" if search == "histories" else f"{search}.json")
    return run_seeds(done, wanted(search), search, partial(begin, search), partial(work, search=search, without=steps))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
