"""The plan of a write follows from the table, the batch and the limits alone; nothing is read for it."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from spark_apps.actions.limits import UpsertLimits
from spark_apps.actions.upsert_plan import UpsertPlan, plan_upsert
from spark_apps.mergetree.tree import Snapshot
from spark_apps.storage.store import Store
from spark_apps.timeline.model import Field, IndexDefinition, TableDefinition
from spark_apps.timeline.state import IndexEntry, State

FIELDS = (Field("id", "bigint", False), Field("day", "string"), Field("city", "string"), Field("fare", "double"))
TABLE = TableDefinition(table_id="t", fields=FIELDS, record_key=("id",), partition_by=("day",), hash_fields=("id",))
RECORD = IndexDefinition(name="key", kind="record", columns=("id",), index_id="1")
EAGER = IndexDefinition(name="by_city", kind="secondary", columns=("city",), index_id="2",
                        properties={"tombstones": "eager"})  # fmt: skip
LAZY = replace(EAGER, properties={"tombstones": "lazy"})
LIMITS = UpsertLimits(lookup_keys=100, broadcast_keys=1000)


@pytest.fixture
def plan(tmp_path: Path) -> Any:
    """What plans a write to a table that is nowhere."""

    def made(
        *indexes: IndexDefinition, rows: int | None = 10, limits: UpsertLimits = LIMITS, table: Any = None, **how: Any
    ) -> UpsertPlan:
        state = State()
        state.definition = replace(TABLE, **(table or {}))
        state.indexes = {index.name: IndexEntry(index, "active") for index in indexes}
        return plan_upsert(Snapshot(None, Store(tmp_path), state), rows, limits, **how)  # type: ignore[arg-type]

    return made


def test_keys_that_are_unique_in_their_partition_are_not_located(plan: Any) -> None:
    assert plan().order == plan(EAGER).order == plan(RECORD, table={"partition_by": ()}).order == "stage"
    assert not plan().locates


@pytest.mark.parametrize(
    ("rows", "indexes", "expected"),
    [
        (100, (RECORD, EAGER), "locate, stage"),
        (101, (RECORD, EAGER), "stage, locate"),
        (100, (RECORD,), "stage, locate"),
        (100, (RECORD, LAZY), "stage, locate"),
        (None, (RECORD, EAGER), "locate, stage"),
    ],
)
def test_rows_are_staged_first_if_they_are_many_or_no_index_needs_those_they_replace(
    plan: Any, rows: int | None, indexes: Any, expected: str
) -> None:
    assert plan(*indexes, rows=rows).order == expected


def test_rows_are_not_staged_first_where_that_could_not_be_undone(plan: Any) -> None:
    assert plan(RECORD, rows=500, table={"merge_by": "ordering", "ordering_column": "fare"}).order == "locate, stage"
    assert plan(RECORD, rows=500, table={"hash_fields": (), "bucketed": False}).order == "locate, stage"
    assert plan(RECORD, rows=500, operation="insert").order == "stage, locate"
    assert plan(RECORD, rows=500, operation="insert", stage_first=False).order == "locate, stage"


@pytest.mark.parametrize(
    ("given", "without", "with_index"),
    [("rows", "stage", "stage, locate"), ("keys", "locate, stage", "locate, stage"), ("matches", "stage", "stage"),
     ("partitions", "stage", "stage, locate")],
)  # fmt: skip
def test_what_a_batch_holds_decides_what_must_be_located(plan: Any, given: str, without: str, with_index: str) -> None:
    first = given == "rows"
    assert plan(given=given, stage_first=first).order == without
    assert plan(RECORD, given=given, stage_first=first).order == with_index


def test_many_keys_are_looked_up_by_the_driver_only_in_files_on_its_own_disk(plan: Any) -> None:
    near, far = plan(RECORD, EAGER, rows=500), plan(RECORD, EAGER, rows=500, limits=LIMITS_FAR)
    assert (near.looks_up(1000), near.looks_up(1001)) == (True, False)
    assert (far.looks_up(100), far.looks_up(101)) == (True, False)


LIMITS_FAR = UpsertLimits(lookup_keys=100, broadcast_keys=1000, local_files=False)


def test_keys_that_arrow_compares_otherwise_than_spark_are_left_to_spark(plan: Any) -> None:
    double = (Field("id", "double", False), *FIELDS[1:])
    odd = plan(RECORD, EAGER, rows=500, table={"fields": double})
    assert odd.order == "stage, locate"
    assert not odd.looks_up(1)
    assert not odd.searches(1)


def test_the_driver_searches_few_rows_and_columns_of_plain_types(plan: Any) -> None:
    near = plan(RECORD, EAGER)
    assert (near.searches(1000, ["day", "city"]), near.searches(1001), near.searches(1, ["fare"])) == (
        True,
        False,
        False,
    )
    assert not plan(RECORD, EAGER, limits=LIMITS_FAR).searches(1)
    assert not plan(table={"merge_by": "ordering", "ordering_column": "fare"}).searches(1)


def test_positions_are_told_up_to_as_many_rows_as_are_broadcast_if_the_table_keeps_them(plan: Any) -> None:
    kept = plan(table={"positions": True})
    assert (kept.positions(1000), kept.positions(1001), plan().positions(0)) == (True, False, False)
    assert kept.broadcasts(1000) and not kept.broadcasts(1001) and not kept.broadcasts(None)


def test_indexes_that_lag_behind_are_not_kept_in_step(plan: Any) -> None:
    assert plan(RECORD, replace(EAGER, deferred=True)).indexes == ("key",)
    assert plan(RECORD, EAGER).columns == ("city",)
    assert plan(replace(RECORD, deferred=True)).unique_index is None


def test_a_plan_is_frozen_and_logged_in_one_line(plan: Any) -> None:
    made = plan(RECORD, EAGER, rows=500, table={"positions": True})
    with pytest.raises(FrozenInstanceError):
        made.order = "stage"
    assert str(made) == (
        "upsert of 500 rows: stage, locate; keys by the index 'key', by the driver; old rows by the driver; "
        "positions up to 1,000 rows, by the driver; indexes key, by_city"
    )
    assert str(plan(rows=None, limits=LIMITS_FAR)) == "upsert of rows not counted: stage; indexes none"
    assert "by Spark (the driver takes 100)" in str(plan(RECORD, EAGER, rows=500, limits=LIMITS_FAR))
