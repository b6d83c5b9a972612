"""The list of planted faults fits the code, and each that was planted was found. One that is new on the list waits for
the next ``make mutants``, which fails while any is not found."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.mutants.planting import RESULTS, ROOT, Fault, faults

LISTED = faults()
FOUND: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("fault", LISTED, ids=lambda fault: fault.name)
def test_a_fault_can_be_planted(fault: Fault) -> None:
    assert fault.stands_in(ROOT), f"{fault.file} has not the place, once, that the list names"


@pytest.mark.parametrize("fault", [fault for fault in LISTED if fault.name in FOUND], ids=lambda fault: fault.name)
def test_a_fault_that_was_planted_was_found_by_tests_that_are_there(fault: Fault) -> None:
    told = FOUND[fault.name]
    assert told["fault"] == fault.digest, "it was changed since: run make mutants"
    assert told["found_by"], "nothing finds it"
    for found in told["found_by"]:
        file, _, name = found.partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text(encoding="utf-8"), found


def test_each_fault_has_a_name_of_its_own_and_says_what_it_breaks() -> None:
    names = [fault.name for fault in LISTED]
    assert len(set(names)) == len(names)
    assert all(fault.promise for fault in LISTED)
    assert set(FOUND) <= set(names)
