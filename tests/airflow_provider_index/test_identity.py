"""A task instance's transaction id: the same through the retries of a round, another after each clear."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_index.identity import make_id, once, prefix_of, prefix_of_task, round_of, transaction_id
from spark_apps.storage.names import check_txn_id


class Memory:
    """What Airflow's task state store does: keeps values through retries and clears."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def get(self, key: str, default: Any = None) -> Any:
        return self.kept.get(key, default)

    def set(self, key: str, value: Any) -> None:
        self.kept[key] = value


STARTED = datetime(2026, 11, 20, 10, tzinfo=UTC)


def context(
    memory: Memory | None, *, tries: int = 2, started: datetime | None = STARTED, mapped: int = -1, clears: int = 0
) -> dict[str, Any]:
    run = "scheduled__2026-11-20"
    ti = SimpleNamespace(dag_id="nightly", run_id=run, task_id="group.write", map_index=mapped, max_tries=tries)
    of_run = SimpleNamespace(start_date=started, clear_number=clears)
    return {"ti": ti, "dag_run": of_run, **({"task_state_store": memory} if memory is not None else {})}


def test_a_retry_keeps_its_id_though_its_inputs_have_changed() -> None:
    memory = Memory()

    first = transaction_id(context(memory), lambda: {"files": "a"})
    retry = transaction_id(context(memory), lambda: {"files": "b"})

    assert retry == first


def test_a_retry_does_not_look_at_its_inputs_again() -> None:
    memory = Memory()
    transaction_id(context(memory), lambda: {"files": "a"})

    def never() -> None:
        raise AssertionError("asked again")

    transaction_id(context(memory), never)


LATER = STARTED + timedelta(hours=1)
ROUNDS = {
    "cleared while its run goes on": {"tries": 5},
    "cleared with its run, which had ended": {"tries": 5, "started": LATER},
    "its run deleted and made again": {"started": LATER},
}


@pytest.mark.parametrize("memory", [Memory(), None], ids=["remembering", "forgetful"])
@pytest.mark.parametrize("how", ROUNDS)
def test_given_the_same_inputs_when_a_round_begins_then_the_id_is_another_one_of_the_same_task(
    how: str, memory: Memory | None
) -> None:
    first = transaction_id(context(memory), lambda: {"files": "a"})

    again = transaction_id(context(memory, **ROUNDS[how]), lambda: {"files": "a"})

    assert again != first
    prefix = prefix_of_task(context(memory))
    assert prefix == prefix_of_task(context(memory, **ROUNDS[how]))
    assert first.startswith(prefix) and again.startswith(prefix)


def test_given_another_task_of_the_run_cleared_when_retried_then_it_is_the_same_round() -> None:
    """Which makes the run's number of clears another, and nothing else."""
    assert round_of(context(None)) == round_of(context(None, clears=1))


def test_a_round_is_the_same_whatever_zone_its_start_is_written_in_and_where_the_run_has_none() -> None:
    elsewhere = STARTED.astimezone(timezone(timedelta(hours=5)))

    assert round_of(context(None, started=elsewhere)) == round_of(context(None))
    assert round_of(context(None, started=None)) == round_of(context(None, started=None)) != round_of(context(None))


def test_the_ids_of_one_mapped_task_do_not_begin_as_those_of_another() -> None:
    prefixes = [prefix_of_task(context(None, mapped=index)) for index in (-1, 1, 11)]

    assert not any(one.startswith(other) for one in prefixes for other in prefixes if one is not other)


def test_without_a_state_store_the_id_comes_from_the_inputs_alone() -> None:
    one = transaction_id(context(None), lambda: {"files": "a"})

    assert one == transaction_id(context(None), lambda: {"files": "a"})
    assert one != transaction_id(context(None), lambda: {"files": "b"})


def test_every_part_of_the_task_instance_counts() -> None:
    base = ("dag", "run", "task", -1, {})
    others = [
        ("dag2", "run", "task", -1, {}),
        ("dag", "run2", "task", -1, {}),
        ("dag", "run", "task2", -1, {}),
        ("dag", "run", "task", 0, {}),
        ("dag", "run", "task", -1, {"x": 1}),
        ("dag", "run", "task", -1, {}, "round"),
    ]

    assert len({make_id(*base), *(make_id(*other) for other in others)}) == 7


@pytest.mark.parametrize(
    "run",
    ["manual__2026-11-20T10:00:00.123456+00:00_aBcD", "..", "'; drop", "é" * 300, "x" * 250, "-", "a..b"],
)
def test_any_run_id_makes_an_id_that_the_timeline_takes_even_with_a_number_behind(run: str) -> None:
    txn_id = make_id("d" * 250, run, "t" * 250, 1_000_000, {})

    assert check_txn_id(f"{txn_id}.999")


def test_an_id_that_somebody_else_chose_is_of_no_task_whose_rounds_begin_alike() -> None:
    given = context(None)

    assert prefix_of(transaction_id(given, dict)) == prefix_of_task(given)
    assert not "etl.load.2026-11-28".startswith(prefix_of("etl.load.2026-11-27"))


@pytest.mark.parametrize("dag", ["_nightly", "load_all_orders_of_every_shop_of_the_norths", "__"])
def test_any_dag_id_makes_an_id_that_the_timeline_takes_also_where_it_is_cut_before_an_underscore(dag: str) -> None:
    assert check_txn_id(make_id(dag, "run", "_task", -1, {}))


def test_a_value_made_once_is_made_anew_after_a_clear() -> None:
    memory = Memory()
    values = iter([1, 2])

    assert [once(context(memory, tries=tries), "k", lambda: next(values)) for tries in (0, 0, 1, 1)] == [1, 1, 2, 2]
