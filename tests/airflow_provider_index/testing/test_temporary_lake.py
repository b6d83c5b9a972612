"""The example of docs/testing.md, run: a DAG by ``dag.test()`` with real Spark, and all that its task tells others.

One run serves all tests of it; a StatsD and a file of OpenLineage's listen to it. As it takes a minute, each eighth
commit makes it.
"""

from __future__ import annotations

import importlib.util
import json
import re
import socket
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_index.testing import DagRunFailed, DagTestReport, TemporaryLake, temporary_lake
from tests.spark.local import JVM

PAGE = Path(__file__).parents[3] / "docs/testing.md"
FAILING = """from airflow.sdk import dag, task

@dag
def failing():
    @task
    def fails():
        raise ValueError("it fails")

    fails()

failing()
"""

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(900)]


@dataclass
class Example:
    """What is left of the run of the page's example."""

    lake: TemporaryLake
    reports: list[DagTestReport]
    metrics: list[str]
    lineage: list[dict[str, Any]]

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        """Rows of Airflow's own database."""
        with sqlite3.connect(f"{self.lake.env['AIRFLOW_HOME']}/airflow.db") as database:
            return database.execute(query).fetchall()


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Example]:
    folder = tmp_path_factory.mktemp("project")
    for path, text in re.findall(r"`(\w+/\w+\.py)`:\n\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    listener.bind(("127.0.0.1", 0))
    config = {
        "metrics__statsd_on": "True",
        "metrics__statsd_host": "127.0.0.1",
        "metrics__statsd_port": str(listener.getsockname()[1]),
        "openlineage__transport": json.dumps({"type": "file", "log_file_path": f"{folder}/lineage", "append": True}),
        "api__base_url": "https://airflow.example/team",
    }
    with temporary_lake(
        folder / "dags", config=config, spark_conf={"spark.ui.enabled": "true", "spark.driver.extraJavaOptions": JVM}
    ) as lake:
        module = load(folder / "tests/test_orders_daily.py")
        kept: list[DagTestReport] = []
        module.test_a_day_is_loaded(Keeping(lake, kept), folder)  # type: ignore[attr-defined]
        events = [json.loads(line) for line in (folder / "lineage").read_text().splitlines()]
        yield Example(lake, kept, received(listener), events)
    listener.close()


class Keeping:
    """The lake, which keeps the reports that it hands out."""

    def __init__(self, lake: TemporaryLake, kept: list[DagTestReport]) -> None:
        self._lake, self._kept = lake, kept

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lake, name)

    def run(self, *asked: Any, **more: Any) -> DagTestReport:
        self._kept.append(self._lake.run(*asked, **more))
        return self._kept[-1]


def load(path: Path) -> object:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def received(listener: socket.socket) -> list[str]:
    listener.settimeout(0.2)
    messages = []
    try:
        while True:
            messages.append(listener.recv(65_536).decode())
    except TimeoutError:
        return messages


@pytest.mark.by_turn(16, group="example")
def test_the_pages_example_holds(example: Example) -> None:
    (report,) = example.reports
    assert report.state == "success"
    assert "Spark UI: http" in report.log


@pytest.mark.by_turn(16, group="example")
def test_the_receipt_is_in_the_event_of_the_outlet(example: Example) -> None:
    ((extra,),) = example.ask("SELECT extra FROM asset_event")
    event = json.loads(extra) if isinstance(extra, str) else extra
    receipt = example.reports[0].xcoms["load"]

    assert event["commit"] == f"{receipt['version']}:{receipt['txn_id']}"
    assert (event["operation"], event["metrics"]["rows"]) == ("upsert", 3)
    assert example.ask("SELECT uri FROM asset") == [("lakeindex://table/index_table_store_default/shop.orders",)]


@pytest.mark.by_turn(16, group="example")
def test_metrics_of_the_task_reach_a_statsd_by_udp(example: Example) -> None:
    sent = {name: value for name, _, value in (line.rpartition(":") for line in example.metrics) if "lakeindex" in name}

    assert sent["airflow.lakeindex.commits"] == "1|c"
    assert sent["airflow.lakeindex.rows_written"] == "3|c"
    assert sent["airflow.lakeindex.table_version.shop.orders"].endswith("|g")
    assert sent["airflow.lakeindex.task_duration"].endswith("|ms")


@pytest.mark.by_turn(16, group="example")
def test_openlineage_is_sent_what_was_read_and_written(example: Example) -> None:
    ended = [one for one in example.lineage if one["eventType"] == "COMPLETE" and one["job"]["name"].endswith(".load")]
    (event,) = ended

    assert [one["name"].rpartition("/")[2] for one in event["inputs"]] == ["orders.csv"]
    (table,) = [one for one in event["outputs"] if one["name"].endswith("shop/orders")]
    assert table["facets"]["version"]["datasetVersion"] == str(example.reports[0].xcoms["load"]["version"])
    assert [one["name"] for one in table["facets"]["schema"]["fields"]] == ["id", "city", "dt"]
    assert table["outputFacets"]["outputStatistics"]["rowCount"] == 3
    assert event["run"]["facets"]["lakeindex_receipt"]["receipts"][0]["operation"] == "upsert"


@pytest.mark.by_turn(16, group="example")
def test_a_task_links_to_its_table_and_to_spark(example: Example) -> None:
    links = {
        (task, key): json.loads(value)
        for task, key, value in example.ask("SELECT task_id, key, value FROM xcom WHERE key LIKE '%link%'")
    }
    page = links["load", "_link_TablePageLink"]

    assert page.startswith("https://airflow.example/team/lakeindex/tables?table=")
    assert page.endswith("shop%2Forders&conn=index_table_store_default")
    assert links["load", "_link_SparkUILink"].startswith("http://127.0.0.1:40")
    assert links["clean", "_link_SparkUILink"] == ""


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporaryLake]:
    dags = tmp_path_factory.mktemp("failing")
    (dags / "failing.py").write_text(FAILING)
    with temporary_lake(dags) as lake:
        yield lake


@pytest.mark.by_turn(4, first=3)
def test_a_run_that_fails_says_what_failed(failing: TemporaryLake) -> None:
    with pytest.raises(DagRunFailed, match=r"failing ended as failed: {'fails': 'failed'}"):
        failing.run("failing")


@pytest.mark.by_turn(16)
def test_a_run_may_be_expected_to_fail_and_one_that_is_unknown_says_what_there_is(failing: TemporaryLake) -> None:
    with pytest.raises(DagRunFailed, match="there are failing"):
        failing.run("no_such_dag")
    assert failing.run("failing", expect="failed").state == "failed"


@pytest.mark.by_turn(4, first=3)
def test_nothing_of_the_airflow_of_who_runs_the_test_is_known_to_its_runs(
    failing: TemporaryLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "Theirs")
    monkeypatch.setenv("AIRFLOW_CONN_THEIRS", "spark://theirs")
    with temporary_lake(failing.dags) as lake:
        assert not {"AIRFLOW__CORE__EXECUTOR", "AIRFLOW_CONN_THEIRS"} & lake.env.keys()
