"""Calls of other formats' own maintenance: what they take, what a policy may ask for, and when they are due."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_apps.maintenance.native_calls import CALLS, check_calls, read_calls, transactions_of
from spark_apps.maintenance.plan import CODES, DueWork, due_works, plan_maintenance
from spark_apps.maintenance.policies import Budget, read_config
from spark_apps.maintenance.survey import SmallFiles, TableSurvey, small_files
from spark_apps.storage.errors import InvalidInput
from spark_apps.storage.names import check_txn_id
from spark_apps.timeline.maintenance_records import DoneWork, SkippedWork
from tests.spark_apps.maintenance.lake import Table, survey


def test_given_calls_as_people_write_them_then_they_are_typed_values() -> None:
    assert read_calls({"optimize": {"zorder_by": "rider", "full": "false"}, "vacuum": True}) == {
        "optimize": {"zorder_by": ["rider"], "full": False},
        "vacuum": {},
    }
    assert read_calls("rewrite_manifests") == {"rewrite_manifests": {}}
    assert read_calls({"restore": {"version": "17", "timestamp": None}}) == {"restore": {"version": 17}}
    options = {"min-input-files": 2, "rewrite-all": True}
    assert read_calls({"rewrite_data_files": {"options": options}}) == {
        "rewrite_data_files": {"options": {"min-input-files": "2", "rewrite-all": "true"}}
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "native is {}"),
        ({"optimise": {}}, "Did you mean 'optimize'"),
        ({"vacuum": {"retain": 3}}, "Did you mean 'retain_hours'"),
        ({"vacuum": {"retain_hours": "a week"}}, "number of hours"),
        ({"vacuum": {"retain_hours": float("nan")}}, "number of hours"),
        ({"vacuum": {"retain_hours": -1}}, "number of hours"),
        ({"vacuum": False}, "Leave the call out"),
        ({"restore": {}}, "Give one of version, timestamp"),
        ({"restore": {"version": 1, "timestamp": "2026-11-28"}}, "names version and timestamp"),
        ({"restore": {"version": -1}}, "whole number from 0"),
        ({"restore": {"version": 2**63}}, "whole number from 0"),
        ({"restore": {"version": "²"}}, "whole number from 0"),
        ({"restore": {"version": "--5"}}, "whole number from 0"),
        ({"optimize": {"zorder_by": []}}, "Name columns"),
        ({"optimize": {"zorder_by": [""]}}, "Write text"),
        ({"optimize": {"where": "x" * 10_001}}, "at most 10,000"),
        ({"optimize": {}, "expire_snapshots": {}}, "several formats"),
        ({"rewrite_data_files": {"options": {"partial-progress.enabled": True}}}, "unknown option"),
        ({"rollback_to_snapshot": {}}, "names no snapshot_id"),
    ],
)
def test_given_what_cannot_be_meant_then_it_is_refused_by_its_place(given: Any, said: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        read_calls(given)
    assert said in str(raised.value)


def test_given_a_call_for_another_purpose_then_it_is_refused() -> None:
    check_calls(["optimize"], "compact")
    with pytest.raises(InvalidInput, match="'vacuum', which is asked for elsewhere"):
        check_calls(["optimize", "vacuum"], "compact")


def test_given_a_long_name_of_an_index_then_its_transaction_fits() -> None:
    [call, refresh] = transactions_of("a" * 90, ["optimize"], ["i" * 200])
    assert check_txn_id(call).endswith(".optimize") and check_txn_id(refresh) != call


# --- policies ---------------------------------------------------------------------------------------------------------


def test_given_no_word_of_it_then_no_call_is_part_of_a_policy() -> None:
    """Nothing that runs today becomes a VACUUM: neither ``clean`` nor ``compact`` means the format's own."""
    [entry] = read_config([{"table": "prod.db.t", "clean": {"every": "1h"}, "compact": {"small_files": 1}}]).tables
    assert entry.policy.native is None
    [off] = read_config(
        {"tables": [{"table": "a.b", "native": False}], "defaults": {"native": {"vacuum": True}}}
    ).tables
    assert off.policy.native is None


