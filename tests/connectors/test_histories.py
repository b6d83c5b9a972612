"""Random histories of Delta and Iceberg tables, with indexes and without; ``make histories`` runs many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.connectors.histories import HISTORIES
from tests.differential.tally import Tally
from tests.turns import commits

STEPS = 5


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_given_a_random_history_then_answers_and_commands_are_those_without_indexes(
    spark: Any, connectors: frozenset[str], request: pytest.FixtureRequest, kind: str, tmp_path: Path
) -> None:
    request.getfixturevalue(kind)
    history = HISTORIES[kind](spark, tmp_path, commits(), Tally())
    for _ in range(STEPS):
        history.step()
        history.ask()
