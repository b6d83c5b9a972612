"""What maintenance leaves beside a log."""

from __future__ import annotations

from pathlib import Path

from spark_apps.storage.store import Store
from spark_apps.timeline.maintenance_records import TablePlan, read_last, write_plan


def test_a_plan_takes_the_place_of_its_own_dag_s_last_one_only(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for dag_id, run_id in (("nightly", "1"), ("weekly", "1"), ("nightly", "2")):
        write_plan(store, TablePlan(dag_id, run_id, 1.0, 0))

    assert {dag_id: plan.run_id for dag_id, plan in read_last(store).plans.items()} == {"nightly": "2", "weekly": "1"}