def test_given_calls_by_name_then_their_limits_and_arguments_are_told_apart() -> None:
    native = {"optimize": {"small_files": 8, "small_size": "128MiB", "zorder_by": ["rider"]}, "vacuum": True}
    [entry] = read_config([{"table": "prod.db.t", "native": native}]).tables
    assert entry.policy.native is not None
    optimize, vacuum = entry.policy.native["optimize"], entry.policy.native["vacuum"]
    assert (optimize.small_files, optimize.small_size, optimize.arguments) == (8, 128 << 20, {"zorder_by": ["rider"]})
    assert vacuum.every == 6.5 * 86400 and vacuum.arguments == {}


@pytest.mark.parametrize(
    ("native", "said"),
    [
        (True, "Name each call"),
        ({"vacum": True}, "Did you mean 'vacuum'"),
        ({"restore": {"version": 3}}, "no upkeep"),
        ({"vacuum": {"small_files": 3}}, "rewrites no small files"),
        ({"optimize": {"small_files": False, "small_share": False}}, "never due"),
        ({"vacuum": {"evry": "7d"}}, "unknown argument"),
        ({"vacuum": 7}, "Write true, or a mapping"),
    ],
)
def test_given_a_policy_that_cannot_be_meant_then_the_description_is_refused(native: Any, said: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        read_config([{"table": "prod.db.t", "native": native}])
    assert said in str(raised.value) and "native" in str(raised.value)


# --- when they are due ------------------------------------------------------------------------------------------------


def of_source(root: Path, **native: Any) -> TableSurvey:
    """Return a table of five small files that looks as a registered Delta table does."""
    Table(root, "db.t").write(5)
    [seen], missed = survey(root, [{"table": "db.t", "native": native}])
    assert not missed
    return replace(
        seen,
        statistics=replace(seen.statistics, source="delta"),
        small={name: SmallFiles(5, 5_000_000, 6) for name in native},
    )


def verdicts(seen: TableSurvey) -> dict[str, DueWork | SkippedWork]:
    return {str(one.kind): one for one in due_works(seen) if one.kind in CALLS}


def test_given_small_files_or_time_then_the_calls_are_due_with_their_figures_and_refreshes(tmp_path: Path) -> None:
    seen = of_source(tmp_path, optimize={"small_files": 4, "zorder_by": ["k"]}, vacuum={"every": "7d"})
    found = verdicts(seen)
    optimize, vacuum = found["optimize"], found["vacuum"]
    assert isinstance(optimize, DueWork) and isinstance(vacuum, SkippedWork) and vacuum.code == "not_due"
    assert "5 small files" in optimize.reason and optimize.options == {"zorder_by": ["k"]}
    assert optimize.then == ("by_k",) and optimize.bytes == 10_000_000

    old = verdicts(replace(seen, age=8 * 86400.0))["vacuum"]
    assert isinstance(old, DueWork) and "never made" in old.reason
    done = {"vacuum": DoneWork("vacuum", seen.checked - 3600, 1.0, 2)}
    assert isinstance(verdicts(replace(seen, age=8 * 86400.0, done=done))["vacuum"], SkippedWork)

    plan = plan_maintenance([replace(seen, age=8 * 86400.0)], [], Budget(), "nightly")
    [task] = plan.tables()
    kinds = [step["kind"] for step in task["steps"]]
    assert kinds.index("optimize") < kinds.index("refresh") and kinds[-1] == "vacuum"
    assert kinds.count("refresh") == 1


def test_given_nothing_to_rewrite_last_time_or_another_format_then_a_reason_says_so(tmp_path: Path) -> None:
    seen = of_source(tmp_path, optimize=True, rewrite_data_files=True)
    found = verdicts(replace(seen, done={"optimize": DoneWork("optimize", seen.checked, 1.0, 9)}))
    assert {name: one.code for name, one in found.items() if isinstance(one, SkippedWork)} == {
        "optimize": "nothing_last_time",
        "rewrite_data_files": "other_format",
    }
    assert {"other_format", "nothing_last_time"} <= CODES.keys()
    own = verdicts(replace(seen, statistics=replace(seen.statistics, source=None)))
    assert {one.code for one in own.values() if isinstance(one, SkippedWork)} == {"other_format"}


def test_given_files_of_a_partition_then_those_that_are_small_and_not_alone_are_counted(tmp_path: Path) -> None:
    table = Table(tmp_path, "db.t")
    table.write(3, size=1000)
    state = table.timeline.head
    assert small_files(state, 2000).files in (0, 3) and small_files(state, 10) == SmallFiles(0, 0, 3)
