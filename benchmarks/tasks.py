"""What an index task costs beside Spark: on a real Airflow against a task that does nothing, and over Spark Connect.

On Airflow a deferrable refresh that has nothing to do, in turn with a deferrable task that does nothing and with the
start of an empty Spark app; what is left of the first is ours: two starts of Python code, the job's folder, the look
of the trigger. Over Spark Connect a small refresh from its submission to its answer, in a session of its own on a
server that is warm. Then, on Airflow over Spark Connect, single tasks from queued to success, less one that does
nothing: an upsert of 1,000 rows into a million with two indexes, and the maintenance of ten small tables in one task.
"""

from __future__ import annotations

import operator
import os
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from airflow_provider_index.runners.settings import SparkSettings
from airflow_provider_index.testing import LocalAirflow
from airflow_provider_index.testing.client import AirflowClient
from airflow_provider_index.testing.connect_server import LocalConnectServer
from benchmarks.measure import Timing
from benchmarks.report import Report
from spark_apps.jobs import environment
from tests.airflow.tables import make
from tests.spark.clusters import connect_server
from tests.spark.measure import refreshes

CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}
DAGS = """
from datetime import UTC, datetime

from airflow.providers.standard.triggers.temporal import DateTimeTrigger
from airflow.sdk import DAG, BaseOperator

from airflow_provider_index.operators import BuildIndexOperator, IncrementalRefreshOperator, WriteTableOperator


class Nothing(BaseOperator):
    def execute(self, context):
        self.defer(trigger=DateTimeTrigger(moment=datetime.now(UTC)), method_name="done")

    def done(self, context, event):
        return None


with DAG("nothing", schedule=None):
    Nothing(task_id="nothing")
with DAG("refresh", schedule=None):
    IncrementalRefreshOperator(task_id="refresh", table="db.people", index="by_city", deferrable=True)
with DAG("prepare", schedule=None):
    create = {"schema": "id bigint, city string", "record_key": ["id"], "buckets": 2}
    rows = "SELECT id, concat('city ', id % 50) AS city FROM range(1000)"
    WriteTableOperator(task_id="write", table="db.people", sql=rows, create=create) >> BuildIndexOperator(
        task_id="build", table="db.people", index="by_city", kind="secondary", columns=["city"]
    )
"""
SHORT_DAGS = """
from airflow.sdk import DAG, BaseOperator

from airflow_provider_index.maintenance import index_maintenance
from airflow_provider_index.operators import BuildIndexOperator, WriteTableOperator


class Nothing(BaseOperator):
    def execute(self, context):
        return None


with DAG("nothing", schedule=None):
    Nothing(task_id="task")
ROWS = "SELECT {} AS id, concat('city ', (id + unix_timestamp()) % 5000) AS city, id AS amount FROM range({})"
with DAG("prepare", schedule=None):
    create = {"schema": "id bigint, city string, amount bigint", "record_key": ["id"], "buckets": 4}
    write = WriteTableOperator(task_id="write", table="db.people", sql=ROWS.format("id", 1_000_000), create=create)
    record = BuildIndexOperator(task_id="record", table="db.people", index="by_key", kind="record")
    write >> record >> BuildIndexOperator(
        task_id="secondary", table="db.people", index="by_city", kind="secondary", columns=["city"]
    )
with DAG("upsert", schedule=None):
    WriteTableOperator(task_id="task", table="db.people", sql=ROWS.format("id * 7919 % 1000000", 1000))
OFF = {"compact": False, "compact_indexes": False, "clean": False, "verify": False}
index_maintenance("connect", tables=["connect*"], defaults=OFF)
index_maintenance("submit", tables=["submit*"], defaults=OFF, spark_conn_id="submit")
"""
SMALL_TABLES = 10
EMPTY_APP = """
import sys, time
from pyspark.sql import SparkSession
SparkSession.builder.appName("empty").getOrCreate()
print("ready", time.time(), flush=True)
"""


def run(report: Report, arguments: Namespace) -> None:
    """Prints a table a question."""
    repeats = max(5, arguments.repeats) if arguments.full else 3
    with tempfile.TemporaryDirectory(prefix="benchmarks-", ignore_cleanup_errors=True) as name:
        report_tasks(report, Path(name), repeats)
        report_connect(report, Path(name) / "connect", repeats)
        report_short(report, Path(name) / "short", repeats)


def report_tasks(report: Report, folder: Path, repeats: int) -> None:
    """Runs of DAGs of one task, from the start of the run to its end."""
    dags = folder / "dags"
    dags.mkdir()
    (dags / "tasks.py").write_text(DAGS)
    connections = {
        "index_table_store_default": {"conn_type": "index_table_store", "extra": {"warehouse": str(folder / "lake")}},
        "spark_default": {"conn_type": "spark", "host": "local[2]", "extra": {"conf": CONF, "driver-memory": "1g"}},
    }
    kinds = ("index task", "empty task", "empty app")
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    with LocalAirflow(dags, connections=connections, parallelism=2) as airflow:
        airflow.client.wait_for_dags("nothing", "refresh", "prepare")
        airflow.client.run("prepare")
        _run(airflow.client, "nothing")
        for _ in range(repeats):
            taken = (_run(airflow.client, "refresh"), _run(airflow.client, "nothing"), _start_of_spark(folder))
            for kind, each in zip(kinds, taken, strict=True):
                seconds[kind].append(each)
    beyond = [task - nothing - app for task, nothing, app in zip(*seconds.values(), strict=True)]
    timings = [Timing(kind, tuple(each)) for kind, each in seconds.items()]
    report.timings("A deferrable task on a local Airflow", [*timings, Timing("beyond both", tuple(beyond))])
    report.verdict(10, "task", statistics.median(beyond))


