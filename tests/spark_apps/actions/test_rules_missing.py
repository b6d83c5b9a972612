"""A log that was written by hand, without bucket rules."""

from __future__ import annotations

import pytest

from spark_apps.actions.bucket_rules import NewRules, Rollback, check_agrees
from spark_apps.storage.errors import LogDamaged
from spark_apps.timeline.model import Field, TableDefinition
from spark_apps.timeline.state import State


@pytest.fixture
def state() -> State:
    made = State()
    made.definition = TableDefinition("t", (Field("id", "string"),), ("id",))
    return made


def test_given_a_log_without_bucket_rules_then_whoever_needs_them_is_told(state: State) -> None:
    with pytest.raises(LogDamaged, match="no bucket rules"):
        check_agrees(state, {"buckets": 4})
    with pytest.raises(LogDamaged, match="no bucket rules"):
        NewRules(buckets=8).applied_to(state)
    with pytest.raises(LogDamaged, match="no bucket rules"):
        Rollback(None).applied_to(state)  # type: ignore[arg-type]
