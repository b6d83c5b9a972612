"""The list of planted faults fits the code and leaves out no room of it, and each fault was planted and found."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest

from tests.mutants.planting import RESULTS, ROOT, Fault, faults, rooms

LISTED = faults()
FOUND: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))

# A module of which each commit runs some tests, and tests of such a module that each commit runs.
BY_TURN = re.compile(r"^pytestmark = .*\bby_turn\(", re.MULTILINE)
ALWAYS = re.compile(r"^@pytest\.mark\.by_turn\(1\)\n(?:@.*\n| .*\n|\)\n)*def (\w+)", re.MULTILINE)

LEAST = 100
LEAST_OF_A_ROOM = 2


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


@pytest.mark.parametrize("fault", LISTED, ids=lambda fault: fault.name)
def test_a_fault_is_found_by_more_than_modules_that_run_by_turn(fault: Fault) -> None:
    each_time = [test for test in FOUND[fault.name]["found_by"] if runs_by_each_commit(test)]
    assert each_time, FOUND[fault.name]["found_by"]


def runs_by_each_commit(test: str) -> bool:
    """Return whether a test is in every run of all tests."""
    file, _, name = test.partition("::")
    text = (ROOT / file).read_text(encoding="utf-8")
    return not BY_TURN.search(text) or name.partition("[")[0] in ALWAYS.findall(text)


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
