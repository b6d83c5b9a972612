"""Resumable runs of many histories, ``python -m tests.differential``, or walks, ``python -m tests.differential walks``.

``HISTORIES`` or ``WALKS`` (1000): seeds from 0 on; ``ODDITIES`` (150): odd histories before them; ``MINUTES`` (60):
when to stop; ``SEEDS`` (a list): these alone, whatever was done, ``WITHOUT`` some steps of a walk; ``PROCESSES`` (2),
each with a Spark of its own. What was done stands in ``.differential``, so that the next run goes on.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from tests.differential.histories import ODD
from tests.differential.tally import Tally
from tests.differential.working import Outcome, begin, work

HOME = Path(".differential")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Progress:
    """Seeds done and failed, and the counters of all runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        progress = json.loads(path.read_text()) if path.exists() else {}
        self.done = set(progress.get("done", []))
        self.failed: dict[str, str] = progress.get("failed", {})
        self.tally = Tally(progress.get("tally"))

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
        progress = {"done": sorted(self.done), "failed": self.failed, "tally": self.tally.counts}
        self.path.parent.mkdir(exist_ok=True)
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(progress, indent=1))
        fresh.replace(self.path)


def wanted(search: str) -> list[int]:
    """The seeds of a search."""
    if search == "walks":
        return list(range(int(os.environ.get("WALKS", "1000"))))
    odd = range(ODD, ODD + int(os.environ.get("ODDITIES", "150")))
    return [*odd, *range(int(os.environ.get("HISTORIES", "1000")))]


def main(search: str = "histories") -> int:
    progress = Progress(HOME / ("state.json" if search == "histories" else f"{search}.json"))
    given, without = os.environ.get("SEEDS"), os.environ.get("WITHOUT", "")
    seeds = [int(text) for text in given.split(",")] if given else wanted(search)
    left = [seed for seed in seeds if given or (seed not in progress.done and str(seed) not in progress.failed)]
    steps = [int(text) for text in without.split(",") if text]
    until = time.time() + 60 * float(os.environ.get("MINUTES", "60"))
    processes = min(int(os.environ.get("PROCESSES", "2")), len(left))
    if left:
        fresh = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(processes, mp_context=fresh, initializer=begin, initargs=(search,)) as pool:
            for running in as_completed([pool.submit(work, seed, until, search, steps) for seed in left]):
                progress.take(running.result())
    say(f"\n{progress.tally}")
    names = ", ".join(progress.failed) or "none"
    say(f"{len(progress.done):,} {search} agree, {len(progress.failed):,} do not: {names}")
    return 1 if progress.failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
