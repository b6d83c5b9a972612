"""Short histories, others by each commit: every answer is that of another engine over the raw rows. In all of them
together every kind of index is really used, and every way of reading taken.

A history that fails tells its seed: ``TURN=all make test TEST_ARGS="tests/differential -k '[17]'"`` runs it alone, and
``make differential`` many more and longer ones.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.differential.histories import ODD, history
from tests.differential.tally import FORMATS, KINDS, PATHS, RARE, Tally
from tests.turns import of_this_turn

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

SEEDS = [*range(ODD, ODD + 6), *range(30)]
MORE = range(30, 90)
"""Drawn where the first have left something out: what a seed draws changes with what can be drawn."""


@pytest.mark.parametrize("seed", of_this_turn(SEEDS, len(SEEDS)))
def test_given_any_history_then_every_answer_is_another_engine_s_over_the_raw_rows(
    spark: Any, tmp_path: Path, seed: int
) -> None:
    history(spark, tmp_path, seed, Tally(), long=False)


@pytest.mark.heavy
def test_given_histories_one_after_another_then_every_kind_is_used_and_every_way_of_reading_taken(
    spark: Any, tmp_path: Path
) -> None:
    tally = Tally()
    for seed in [*SEEDS, *MORE]:
        folder = tmp_path / str(seed)
        folder.mkdir()
        history(spark, folder, seed, tally, long=False)
        if not _not_seen(tally):
            break

    sys.stdout.write(f"\nseeds {SEEDS[0]} to {seed}\n{tally}\n")
    assert not _not_seen(tally)


def _not_seen(tally: Tally) -> dict[str, list[str]]:
    """What no history has done so far, by topic."""
    wanted: dict[str, Sequence[str]] = {
        "kinds used": KINDS,
        "kinds used by plain queries": KINDS,
        "verified": KINDS,
        "read paths": [path for path in PATHS if path not in RARE],
        "formats": FORMATS,
        "histories": ("keyed", "sources", "odd keyed", "odd sources", "odd registered"),
        "odd questions": ("compared", "matching rows"),
        "killed": ("before its commit", "after its commit", "tried again"),
    }
    missing = {topic: tally.missing(topic, every) for topic, every in wanted.items()}
    if not any("by ranges" in how for how in tally.counts.get("indexes used", {})):
        missing["indexes used"] = ["by ranges"]
    return {topic: every for topic, every in missing.items() if every}
