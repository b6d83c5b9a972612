"""Random histories of Hudi tables, with indexes and without; ``make histories`` runs many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.connectors.histories import HudiHistory
from tests.differential.tally import Tally
from tests.turns import commits

STEPS = 5


@pytest.mark.parametrize("seed", [2 * commits(), 2 * commits() + 1])
def test_given_a_random_history_then_answers_and_commands_are_those_without_indexes(
    hudi: Any, tmp_path: Path, seed: int
) -> None:
    history = HudiHistory(hudi, tmp_path, seed, Tally())
    for _ in range(STEPS):
        history.step()
        history.ask()
    for name in history.names:
        hudi.sql(f"DROP TABLE {name}")
