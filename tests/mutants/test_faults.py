"""The list of planted faults fits the code and leaves out no room of it, and each fault was planted and found."""

from __future__ import annotations

import ast
import functools
import json
import re
from collections import Counter
from typing import Any

import pytest

from tests.mutants.planting import RESULTS, ROOT, Fault, faults, rooms

LISTED = faults()
FOUND: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))

LEAST = 100
LEAST_OF_A_ROOM = 2
MAX_TURNS = 4


@pytest.mark.parametrize("fault", LISTED, ids=lambda fault: fault.name)
def test_a_fault_can_be_planted(fault: Fault) -> None:
    assert fault.stands_in(ROOT), f"{fault.file} has not the place, once, that the list names"
    assert fault.planted(ROOT)


@pytest.mark.parametrize("fault", LISTED, ids=lambda fault: fault.name)
def test_a_fault_was_planted_as_it_stands_and_found_by_tests_that_are_there(fault: Fault) -> None:
    assert fault.name in FOUND, f"it was never planted: ONLY={fault.name} make mutants"
    result = FOUND[fault.name]
    assert result["fault"] == fault.digest, f"it was changed since: ONLY={fault.name} make mutants"
    assert result["found_by"], "nothing finds it"
    for test in result["found_by"]:
        file, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text(encoding="utf-8"), test


def test_a_walk_that_a_fault_names_has_found_it() -> None:
    unfound = [fault.name for fault in LISTED if fault.walk not in (None, FOUND[fault.name].get("walk"))]
    assert not unfound, f"ONLY={','.join(unfound)} python -m tests.mutants.by_walks"


@pytest.mark.parametrize("fault", LISTED, ids=lambda fault: fault.name)
def test_what_finds_a_fault_runs_at_one_commit_in_four_or_more_often(fault: Fault) -> None:
    found_by = FOUND[fault.name]["found_by"]
    assert sum(1 / turns_of(test) for test in found_by) >= 1 / MAX_TURNS, found_by


def turns_of(test: str) -> int:
    """Return at each how many-th commit a test runs, or a case of it."""
    file, _, name = test.partition("::")
    return turns_in(file).get(name.partition("[")[0], 1)


@functools.cache
def turns_in(file: str) -> dict[str, int]:
    """Return by how many turns each test of a module runs."""
    body = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    marks = (
        node.value for node in body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    )
    of_module = next((number for mark in marks if (number := _turns(mark)) is not None), 1)
    found = {}
    for node in body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = next(
                (number for one in node.decorator_list if (number := _turns(one)) is not None), of_module
            )
    return found


def _turns(mark: ast.expr) -> int | None:
    number = re.search(r"\bby_turn\((\d+)", ast.unparse(mark))
    return None if number is None else int(number[1])


def test_each_fault_has_a_name_of_its_own_and_says_what_it_breaks() -> None:
    names = [fault.name for fault in LISTED]
    assert len(set(names)) == len(names)
    assert all(fault.promise and fault.tests and fault.replace != fault.by for fault in LISTED)
    assert set(FOUND) <= set(names)


def test_no_room_is_without_faults() -> None:
    of_room = Counter(fault.room for fault in LISTED)
    bare = [room for room in rooms() if of_room[room] < LEAST_OF_A_ROOM]
    assert not bare, f"fewer than {LEAST_OF_A_ROOM} faults are planted in {', '.join(bare)}"
    assert len(LISTED) >= LEAST
