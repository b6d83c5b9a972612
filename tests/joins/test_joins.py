"""A few drawn joins, others by each fourth commit: rows are those of Spark alone, and keys are really taken.

A query that fails names its seed: ``SEEDS=17 make joins`` asks it alone.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.differential.tally import Tally
from tests.joins.tables import Tables
from tests.turns import TURNS, of_this_turn

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SEEDS = range(160)


@pytest.mark.by_turn(4)
def test_given_drawn_joins_then_rows_are_those_of_spark_alone(
    spark: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tables, tally = Tables(spark, tmp_path_factory.mktemp("joins")), Tally()
    try:
        for seed in of_this_turn(SEEDS, 2 * TURNS, place=__name__, each=4):
            tables.compare(seed, tally)
    finally:
        tables.close()

    assert not tally.missing("keys", ["taken"])
    assert not tally.missing("queries", ["with rows"])
