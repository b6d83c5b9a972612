"""A task instance's transaction id: the same through retries, another after a clear with other inputs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_index.identity import end_round, make_id, once, transaction_id
from spark_apps.storage.names import check_txn_id


class Memory:
    """What Airflow's task state store does: keeps values through retries and clears."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def get(self, key: str, default: Any = None) -> Any:
        return self.kept.get(key, default)

    def set(self, key: str, value: Any) -> None:
        self.kept[key] = value


def context(memory: Memory | None, *, tries: int = 2, run: str = "scheduled__2026-11-20") -> dict[str, Any]:
    ti = SimpleNamespace(dag_id="nightly", run_id=run, task_id="group.write", map_index=-1, max_tries=tries)
    return {"ti": ti, **({"task_state_store": memory} if memory is not None else {})}


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


def test_a_cleared_task_gets_another_id_only_if_its_inputs_have_changed() -> None:
    memory = Memory()
    first = transaction_id(context(memory, tries=2), lambda: {"files": "a"})

    same = transaction_id(context(memory, tries=5), lambda: {"files": "a"})
    other = transaction_id(context(memory, tries=8), lambda: {"files": "b"})

    assert same == first
    assert other != first


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
    ]

    assert len({make_id(*base), *(make_id(*other) for other in others)}) == 6


@pytest.mark.parametrize(
    "run",
    ["manual__2026-11-20T10:00:00.123456+00:00_aBcD", "..", "'; drop", "é" * 300, "x" * 250, "-", "a..b"],
)
def test_any_run_id_makes_an_id_that_the_timeline_takes_even_with_a_number_behind(run: str) -> None:
    txn_id = make_id("d" * 250, run, "t" * 250, 1_000_000, {})

    assert check_txn_id(f"{txn_id}.999")


def test_a_value_made_once_is_made_anew_after_a_clear() -> None:
    memory = Memory()
    values = iter([1, 2])

    assert [once(context(memory, tries=tries), "k", lambda: next(values)) for tries in (0, 0, 1, 1)] == [1, 1, 2, 2]


def tried(memory: Memory, number: int, *, retries: int, most: int) -> dict[str, Any]:
    made = context(memory, tries=most)
    made["ti"].try_number, made["ti"].task = number, SimpleNamespace(retries=retries)
    return made


def test_given_fewer_retries_since_when_cleared_then_it_is_no_retry_though_as_many_tries_are_allowed() -> None:
    memory, values = Memory(), iter("abcdef")

    def value(number: int, *, retries: int, most: int) -> str:
        return str(once(tried(memory, number, retries=retries, most=most), "k", lambda: next(values)))

    assert value(1, retries=2, most=2) == value(2, retries=2, most=2) == "a"
    end_round(tried(memory, 2, retries=2, most=2))
    # A clear sets max_tries to the tries there were and the retries of now: 2 + 0.
    assert value(3, retries=0, most=2) == value(3, retries=0, most=2) == "b"
    end_round(tried(memory, 3, retries=0, most=2))
    assert value(4, retries=2, most=5) == value(5, retries=2, most=5) == "c"


def test_given_fewer_retries_since_when_retried_then_it_is_a_retry_still() -> None:
    memory, values = Memory(), iter("ab")
    identities = [
        once(tried(memory, number, retries=retries, most=2), "k", lambda: next(values))
        for number, retries in ((1, 2), (2, 1), (3, 0))
    ]

    assert identities == ["a"] * 3
