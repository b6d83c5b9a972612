"""Advice in a task, and what came of it: from a query log, without Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_index.compat import AirflowSkipException
from airflow_provider_index.operators import AdviseIndexesOperator, IndexSQLOperator, MeasureAdviceOperator
from spark_apps.advisor.advice import _limits
from spark_apps.arrow_table import open_table
from spark_apps.storage.errors import InvalidInput
from spark_apps.storage.store import Store
from spark_apps.timeline.log import seconds_of
from spark_apps.workload.asked import AskedQuery
from spark_apps.workload.query_log import FOLDER
from tests.compatibility.lake import unpack

WHERE = {"table": "trips", "table_conn_id": "lake"}


class Pushed(dict[str, Any]):
    def xcom_push(self, key: str, value: Any) -> None:
        self[key] = json.loads(json.dumps(value))


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    connection = {"conn_type": "index_table_store", "extra": {"warehouse": str(tmp_path)}}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))
    unpack(tmp_path)
    return tmp_path


def log_queries(lake: Path, *queries: dict[str, Any]) -> None:
    """Write a query log as the package does."""
    now = datetime.now(UTC)
    store = Store(lake / "trips")
    lines = [
        AskedQuery(**{"table": store.uri, "asked": now - timedelta(hours=1), "shape": "n = ?", **one}).to_document()
        for one in queries
    ]
    store.put(f"{FOLDER}/{now:%Y%m%dT%H%M%S}-{'0' * 16}.jsonl", b"\n".join(lines) + b"\n")


def test_given_a_query_log_then_the_indexes_that_pay_are_advised_drawn_and_promised(lake: Path) -> None:
    log_queries(lake, {"predicate": "tip = 1.5", "weight": 10_000.0})
    pushed = Pushed()
    operator = AdviseIndexesOperator(task_id="advise", **WHERE)
    advice = operator.execute({"ti": pushed})
    assert advice == json.loads(json.dumps(advice))
    [name] = pushed["promised"]
    assert f"CREATE INDEX `{name}`" in pushed["sql"] and pushed["promised"][name] > 0
    assert "█" in pushed["markdown"] and advice["statements"][-1] in pushed["markdown"]
    assert pushed["svg"].startswith("<svg") and name in pushed["svg"]
    script = IndexSQLOperator(task_id="build", table_conn_id="lake", sql=pushed["sql"])
    assert len(script.statements()) == len(advice["statements"])
    with pytest.raises(AirflowSkipException):
        AdviseIndexesOperator(task_id="advise", budget_bytes="1", judge_after_days=1e6, **WHERE).execute({"ti": pushed})


def test_given_an_index_that_waits_to_be_dropped_then_its_bytes_count_against_the_budget(lake: Path) -> None:
    log_queries(lake, {"predicate": "tip = 1.5", "weight": 10_000.0})
    pushed = Pushed()
    advice = AdviseIndexesOperator(task_id="advise", judge_after_days=0, **WHERE).execute({"ti": pushed})
    assert {one["action"] for one in advice["proposals"]} == {"create", "drop"}
    verbs = [statement.split()[0] for statement in pushed["sql"].split(";\n")]
    assert verbs == sorted(verbs) and set(verbs) == {"CREATE", "DROP"}, "no query is without an index meanwhile"
    created = sum(one["bytes"] for one in advice["proposals"] if one["action"] == "create")
    given = {"task_id": "advise", "budget_bytes": str(created), **WHERE}
    again = AdviseIndexesOperator(judge_after_days=0, **given).execute({"ti": pushed})
    assert again["statements"] == advice["statements"]
    with pytest.raises(AirflowSkipException, match="The budget has no room beside "):
        AdviseIndexesOperator(judge_after_days=1e6, **given).execute({"ti": pushed})


def test_given_no_query_log_then_it_says_how_to_keep_one_and_skips(lake: Path) -> None:
    with pytest.raises(AirflowSkipException, match="keeps no query log"):
        AdviseIndexesOperator(task_id="advise", **WHERE).execute({"ti": Pushed()})


def test_given_what_was_promised_then_an_index_that_spared_less_than_half_is_taken_back(lake: Path) -> None:
    first, *others = sorted(open_table(lake / "trips").indexes)
    log_queries(lake, {"predicate": "n = 1", "weight": 100.0, "spared": {first: 1_000}})
    pushed = Pushed()
    # An hour of log with 100,000 bytes: 2,400,000 a day.
    promised = {first: 2_000_000.0, others[0]: 1_000_000.0, "gone": 5.0}
    back = MeasureAdviceOperator(task_id="measure", promised=json.dumps(promised), **WHERE).execute({"ti": pushed})
    assert back == [others[0]] and {one["index"]: one["verdict"] for one in pushed["judged"]} == {
        first: "kept", others[0]: "taken back", "gone": "kept"
    }  # fmt: skip
    assert pushed["judged"][0]["measured_a_day"] == pytest.approx(2_400_000, rel=0.05)
    assert pushed["sql"] == f"DROP INDEX `{others[0]}` ON `{Store(lake / 'trips').uri}`"
    assert f"{others[0]}: taken back" in pushed["markdown"]
    with pytest.raises(AirflowSkipException, match="No index is to be taken back"):
        MeasureAdviceOperator(task_id="m", promised={first: 2_000_000.0}, **WHERE).execute({"ti": pushed})
    with pytest.raises(Exception, match="promised") as refused:
        MeasureAdviceOperator(task_id="m", promised={first: "much"}, **WHERE).execute({"ti": pushed})
    assert isinstance(refused.value.__cause__ or refused.value, InvalidInput)


def test_given_an_index_that_was_dropped_and_created_again_then_what_it_spared_before_is_not_counted(
    lake: Path,
) -> None:
    table = open_table(lake / "trips")
    first = sorted(table.indexes)[0]
    created = table.index_status(first).created_at
    assert created is not None
    before = datetime.fromtimestamp(seconds_of(created), UTC) - timedelta(hours=1)
    log_queries(lake, {"weight": 1e6, "spared": {first: 1_000_000}, "asked": before}, {"spared": {first: 10}})
    pushed = Pushed()
    MeasureAdviceOperator(task_id="measure", promised={first: 1e6}, **WHERE).execute({"ti": pushed})
    assert 0 < pushed["judged"][0]["measured_a_day"] <= 10 * 24


def test_given_a_log_that_was_switched_off_then_the_days_since_count_nothing(lake: Path) -> None:
    table = open_table(lake / "trips")
    first = sorted(table.indexes)[0]
    created = table.index_status(first).created_at
    assert created is not None
    asked = datetime.fromtimestamp(seconds_of(created), UTC) + timedelta(minutes=30)
    log_queries(lake, {"weight": 10.0, "spared": {first: 1_000}, "asked": asked})
    pushed = Pushed()
    with pytest.raises(AirflowSkipException, match="No index is to be taken back"):
        MeasureAdviceOperator(task_id="measure", promised={first: 200_000}, **WHERE).execute({"ti": pushed})
    assert pushed["judged"][0]["measured_a_day"] == pytest.approx(240_000)
    with pytest.raises(Exception, match="promised"):
        MeasureAdviceOperator(task_id="m", promised={first: float("inf")}, **WHERE).execute({"ti": pushed})


def test_given_no_budget_then_indexes_may_hold_a_share_of_the_table_and_progress_is_told(
    lake: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log_queries(lake, {"predicate": "tip = 1.5", "weight": 10_000.0})
    opened = open_table(lake / "trips")
    caplog.set_level("INFO")
    advice = opened.advise()
    held = sum(file.bytes for file in opened._snapshot.state.files("data"))
    assert advice.budget == {"bytes": max(held / 3, 1 << 20), "minutes": None}
    tried = [record.getMessage() for record in caplog.records if " tried: " in record.getMessage()]
    assert len(tried) == advice.candidates > 0 and f"{len(tried)} of {len(tried)} tried" in tried[-1]
    assert opened.advise(budget={"bytes": None}).budget == {"bytes": None, "minutes": None}
    assert _limits(None, 9 << 20)[0] == 3 << 20 and _limits({"minutes": 1}, 9 << 20)[0] == 3 << 20
