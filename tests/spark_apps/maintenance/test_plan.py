"""What is due, what a budget chooses, and that nothing that is left out is left out for ever."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from spark_apps.maintenance.plan import (
    CODES,
    WEIGHTS,
    DueWork,
    MaintenancePlan,
    as_text,
    due_works,
    plan_maintenance,
    runs_waited,
)
from spark_apps.maintenance.policies import Budget
from spark_apps.maintenance.survey import TableSurvey
from spark_apps.timeline import maintenance_records, windows
from spark_apps.timeline.maintenance_records import DoneWork, LastPlans, SkippedWork
from spark_apps.timeline.transactions import begin
from tests.spark_apps.maintenance.lake import Table, survey

ONLY_ROWS = {"compact_indexes": False, "clean": False, "verify": False}


def due(seen: TableSurvey) -> dict[str, DueWork]:
    return {one.key: one for one in due_works(seen) if isinstance(one, DueWork)}


def reasons(seen: TableSurvey) -> dict[tuple[str | None, str | None], str]:
    return {(one.kind, one.index): one.code for one in due_works(seen) if isinstance(one, SkippedWork)}


def one(root: Path, **policy: object) -> TableSurvey:
    [seen], missed = survey(root, [{"table": "db.t", **policy}])
    assert not missed
    return seen


def test_given_limits_when_a_table_reaches_them_then_it_is_due_with_its_numbers(tmp_path: Path) -> None:
    Table(tmp_path, "db.t").write(6)
    seen = one(
        tmp_path, compact={"small_files": 4, "small_share": None}, refresh={"lag_commits": 3, "lag_bytes": "1MB"}
    )
    due_work = due(seen)

    assert due_work["compact"].overdue == 1.5 and due_work["compact"].bytes == 6_000_000
    assert "6 small files" in due_work["compact"].reason
    # The limit that is exceeded most counts; each that is reached is reported.
    assert due_work["refresh.by_k"].overdue == 6 and "6 commits behind" in due_work["refresh.by_k"].reason
    assert reasons(seen) == {
        ("compact_index", "by_k"): "not_due", ("verify", None): "not_due", ("clean", None): "not_due",
    }  # fmt: skip


def test_given_higher_limits_when_asked_then_nothing_is_due_and_each_reason_has_a_code(tmp_path: Path) -> None:
    Table(tmp_path, "db.t").write(3)
    seen = one(tmp_path, compact={"small_files": 9, "small_share": None}, refresh={"lag_commits": 9}, verify=False)
    assert due(seen) == {}
    assert reasons(seen) == {
        ("compact", None): "not_due", ("refresh", "by_k"): "not_due", ("compact_index", "by_k"): "not_due",
        ("verify", None): "switched_off", ("clean", None): "not_due",
    }  # fmt: skip
    assert set(reasons(seen).values()) <= CODES.keys()


def test_given_tombstones_or_age_when_past_the_limit_then_due(tmp_path: Path) -> None:
    table = Table(tmp_path, "db.t")
    table.write(1)
    table.write(1, rows=10, tombstones=6)
    seen = one(tmp_path, compact={"small_files": None, "small_share": None, "tombstones": "25%"})
    assert due(seen)["compact"].reason == "30% tombstones"

    old = replace(seen, age=8 * 86400.0, lag_ages={"by_k": 7200.0})
    assert {"verify", "clean"} <= due(old).keys()
    done = {name: DoneWork(name, seen.checked - 3600, 1.0, 2) for name in ("verify", "clean")}
    assert not {"verify", "clean"} & due(replace(old, done=done)).keys()
    # What did not agree is compared again by the next run.
    wrong = {**done, "verify": replace_note(done["verify"], ok=False)}
    assert "verify" in due(replace(old, done=wrong))


def replace_note(note: DoneWork, **changes: object) -> DoneWork:
    from msgspec.structs import replace as changed

    return changed(note, **changes)


def test_given_somebody_at_the_same_work_or_a_window_when_asked_then_the_table_is_left_to_them(tmp_path: Path) -> None:
    table = Table(tmp_path, "db.t")
    table.write(30)
    attempt = begin(table.timeline, operation="compact", txn_id="other-dag")
    seen = one(tmp_path)
    assert reasons(seen)[("compact", None)] == "being_done" and "refresh.by_k" in due(seen)
    attempt.abort("test")
    windows.open_window(table.timeline, "the rescale", seconds=60)
    assert reasons(one(tmp_path)) == {(None, None): "window_open"}


def test_given_a_run_that_found_nothing_to_fold_when_nothing_came_since_then_it_is_not_asked_again(
    tmp_path: Path,
) -> None:
    table = Table(tmp_path, "db.t")
    table.write(30)
    seen = one(tmp_path)
    nothing = {"compact": DoneWork("compact", seen.checked, 1.0, seen.statistics.version)}
    assert reasons(replace(seen, done=nothing))[("compact", None)] == "nothing_last_time"
    table.write(1)
    assert "compact" in due(replace(one(tmp_path), done=nothing))


def test_given_an_earlier_run_when_estimated_then_its_rate_counts(tmp_path: Path) -> None:
    Table(tmp_path, "db.t").write(30, size=20_000_000)
    seen = one(tmp_path)
    slow = {"compact": DoneWork("compact", 1.0, 600.0, 0, bytes=60_000_000, version=1)}
    assert due(seen)["compact"].seconds == pytest.approx(65)
    assert due(replace(seen, done=slow))["compact"].seconds == pytest.approx(6005)


def several(root: Path, **tables: int) -> list[TableSurvey]:
    for name, files in tables.items():
        Table(root, f"db.{name}").write(files)
    seen, _ = survey(
        root, {"tables": ["db.*"], "defaults": {**ONLY_ROWS, "refresh": False, "compact": {"small_files": 2}}}
    )
    return seen


def names(plan: MaintenancePlan) -> list[str]:
    return [candidate.survey.table.name for candidate in plan.chosen]


def test_given_a_budget_when_chosen_then_the_most_valuable_first_and_the_rest_left_with_a_reason(
    tmp_path: Path,
) -> None:
    seen = several(tmp_path, a=4, b=20, c=8)
    whole = plan_maintenance(seen, [], Budget(), "nightly")
    assert names(whole) == ["db.b", "db.c", "db.a"] and not whole.postponed

    plan = plan_maintenance(seen, [], Budget(bytes=25_000_000), "nightly")
    assert names(plan) == ["db.b", "db.a"]  # c does not fit beside b, a does
    assert [(left.survey.table.name, code) for left, code, _ in plan.postponed] == [("db.c", "over_budget")]
    assert "[over_budget] With it the run would read 28.0 MB, over 25.0 MB" in as_text(plan)

    timed = plan_maintenance(seen, [], Budget(minutes=0.8), "nightly")
    assert names(timed) == ["db.b", "db.c"]
    assert len(plan_maintenance(seen, [], Budget(minutes=0.8), "nightly", at_once=2).chosen) == 3
    # A work larger than any budget is still done, when it is the first.
    assert names(plan_maintenance(seen, [], Budget(bytes=1), "nightly")) == ["db.b"]
    capped = plan_maintenance(seen, [], Budget(), "nightly", most_tables=2)
    assert [code for _, code, _ in capped.postponed] == ["too_many_tables"]


def test_given_a_plan_when_handed_on_then_each_table_has_its_steps_in_the_order_of_work(tmp_path: Path) -> None:
    Table(tmp_path, "db.t").write(30)
    seen = one(tmp_path)
    old = replace(seen, age=30 * 86400.0)
    [task] = plan_maintenance([old], [], Budget(), "nightly").tables()
    assert [step["kind"] for step in task["steps"]] == ["compact", "refresh", "verify", "clean"]
    assert task["table"] == str(tmp_path / "db" / "t") and task["name"] == "db.t"


def test_given_an_index_that_addresses_files_when_the_table_is_folded_then_its_refresh_follows(tmp_path: Path) -> None:
    Table(tmp_path, "db.t").write(30)
    seen = one(tmp_path, refresh=False)
    by_k = replace(seen.statistics.indexes["by_k"], addresses="file")
    seen = replace(seen, statistics=replace(seen.statistics, indexes={"by_k": by_k}))
    [task] = plan_maintenance([seen], [], Budget(), "nightly").tables()
    assert [(step["kind"], step["index"]) for step in task["steps"]] == [("compact", None), ("refresh", "by_k")]
    assert due(seen)["compact"].bytes == 2 * 30_000_000


def test_given_work_left_undone_when_planned_again_then_it_has_waited_and_comes_earlier(tmp_path: Path) -> None:
    seen = several(tmp_path, a=4, b=20)
    budget = Budget(bytes=20_000_000)
    for night in range(3):
        plan = plan_maintenance(seen, [], budget, "nightly")
        assert names(plan) == ["db.b"] and [left.waited for left, _, _ in plan.postponed] == [night]
        for table in plan.surveys:
            maintenance_records.write_plan(
                table.table.warehouse.store(table.table.location), plan.for_table(table, "nightly", "r")
            )
            # The folding of b is done each night, and by the next one as much has come again.
            if table.table.name == "db.b":
                note = DoneWork("compact", plan.at + 1, 1.0, 0, bytes=1, version=1)
                maintenance_records.write_done(table.table.warehouse.store(table.table.location), note)
        seen, _ = survey(
            tmp_path, {"tables": ["db.*"], "defaults": {**ONLY_ROWS, "refresh": False, "compact": {"small_files": 2}}}
        )
    assert names(plan_maintenance(seen, [], budget, "nightly")) == ["db.a"]
    assert "nightly" in maintenance_records.read_last(seen[0].table.warehouse.store(seen[0].table.location)).plans


def test_given_a_chosen_work_that_was_never_done_when_planned_again_then_it_counts_as_waiting(tmp_path: Path) -> None:
    [seen] = several(tmp_path, a=4)
    plan = plan_maintenance([seen], [], Budget(), "nightly")
    last = LastPlans(plans={"nightly": plan.for_table(seen, "nightly", "r")})
    work = plan.chosen[0].work
    assert runs_waited(last, "nightly", work, None) == 1
    assert runs_waited(last, "nightly", work, plan.at + 1) == 0
    assert runs_waited(last, "another", work, None) == 0
    assert runs_waited(last, "nightly", work, None, "next") == 1
    assert runs_waited(last, "nightly", work, None, "r") == 0, "the same run planned again"


def test_given_more_work_than_budget_night_after_night_when_simulated_then_nothing_waits_beyond_the_bound(
    tmp_path: Path,
) -> None:
    """30 tables whose work comes again every night, some always worth far more, and a budget for a fifth of them."""
    base = several(tmp_path, a=4)[0]
    dice = random.Random(7)
    tables = []
    for number in range(30):
        tree = replace(base.compacting["data"], small_files=dice.choice([2, 10, 150]), foldable_bytes=1_000_000)
        table = replace(base.table, name=f"db.t{number}", location=f"/t{number}")
        tables.append(replace(base, table=table, compacting={"data": tree}))
    waiting = dict.fromkeys((table.table.name for table in tables), 0)
    longest = 0
    for night in range(60):
        plan = plan_maintenance(tables, [], Budget(bytes=6_000_000), "nightly", now=float(night))
        chosen = set(names(plan))
        assert len(chosen) == 6
        waiting = {name: 0 if name in chosen else nights + 1 for name, nights in waiting.items()}
        longest = max(longest, *waiting.values())
        tables = [
            replace(
                table,
                last=LastPlans(plans={"nightly": plan.for_table(table, "nightly", "r")}),
                done={"compact": DoneWork("compact", night + 0.5, 1.0, 0, version=1)}
                if table.table.name in chosen
                else dict(table.done),
            )
            for table in tables
        ]
    minutes = max(candidate.work.seconds for candidate in plan.chosen) / 60
    bound = math.log2(100 * max(WEIGHTS.values()) / min(WEIGHTS.values()) * (1 + minutes)) + len(tables) / 6
    assert longest <= bound
