"""The DAG that the factory makes, what it refuses while it is parsed, and what its first task hands to the second."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_index.compat import AirflowFailException, AirflowSkipException
from airflow_provider_index.maintenance import index_maintenance
from airflow_provider_index.operators import MaintainTableOperator, PlanMaintenanceOperator, PreviewRescaleOperator
from spark_apps.maintenance.policies import read_config
from spark_apps.storage.errors import InvalidInput
from spark_apps.timeline import maintenance_records, windows
from spark_apps.timeline.statistics import partition_statistics
from spark_apps.timeline.transactions import begin, live_attempts_of
from tests.airflow_provider_index.operators.plain_table import Memory, context
from tests.spark_apps.maintenance.lake import CONN, Table, load

pytestmark = pytest.mark.by_turn(6)

EXAMPLES = Path(__file__).parents[3] / "dags_examples" / "maintenance"


@pytest.mark.by_turn(1)
def test_given_a_description_when_made_then_the_work_is_mapped_limited_and_retried_with_backoff() -> None:
    dag = index_maintenance("m", tables=["db.*"], tables_at_once=3, pool="index_maintenance", task_args={"retries": 7})
    work = dag.get_task("maintain")

    assert dag.max_active_runs == 1 and work.upstream_task_ids == {"plan"}
    assert (work.max_active_tis_per_dag, work.pool, work.retries) == (3, "index_maintenance", 7)
    assert work.retry_exponential_backoff in (2.0, True)  # Airflow 3.1 knows one factor, two
    assert set(dag.params) == {"tables", "skip", "budget_minutes", "budget_bytes", "plan_only"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "tables is None"),
        ({"tables": ["db.*"], "config": {"tables": ["db.*"]}}, "was given config and tables beside it"),
        ({"config": "nowhere.yaml"}, "cannot be read"),
        ({"tables": ["db.*"], "tables_at_once": 0}, "tables_at_once is 0"),
        ({"tables": ["db.*"], "tables_per_task": 0}, "tables_per_task is 0"),
        ({"tables": ["db.*"], "defaults": {"refersh": {}}}, "Did you mean 'refresh'?"),
    ],
)
def test_given_a_mistake_when_parsed_then_the_dag_is_refused_with_what_is_wrong(given: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        index_maintenance("m", **given)
    assert message in str(refused.value)


def test_given_the_examples_when_parsed_then_nothing_heavy_is_imported_and_no_storage_is_touched(
    tmp_path: Path,
) -> None:
    code = f"""
import runpy, sys, os
os.environ["AIRFLOW_HOME"] = {str(tmp_path)!r}
from spark_apps.storage.store import Store
def touched(self, *a): raise AssertionError("storage was touched")
Store._call = touched
for name in ("nightly_python", "nightly_yaml", "rescale_by_hand"):
    runpy.run_path({str(EXAMPLES)!r} + f"/{{name}}.py", run_name=name)
