"""Short histories, others by each commit: every answer is that of another engine over the raw rows. In all of them
together every kind of index is really used, and every way of reading taken.

A history that fails tells its seed: ``TURN=all make test TEST_ARGS="tests/differential -k '[17]'"`` runs it alone, and
``make differential`` many more and longer ones.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.differential.histories import ODD, history
from tests.differential.tally import FORMATS, KINDS, PATHS, RARE, Tally
from tests.turns import of_this_turn

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

SEEDS = [*range(30), *range(ODD, ODD + 6)]


@pytest.mark.parametrize("seed", of_this_turn(SEEDS))
def test_given_any_history_then_every_answer_is_another_engine_s_over_the_raw_rows(
    spark: Any, tmp_path: Path, seed: int
) -> None:
    history(spark, tmp_path, seed, Tally(), long=False)


@pytest.mark.heavy
def test_given_all_histories_then_every_kind_was_used_and_every_way_of_reading_taken(
    spark: Any, tmp_path: Path
) -> None:
    tally = Tally()
    for seed in SEEDS:
        folder = tmp_path / str(seed)
        folder.mkdir()
        history(spark, folder, seed, tally, long=False)

    sys.stdout.write(f"\nseeds {SEEDS[0]} to {SEEDS[-1]}\n{tally}\n")
    assert not tally.missing("kinds used", KINDS)
    assert any("by ranges" in how for how in tally.counts["indexes used"])
    assert not tally.missing("kinds used by plain queries", KINDS)
    assert not tally.missing("verified", KINDS)
    assert not tally.missing("read paths", [path for path in PATHS if path not in RARE])
    assert not tally.missing("formats", FORMATS)
    assert not tally.missing("histories", ("keyed", "sources", "odd keyed", "odd sources", "odd registered"))
    assert not tally.missing("odd questions", ("compared", "matching rows"))
    assert not tally.missing("killed", ("before its commit", "after its commit", "tried again"))
