"""Some actions on a keyed table with buckets, each beside each: others by each fourth commit; ``make pairs`` does all.

Which ones is drawn by the hash of the commit, so that the same commit does the same, and many commits do all those that
a whole run has been through.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.differential.session import small
from tests.pairs.actions import acts_of
from tests.pairs.arena import Arena, Outcome

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.by_turn(8, together=5)]

ACTIONS = 3
SHAPE = "buckets"


def drawn() -> list[str]:
    """Some actions, by the commit that is checked out; a fixed choice where there is no git."""
    asked = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    rng = random.Random(asked.stdout.strip() if asked.returncode == 0 else "")
    return rng.sample([act.name for act in acts_of(SHAPE)], ACTIONS)


NAMES = drawn()


@pytest.fixture(scope="module")
def arena(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with small(spark, compiled=False):
        yield Arena(spark, SHAPE, tmp_path_factory.mktemp("pairs"))


@pytest.mark.parametrize("second", NAMES)
@pytest.mark.parametrize("first", NAMES)
def test_given_an_action_up_to_its_commit_when_another_lands_then_both_count_in_that_order_or_the_first_is_refused(
    arena: Arena, first: str, second: str
) -> None:
    outcome = arena.pair(first, second)

    assert not outcome.wrong, f"{SHAPE}: {first} x {second}: {outcome.ends} {outcome.notes}"


def test_given_three_actions_when_they_commit_one_after_another_then_each_counts_or_is_refused(
    arena: Arena,
) -> None:
    rng = random.Random(NAMES[0])

    outcomes: list[Outcome] = [arena.meet(*rng.choices(NAMES, k=3)) for _ in range(3)]

    assert not {outcome.names: outcome.wrong for outcome in outcomes if outcome.wrong}
