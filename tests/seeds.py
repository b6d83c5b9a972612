"""Long searches by seeds: what was done is kept in a file, so that the next run goes on where this one stopped."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from tests.differential.tally import Tally
from tests.differential.working import Outcome


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


def run_seeds(
    done: Path, every: Iterable[int], what: str, begin: Callable[[], None], work: Callable[[int, float], Outcome]
) -> int:
    """Work on seeds in several processes (``PROCESSES``) until the time is up (``MINUTES``); return the exit code.

    ``SEEDS`` (a list) names those to work on, whatever was done before; ``FIRST=1`` ends with the first that fails.

    :param done: the file in which what was done is kept. :param what: the name of what a seed makes, in the plural.
    :param begin: prepares a process. :param work: does one seed, unless that time of the clock has passed.
    """
    progress = Progress(done)
    given = os.environ.get("SEEDS")
    seeds = [int(text) for text in given.split(",")] if given else every
    left = [seed for seed in seeds if given or (seed not in progress.done and str(seed) not in progress.failed)]
    until = time.time() + 60 * float(os.environ.get("MINUTES", "60"))
    processes = min(int(os.environ.get("PROCESSES", "2")), len(left))
    if left:
        fresh = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(processes, mp_context=fresh, initializer=begin) as pool:
            try:
                for running in as_completed([pool.submit(work, seed, until) for seed in left]):
                    progress.take(running.result())
                    if os.environ.get("FIRST") == "1" and progress.failed:
                        pool.shutdown(wait=False, cancel_futures=True)
                        break
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    say(f"\n{progress.tally}")
    names = ", ".join(progress.failed) or "none"
    say(f"{len(progress.done):,} {what} agree, {len(progress.failed):,} do not: {names}")
    return 1 if progress.failed else 0
