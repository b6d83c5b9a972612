"""A short walk over the public API, another one by each commit: after each step all rows are those of a model.

A walk that fails tells its seed: ``TURN=all make test TEST_ARGS="tests/differential/test_walks.py -k '[17]'"`` runs it
alone, and ``make walks`` many more and longer ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.differential.tally import Tally
from tests.differential.walk_model import WalkRows
from tests.differential.walks import walk
from tests.turns import of_this_turn

SEEDS = [*range(11), *range(12, 16), 102]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", of_this_turn(SEEDS, len(SEEDS), "walks"))
def test_given_any_walk_then_after_each_step_all_rows_are_those_of_the_model(
    spark: Any, tmp_path: Path, seed: int
) -> None:
    walk(spark, tmp_path, seed, Tally(), steps=6)


def _ordered() -> WalkRows:
    return WalkRows(["id", "v", "ts"], ["int", "int", "int"], ["id"], [], "ts", "ordering")


def test_given_a_delete_with_an_ordering_then_the_model_takes_no_row_that_is_not_above_it() -> None:
    model = _ordered()
    model.upsert([(1, 10, 1)])
    model.upsert([(1, 10, 2)], gone=[(1, 10, 2)])
    model.upsert([(1, 10, 1), (1, 11, 2)])
    assert not model.rows

    model.upsert([(1, 12, 3)])
    model.upsert([(1, 10, 2)], gone=[(1, 10, 2)])

    assert list(model.rows.values()) == [(1, 12, 3)]


def test_given_a_delete_by_key_then_the_model_gives_it_the_ordering_of_the_row() -> None:
    model = _ordered()
    model.upsert([(1, 10, 5), (2, 20, 5)])
    model.delete_keys([(1,)])

    model.upsert([(1, 11, 5), (2, 21, 4)])
    assert list(model.rows.values()) == [(2, 20, 5)]

    model.upsert([(1, 11, 6)])
    assert sorted(model.rows.values()) == [(1, 11, 6), (2, 20, 5)]


def test_given_a_partition_that_is_replaced_then_the_model_keeps_the_orderings_of_its_deletes_alone() -> None:
    model = _ordered()
    model.upsert([(1, 10, 5), (2, 20, 5)])
    model.delete_keys([(1,)])
    model.overwrite([(3, 30, 1)], [()])

    model.upsert([(1, 11, 5), (2, 21, 1)])

    assert sorted(model.rows.values()) == [(2, 21, 1), (3, 30, 1)]


def test_given_a_delete_until_a_value_then_the_model_keeps_rows_above_it_and_takes_none_up_to_it() -> None:
    model = _ordered()
    model.upsert([(1, 10, 5), (2, 20, 9)])
    model.delete_until([((), (1,)), ((), (2,))], 7)

    model.upsert([(1, 11, 7)])
    assert list(model.rows.values()) == [(2, 20, 9)]

    model.upsert([(1, 12, 8)])
    assert sorted(model.rows.values()) == [(1, 12, 8), (2, 20, 9)]
