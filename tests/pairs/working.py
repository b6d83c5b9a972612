"""Pairs in a process of its own, with a Spark of its own."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import random
import shutil
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Iterator
from pathlib import Path

from tests.differential.session import small
from tests.pairs.actions import acts_of
from tests.pairs.arena import Arena, Outcome
from tests.pairs.further import further_differences
from tests.pairs.tally import Tally
from tests.spark.local import local_session

MEMORY = Path("/dev/shm")
"""Where it is, tables lie in memory: each commit syncs its files, which costs more than the commit."""


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What a run is to do; see :mod:`tests.pairs.__main__`."""

    pairs: tuple[tuple[str, ...], ...] = ()
    triples: int = 0
    seed: int = 0
    deep: float = 0.0
    early: bool = False
    until: float = float("inf")

    @property
    def kind(self) -> str:
        return "triples" if self.triples else "early" if self.early else "pairs"

    def of(self, shape: str) -> Iterator[tuple[str, ...]]:
        """The pairs (or threes) that are wanted on a shape."""
        names = [act.name for act in acts_of(shape)]
        if self.triples:
            rng = random.Random(f"{shape} {self.seed}")
            yield from (tuple(rng.choices(names, k=3)) for _ in range(self.triples))
        elif self.pairs:
            yield from (pair for pair in self.pairs if set(pair) <= set(names))
        else:
            begins = [act.name for act in acts_of(shape) if not self.early or act.publishes is None]
            yield from itertools.product(begins, names)


def work(shape: str, wanted: Wanted, home: Path) -> None:
    """Does what is wanted of a shape and was not done before; prints what it sees."""
    logging.getLogger("spark_apps").setLevel(logging.ERROR)
    tally = Tally(home, shape, wanted.kind)
    left = [names for names in wanted.of(shape) if wanted.pairs or " x ".join(names) not in tally.outcomes]
    if not left:
        return
    folder = Path(tempfile.mkdtemp(prefix=f"pairs-{shape}-", dir=MEMORY if MEMORY.is_dir() else None))
    spark = local_session(quiet="FATAL", memory="1g")
    try:
        with small(spark, compiled=False):
            arena = Arena(spark, shape, folder)
            for number, names in enumerate(left):
                if time.time() > wanted.until:
                    break
                _one(arena, names, wanted, tally)
                if number % 20 == 0:
                    tally.save()
                    _say(f"{shape}: {len(tally.outcomes):,} done, {len(tally.failed):,} wrong; {' x '.join(names)}")
    finally:
        tally.save()
        shutil.rmtree(folder, ignore_errors=True)
        spark.stop()


def _one(arena: Arena, names: tuple[str, ...], wanted: Wanted, tally: Tally) -> None:
    try:
        outcome = arena.pair(*names, early=wanted.early) if wanted.early else arena.meet(*names)
        deep = zlib.crc32(" x ".join(names).encode()) / 2**32 < wanted.deep
        if deep and not outcome.wrong and outcome.expected is not None:
            outcome.wrong += list(further_differences(arena.ground, outcome.expected))
    except Exception:  # noqa: BLE001 - what a pair finds is reported, and the others go on
        outcome, deep = Outcome(names, ["broken"], [traceback.format_exc()[-1500:]]), False
    tally.take(outcome, deep)
    if outcome.wrong:
        _say(f"{arena.shape}: {' x '.join(names)}: {outcome.ends}: {outcome.wrong[:3]} {outcome.notes[:3]}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