def report_connect(report: Report, folder: Path, repeats: int) -> None:
    """Refreshes after small upserts, over a server that other sessions have used before."""
    folder.mkdir()
    with connect_server(folder / "server") as server:
        measured = refreshes(SparkSettings(master=server.address), folder / "tables", repeats)
    wall, used = zip(*measured, strict=True)
    note = f"{statistics.median(used):.1f} s of processors outside the server"
    timing = Timing("small refresh, new session", wall, note)
    report.timings("A small refresh over Spark Connect, from its submission to its answer", [timing])
    report.verdict(10, "refresh", timing.median)


def report_short(report: Report, folder: Path, repeats: int) -> None:
    """Tasks with a second's work, from queued to success. The first of each kind is not counted."""
    dags, lake = folder / "dags", folder / "lake"
    dags.mkdir(parents=True)
    (dags / "short.py").write_text(SHORT_DAGS)
    seconds: dict[str, list[float]] = {kind: [] for kind in ("nothing", "upsert", "connect", "submit")}
    with LocalConnectServer(home=folder / "server") as server:
        connections = {
            "index_table_store_default": {"conn_type": "index_table_store", "extra": {"warehouse": str(lake)}},
            "spark_default": server.connection({"spark.sql.shuffle.partitions": "2"}),
            "submit": {"conn_type": "spark", "host": "local[2]", "extra": {"conf": CONF, "driver-memory": "1g"}},
        }
        with LocalAirflow(dags, connections=connections, parallelism=2) as airflow:
            airflow.client.wait_for_dags("prepare", *seconds)
            airflow.client.run("prepare")
            for number in range(repeats + 1):
                for kind, taken in seconds.items():
                    conf = {}
                    if kind in ("connect", "submit"):
                        conf = {"tables": [f"{kind}{number}.*"]}
                        for table in range(SMALL_TABLES):
                            make(lake / f"{kind}{number}" / f"t{table}", 2)
                    taken.append(_task(airflow.client, kind, conf))
    nothing = seconds.pop("nothing")[1:]
    beyond = {kind: tuple(map(operator.sub, taken[1:], nothing)) for kind, taken in seconds.items()}
    names = {"upsert": "upsert", "connect": "ten tables: over Connect", "submit": "ten tables: by spark-submit"}
    timings = [Timing("empty task", tuple(nothing)), *(Timing(names[kind], each) for kind, each in beyond.items())]
    report.timings("Short tasks on a local Airflow, from queued to success, beyond an empty task", timings)
    for kind, each in beyond.items():
        report.verdict(10, names[kind], statistics.median(each))


def _task(client: AirflowClient, dag: str, conf: dict[str, Any]) -> float:
    """From queued to success of a run's task ``task``, or of the only one that is mapped."""
    run_id = client.run(dag, conf).run_id
    tasks = client.get(f"dags/{dag}/dagRuns/{run_id}/taskInstances")["task_instances"]
    [task] = [one for one in tasks if one["task_id"] in ("task", "maintain")]
    queued, ended = (datetime.fromisoformat(task[name]) for name in ("queued_when", "end_date"))
    return (ended - queued).total_seconds()


def _run(client: AirflowClient, dag: str) -> float:
    done = client.run(dag)
    dag_run = client.get(f"dags/{dag}/dagRuns/{done.run_id}")
    begun, ended = (datetime.fromisoformat(dag_run[name]) for name in ("start_date", "end_date"))
    return (ended - begun).total_seconds()


def _start_of_spark(folder: Path) -> float:
    """From the start of ``spark-submit`` to a session, with the settings of the tasks' own."""
    app = folder / "empty.py"
    app.write_text(EMPTY_APP)
    settings = [part for key, value in CONF.items() for part in ("--conf", f"{key}={value}")]
    submit = str(environment.spark_home() / "bin" / "spark-submit")
    command = [submit, "--master", "local[2]", "--driver-memory", "1g", *settings, str(app)]
    begun = time.time()
    done = subprocess.run(command, env=_surroundings(), capture_output=True, text=True, check=True)
    [ready] = [line for line in done.stdout.splitlines() if line.startswith("ready ")]
    return float(ready.split()[1]) - begun


def _surroundings() -> Mapping[str, str]:
    own = {"JAVA_HOME": str(environment.java_home()), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    return {**os.environ, **own, "PYSPARK_DRIVER_PYTHON": sys.executable}