print(sorted({{name.split(".")[0] for name in sys.modules}} & {{"pyspark", "pyarrow", "pandas", "py4j", "numpy"}}))
"""
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip().splitlines()[-1] == "[]"


class Pushed:
    """The task instance as far as an operator that only reads asks for it."""

    dag_id, run_id = "nightly", "night-1"

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        json.dumps(value)  # Airflow keeps JSON
        self.values[key] = value


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    connection = {"conn_type": "index_table_store", "extra": {"warehouse": str(tmp_path)}}
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONN.upper()}", json.dumps(connection))
    for name, files in (("db.a", 4), ("db.b", 20), ("db.off", 20), ("db.skip", 20), ("db.other", 20)):
        Table(tmp_path, name).write(files)
    return tmp_path


def planned(off: str, monkeypatch: pytest.MonkeyPatch, **params: Any) -> tuple[list[dict[str, Any]], Pushed]:
    monkeypatch.setenv("AIRFLOW_VAR_INDEX_MAINTENANCE_OFF", off)
    config = read_config([{"table": "db.other", "enabled": False}, "db.*"])
    operator = PlanMaintenanceOperator(task_id="plan", config=config, table_conn_id=CONN, spark_conn_id="small")
    pushed = Pushed()
    return operator.execute({"ti": pushed, "params": params}), pushed


@pytest.mark.parametrize("off", ["db.off\ndb.none.*\n", '["db.off"]'])
def test_given_tables_switched_off_in_each_way_when_planned_then_each_is_a_reason(
    off: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks, pushed = planned(off, monkeypatch, skip=["db.s*"], tables=["db.a", "db.off", "db.skip", "db.other"])

    assert [task["name"] for task in tasks] == ["db.a"]
    assert {(row["table"], row["code"]) for row in pushed.values["plan"]["skipped"] if "kind" not in row} == {
        ("db.b", "not_asked"), ("db.off", "switched_off"), ("db.skip", "switched_off"), ("db.other", "switched_off"),
    }  # fmt: skip
    assert tasks[0]["spark_conn_id"] == "small" and tasks[0]["until"] is None


def test_given_a_form_with_a_budget_when_planned_then_it_counts_and_the_plan_is_kept_below_the_tables(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks, pushed = planned("", monkeypatch, tables=["db.a", "db.b"], budget_minutes=0.0001)
    plan = pushed.values["plan"]

    assert len(tasks) == 1 and tasks[0]["until"] == pytest.approx(time.time() + 900, abs=60)
    assert len(plan["chosen"]) == 1 and {row["code"] for row in plan["left"]} == {"over_budget"}
    kept = maintenance_records.read_last(load(root, "db.a").store).plans["nightly"]
    assert kept.run_id == "night-1" and {work.chosen for work in kept.work} == {False}

    again, pushed = planned("", monkeypatch, tables=["db.a", "db.b"], plan_only=True)
    assert again == [] and pushed.values["plan"]["chosen"]
    # A plan that was only looked at is no night that passed.
    assert maintenance_records.read_last(load(root, "db.a").store).plans["nightly"] == kept


@pytest.mark.parametrize("off", ["[1, 2", "[7]", "db.[x"])
def test_given_a_variable_that_makes_no_sense_when_planned_then_it_is_named(
    off: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AirflowFailException, match=r"(the|The) Variable"):
        planned(off, monkeypatch)


def test_given_what_was_planned_when_a_table_is_worked_on_then_each_step_is_a_transaction_and_time_over_is_a_skip() -> (
    None
):
    steps = [{"kind": "compact", "index": None}, {"kind": "refresh", "index": "i"}]
    operator = MaintainTableOperator(task_id="maintain", table="/t", steps=steps, name="db.t")
    assert operator.transactions("x") == ["x.1", "x.2"]
    assert operator.arguments() == {"steps": steps, "until": None}
    late = MaintainTableOperator(task_id="maintain", table="/t", steps=steps, until=time.time() - 1)
    with pytest.raises(AirflowSkipException, match="is over"):
        late.execute(context("maintain"))


def late(root: Path, **fields: Any) -> MaintainTableOperator:
    steps = [{"kind": "compact", "index": None}, {"kind": "refresh", "index": "i"}]
    given = {"until": time.time() - 1, "steps": steps, **fields}
    return MaintainTableOperator(task_id="maintain", table="db.a", table_conn_id=CONN, **given)


def test_given_a_table_whose_work_failed_when_it_is_tried_again_after_the_last_minute_then_the_task_fails(
    root: Path,
) -> None:
    memory = Memory()
    first = late(root, until=time.time() + 60, spark_conn_id="there_is_none")
    with pytest.raises(AirflowFailException, match="no Airflow connection"):
        first.execute(context("maintain", memory=memory, tries=2, retries=2))

    with pytest.raises(AirflowFailException, match=r"An earlier try failed.* 0 of 2"):
        late(root).execute(context("maintain", memory=memory, tries=2, retries=2, number=2))


@pytest.mark.by_turn(1)
def test_given_all_commits_of_an_earlier_try_when_tried_again_after_the_last_minute_then_their_receipts_are_told(
    root: Path,
) -> None:
    memory = Memory()
    with pytest.raises(AirflowFailException, match="no Airflow connection"):
        late(root, until=time.time() + 60, spark_conn_id="there_is_none").execute(
            context("maintain", memory=memory, tries=2, retries=2)
        )
    txn_id = memory["airflow_provider_index.transaction"]["value"]
    timeline = load(root, "db.a")
    for step in (1, 2):  # by a driver that lived on
        windows.open_window(timeline, "somebody", partitions=[f"p={step}"], txn_id=f"{txn_id}.{step}")

    receipts = late(root).execute(context("maintain", memory=memory, tries=2, retries=2, number=2))

    assert [one["txn_id"] for one in receipts] == [f"{txn_id}.1", f"{txn_id}.2"]


def test_given_work_that_is_left_at_work_when_tried_again_after_the_last_minute_then_it_is_ended(root: Path) -> None:
    memory = Memory()
    with pytest.raises(AirflowFailException, match="no Airflow connection"):
        late(root, until=time.time() + 60, spark_conn_id="there_is_none").execute(
            context("maintain", memory=memory, tries=2, retries=2)
        )
    timeline = load(root, "db.a")
    txn_id = memory["airflow_provider_index.transaction"]["value"]
    begin(timeline, operation="compact", txn_id=f"{txn_id}.1")

    with pytest.raises(AirflowFailException, match="An earlier try failed"):
        late(root).execute(context("maintain", memory=memory, tries=2, retries=2, number=2))

    assert live_attempts_of(load(root, "db.a"), f"{txn_id}.1") == []


def two(root: Path, **fields: Any) -> MaintainTableOperator:
    """Return work on two tables: two steps on the first, one on the second."""
    more = [{"table": str(root / "db" / "b"), "name": "db.b", "steps": [{"kind": "refresh", "index": "i"}]}]
    return late(root, **{"until": None, "more_tables": more, "spark_conn_id": "there_is_none", **fields})


def test_given_small_tables_when_planned_then_they_share_a_task_within_its_bounds(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = read_config(["db.a", "db.b", "db.skip"])
    monkeypatch.setenv("AIRFLOW_VAR_INDEX_MAINTENANCE_OFF", "")

    def names(minutes: float | None = None, **bounds: Any) -> list[list[str]]:
        operator = PlanMaintenanceOperator(task_id="plan", config=config, table_conn_id=CONN, **bounds)
        tasks = operator.execute({"ti": Pushed(), "params": {"budget_minutes": minutes}})
        assert all(("more_tables" in task) == task["name"].endswith(" more") for task in tasks)
        tables = [[task["table"], *(one["table"] for one in task.get("more_tables", ()))] for task in tasks]
        return [[Path(table).name for table in each] for each in tables]

    assert sorted(names()) == [["a"], ["b"], ["skip"]]
    [together] = names(tables_per_task=3)
    assert [[together[0], together[1]], [together[2]]] == names(tables_per_task=2)
    assert len(names(tables_per_task=3, seconds_per_task=1)) == 3
    # The first work of a run with few minutes has more time than the others, so they do not share its task.
    assert [len(each) for each in names(minutes=14, tables_per_task=3)] == [1, 2]


def test_given_several_tables_when_worked_on_then_transactions_are_numbered_through_and_receipts_name_their_table(
    root: Path,
) -> None:
    operator = two(root)
    assert operator.transactions("x") == ["x.1", "x.2", "x.3"]
    assert operator.tables_of_jobs() == (str(root / "db" / "b"),)
    assert [one["table"] for one in operator.arguments()["more_tables"]] == [str(root / "db" / "b")]
    memory = Memory()
    with pytest.raises(AirflowFailException, match="no Airflow connection"):
        operator.execute(context("maintain", memory=memory, tries=2, retries=2))
    txn_id = memory["airflow_provider_index.transaction"]["value"]
    for table, step in (("db.a", 1), ("db.a", 2), ("db.b", 3)):  # by a driver that lived on
        windows.open_window(load(root, table), "somebody", partitions=[f"p={step}"], txn_id=f"{txn_id}.{step}")

    receipts = two(root).execute(context("maintain", memory=memory, tries=2, retries=2, number=2))

    a, b = str(root / "db" / "a"), str(root / "db" / "b")
    assert [(one["txn_id"].rpartition(".")[2], one["table"]) for one in receipts] == [("1", a), ("2", a), ("3", b)]


def test_given_attempts_in_several_tables_when_tried_again_then_all_are_ended_and_a_damaged_log_keeps_none(
    root: Path,
) -> None:
    more = [{"table": f"db.{name}", "steps": [{"kind": "clean"}]} for name in ("off", "b", "dropped")]
    memory = Memory()
    with pytest.raises(AirflowFailException, match="no Airflow connection"):
        two(root, more_tables=more).execute(context("maintain", memory=memory, tries=2, retries=2))
    txn_id = memory["airflow_provider_index.transaction"]["value"]
    for table, step in (("db.a", 2), ("db.b", 4)):
        begin(load(root, table), operation="compact", txn_id=f"{txn_id}.{step}")
    next((root / "db" / "off" / "_index" / "timeline").glob("*.json")).write_text("not a commit")

    with pytest.raises(AirflowFailException, match="no Airflow connection"):
        two(root, more_tables=more).execute(context("maintain", memory=memory, tries=2, retries=2, number=2))

    assert (
        live_attempts_of(load(root, "db.a"), f"{txn_id}.2") == live_attempts_of(load(root, "db.b"), f"{txn_id}.4") == []
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"window": 7}, "A window is of one table"),
        ({"more_tables": [{"steps": []}]}, r"more_tables\[0\].table is None"),
        ({"more_tables": [{"table": "db.b"}]}, r"more_tables\[0\].steps is None"),
    ],
)
def test_given_tables_that_cannot_share_an_app_when_run_then_it_says_why(fields: Any, message: str, root: Path) -> None:
    with pytest.raises(AirflowFailException, match=message):
        two(root, **fields).execute(context("maintain"))


@pytest.mark.by_turn(1)
def test_given_a_budget_of_no_minutes_when_planned_then_the_first_work_has_time_to_begin(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks, pushed = planned("", monkeypatch, budget_minutes=0)

    assert len(tasks) == len(pushed.values["plan"]["chosen"]) == 1
    assert time.time() + 600 < tasks[0]["until"] < time.time() + 1000


@pytest.mark.parametrize("off", ["db.off", "db.o*", "{root}/db/off", "{root}/db/off/", "file://{root}/db/off"])
def test_given_a_table_described_by_its_path_when_switched_off_however_it_may_be_given_then_it_is(
    off: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_INDEX_MAINTENANCE_OFF", off.format(root=root))
    config = read_config([f"{root}/db/off", "db.a"])

    operator = PlanMaintenanceOperator(task_id="plan", config=config, table_conn_id=CONN)
    tasks = operator.execute({"ti": Pushed(), "params": {}})

    assert [task["name"] for task in tasks] == ["db.a"]


def test_given_a_planned_rescale_when_previewed_then_it_is_drawn_and_nothing_to_do_is_a_skip(root: Path) -> None:
    [there] = partition_statistics(load(root, "db.a").head)
    one = {"partition": there.path, "from_buckets": 1, "to_buckets": 4, "files": there.files, "bytes": there.bytes}
    plan = {
        "partitions": [one], "unchanged": 0, "default": 1, "rule": "regex", "expressions": "p=a,4",
        "rules_change": True, "estimated_seconds": 3.0, "estimated_from": "a guess", "files": 4, "bytes": there.bytes,
    }  # fmt: skip
    pushed = Pushed()
    operator = PreviewRescaleOperator(task_id="preview", table="db.a", table_conn_id=CONN, plan=plan)
    operator.execute({"ti": pushed})
    assert pushed.values["partitions"] == ["p=a"] and "4 buckets" in pushed.values["markdown"]

    nothing = {**plan, "partitions": [], "rules_change": False}
    with pytest.raises(AirflowSkipException, match="nothing to approve"):
        PreviewRescaleOperator(task_id="p", table="db.a", table_conn_id=CONN, plan=nothing).execute({"ti": pushed})
