"""The maintenance examples by a real scheduler: what a night plans, does, leaves, and takes up the next night."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_index.testing import DagRunReport
from spark_apps.timeline import maintenance_records
from spark_apps.timeline.statistics import table_statistics
from tests.airflow.lake import Lake
from tests.airflow.tables import expected, make, rows

pytestmark = pytest.mark.heavy

EXAMPLES = ("maintenance",)


@pytest.fixture(scope="module")
def tables(lake: Lake) -> Iterator[Path]:
    for name, writes in (("sales/orders", 2), ("sales/returns", 2), ("sales/closed", 0), ("web/clicks", 2)):
        make(lake.warehouse / name, writes)
    log = lake.warehouse / "sales" / "broken" / "_index" / "timeline"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("not a commit")
    yield lake.warehouse


class Night:
    """One run of a maintenance DAG, as it is seen from outside."""

    def __init__(self, lake: Lake, dag_id: str, **conf: Any) -> None:
        self.report: DagRunReport = lake.run(dag_id, conf, timeout=600)
        self.lake, self.dag_id = lake, dag_id
        self.plan: dict[str, Any] = lake.client.xcom(dag_id, self.report.run_id, "plan", "plan")

    def works(self, part: str) -> list[tuple[str, str]]:
        return [(row["table"], row["kind"]) for row in self.plan[part]]

    def reasons(self, table: str) -> dict[str, str]:
        return {row.get("kind") or "all": row["code"] for row in self.plan["skipped"] if row["table"] == table}

    @property
    def mapped(self) -> dict[str, str | None]:
        return {task: state for task, state in self.report.tasks.items() if task.startswith("maintain")}


@pytest.fixture(scope="module")
def nights(lake: Lake, tables: Path) -> list[Night]:
    first = Night(lake, "maintenance_nightly", budget_bytes="1")
    second = Night(lake, "maintenance_nightly")
    third = Night(lake, "maintenance_nightly", plan_only=True)
    return [first, second, third]


def test_given_a_budget_for_one_work_when_run_then_the_most_valuable_is_done_and_the_rest_left_with_a_reason(
    lake: Lake, nights: list[Night]
) -> None:
    first = nights[0]
    assert first.works("chosen") == [("sales.orders", "refresh")]
    assert set(first.works("left")) == {
        ("sales.orders", "compact"), ("sales.returns", "compact"), ("sales.returns", "refresh"),
    }  # fmt: skip
    assert {row["code"] for row in first.plan["left"]} == {"over_budget"}
    assert first.mapped == {"maintain[0]": "success"}
    log = lake.client.log("maintenance_nightly", first.report.run_id, "plan")
    assert "1 pieces of work on 1 tables" in log and "[over_budget]" in log


def test_given_tables_that_are_off_broken_or_missing_when_planned_then_each_is_a_reason_and_nothing_fails(
    nights: list[Night],
) -> None:
    for night in nights:
        assert night.reasons("sales.closed") == {"all": "switched_off"}
        assert night.reasons("sales.broken") == {"all": "unreachable"}
        assert night.reasons("archive.*") == {"all": "no_such_table"}


def test_given_the_next_night_when_run_then_what_was_left_is_done_and_has_waited(
    lake: Lake, tables: Path, nights: list[Night]
) -> None:
    second = nights[1]
    waited = {(row["table"], row["kind"]): row.get("waited", 0) for row in second.plan["chosen"]}
    assert waited == {
        ("sales.orders", "compact"): 1, ("sales.returns", "compact"): 1, ("sales.returns", "refresh"): 1,
    }  # fmt: skip
    # Two small tables share a task.
    assert second.mapped == {"maintain[0]": "success"}
    receipts = lake.client.xcom("maintenance_nightly", second.report.run_id, "maintain", map_index=0)
    assert {(Path(one["table"]).name, one["operation"]) for one in receipts} == {
        ("orders", "compact"), ("returns", "compact"), ("returns", "refresh_index"),
    }  # fmt: skip
    for name in ("sales/orders", "sales/returns"):
        numbers = table_statistics(lake.timeline(name).head)
        assert numbers.data.files == numbers.data.groups == 2 and numbers.indexes["by_city"].lag.is_empty
        assert rows(tables / name) == expected(2)
        done = maintenance_records.read_done(lake.timeline(name).store)
        assert done["compact"].seconds > 0 and done["refresh.by_city"].version is not None


def test_given_all_is_done_when_planned_again_then_nothing_is_due_and_the_plan_is_below_each_table(
    lake: Lake, nights: list[Night]
) -> None:
    third = nights[2]
    assert third.works("chosen") == [] and third.mapped == {"maintain": "skipped"}
    assert third.reasons("sales.orders") == {
        "compact": "not_due", "refresh": "covered", "compact_index": "not_due", "verify": "not_due", "clean": "not_due",
    }  # fmt: skip
    kept = maintenance_records.read_last(lake.timeline("sales/orders").store).plans["maintenance_nightly"]
    assert kept.run_id == nights[1].report.run_id and [work.key for work in kept.work] == ["compact"]


def test_given_the_yaml_example_when_run_then_it_plans_for_its_tables_and_leaves_out_what_it_does_not_name(
    lake: Lake, tables: Path
) -> None:
    night = Night(lake, "maintenance_from_yaml", plan_only=True)
    # The index is not one of those that the file names.
    assert night.works("chosen") == [("web.clicks", "compact")]
    assert night.reasons("web_archive.*") == {"all": "no_such_table"}
