"""What drivers are given for OpenLineage: the same as by Airflow's own ``SparkSubmitOperator``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# One process serves all of them, and imports all of Airflow.
pytestmark = pytest.mark.by_turn(8, whole=True)

KEY = "planted-40e1"
SCRIPT = """
import json, logging
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow_provider_index.runners.lineage import with_lineage
from airflow_provider_index.runners.settings import SparkSettings

day = datetime(2026, 11, 20, tzinfo=UTC)
run = SimpleNamespace(logical_date=day, run_after=day, clear_number=0, conf={})
ti = SimpleNamespace(dag_id="d", task_id="t", try_number=2, map_index=-1, logical_date=day, dag_run=run)
ti.get_template_context = lambda: {"dag_run": run, "ti": ti}
context = {"ti": ti, "dag_run": run}
theirs = SparkSubmitOperator(
    task_id="t", application="a.py", conn_id="spark_bare", spark_binary="true", conf={"spark.x": "1"}
)
theirs.execute.__wrapped__(theirs, context) if hasattr(theirs.execute, "__wrapped__") else theirs.execute(context)
settings = SparkSettings(conf={"spark.x": "1"})
log = logging.getLogger("test")
given = with_lineage(settings, context, log)
in_cluster = with_lineage(replace(settings, master="yarn", deploy_mode="cluster"), context, log)
print(json.dumps({
    "theirs": {name: str(value) for name, value in theirs.conf.items()},
    "ours": dict(given.conf),
    "secret": given.secret_conf,
    "in_cluster": dict(in_cluster.conf),
    "over_connect": dict(with_lineage(replace(settings, master="sc://h:1"), context, log).conf),
}))
"""


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What both give their drivers."""
    transport = {"type": "http", "url": "http://lineage.example", "auth": {"type": "api_key", "apiKey": KEY}}
    surroundings = {
        **os.environ,
        "AIRFLOW_HOME": str(tmp_path_factory.mktemp("home")),
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport),
        "AIRFLOW__OPENLINEAGE__SPARK_INJECT_PARENT_JOB_INFO": "True",
        "AIRFLOW__OPENLINEAGE__SPARK_INJECT_TRANSPORT_INFO": "True",
        "AIRFLOW_CONN_SPARK_BARE": json.dumps({"conn_type": "spark", "host": "local[1]"}),
    }
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT], cwd=root, env=surroundings, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_parent_job_and_transport_are_those_of_airflows_own_operator(given: dict[str, Any]) -> None:
    assert given["ours"] == given["theirs"]
    assert given["ours"]["spark.openlineage.parentJobName"] == "d.t"
    assert given["ours"]["spark.openlineage.transport.url"] == "http://lineage.example"


def test_the_transports_key_goes_with_the_job_and_never_into_a_cluster(given: dict[str, Any]) -> None:
    assert f"Bearer {KEY}" in given["secret"].values()
    assert "spark.openlineage.parentRunId" in given["in_cluster"] and KEY not in str(given["in_cluster"])
    assert not [name for name in given["in_cluster"] if name.startswith("spark.openlineage.transport")]


def test_a_connect_server_has_a_listener_of_its_own(given: dict[str, Any]) -> None:
    assert given["over_connect"] == {"spark.x": "1"}
