"""What the tests here look at: the Airflow that runs, and the tables that its DAGs write."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import MetaData, Table, create_engine

from airflow_provider_index.testing import AirflowClient, DagRunFailed, DagRunReport, LocalAirflow
from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline
from tests.mail import Mailbox

SECRET = "planted-5b1c77"
"""Stands in the Spark connection, and may stand nowhere else."""

STORAGE_SECRET = "planted-c40d19"
"""Stands in the storage options of the tables' connection, and may stand nowhere else."""

_ROWS = """
from airflow.configuration import conf
from sqlalchemy import MetaData, create_engine
engine = create_engine(conf.get("database", "sql_alchemy_conn"))
tables = MetaData()
tables.reflect(engine)
with engine.connect() as connection:
    for table in tables.sorted_tables:
        for row in connection.execute(table.select()):
            print(table.name, tuple(row))
"""


@dataclass(frozen=True)
class Lake:
    """The Airflow that runs, and the warehouse that its DAGs write to."""

    airflow: LocalAirflow
    warehouse: Path
    landing: Path
    """Folder that raw flights arrive in."""
    mailbox: Mailbox
    """What was sent by the connection ``smtp_default``."""
    begun: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Name of a run that was begun -> its DAG and its id."""

    @property
    def client(self) -> AirflowClient:
        return self.airflow.client

    def begin(self, dag_id: str, name: str | None = None, **conf: Any) -> None:
        """Trigger a run whose tables no other run meets. A module's function ``begin_runs`` does so before the first
        test, so that the runs of all modules go on together.

        :param name: tells runs of one DAG apart; the DAG's id by default. :param conf: the run's params.
        """
        self.begun[name or dag_id] = dag_id, self.trigger(dag_id, conf)

    def trigger(self, dag_id: str, conf: dict[str, Any] | None = None) -> str:
        """Start a run, once Airflow has found the DAG, and return the run's id."""
        self.client.wait_for_dags(dag_id)
        return self.client.trigger(dag_id, conf)

    def run(self, dag_id: str, conf: dict[str, Any] | None = None, *, timeout: float = 300) -> DagRunReport:
        """Start a run, once Airflow has found the DAG, and insist on its success."""
        self.client.wait_for_dags(dag_id)
        return self.client.run(dag_id, conf, timeout=timeout)

    def end_of(self, name: str, *, expect: str = "success", timeout: float = 800) -> DagRunReport:
        """Wait for a run that was begun, and insist on the end that was expected.

        :raises DagRunFailed: if the run ended otherwise; with the logs of the tasks that failed.
        """
        dag_id, run_id = self.begun[name]
        report = self.client.wait(dag_id, run_id, timeout=timeout, poll=1)
        if report.state != expect:
            raise DagRunFailed(self.client.describe(report))
        return report

    def timeline(self, table: str | Path) -> Timeline:
        """A table's timeline, read anew. :param table: below the warehouse, or the whole path of a log."""
        return Timeline.load(Store(self.warehouse / table))

    def audit(self, dag_id: str, run_id: str) -> str:
        """What Airflow's audit log says of a run: why a task has failed that has no line of its own."""
        rows = self.client.get("eventLogs", dag_id=dag_id, run_id=run_id, limit=100)["event_logs"]
        return "\n".join(f"{row['when']} {row['task_id']} {row['event']} {row['extra']}" for row in rows)

    def forget_heartbeats(self, dag_id: str, run_id: str, task_id: str) -> None:
        """Have Airflow take the last heartbeat of a running task for one of an hour ago."""
        engine = create_engine(self.airflow.env["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"])
        table = Table("task_instance", MetaData(), autoload_with=engine)
        of_task = (table.c.dag_id == dag_id, table.c.run_id == run_id, table.c.task_id == task_id)
        with engine.begin() as connection:
            hour_ago = datetime.now(UTC) - timedelta(hours=1)
            done = connection.execute(table.update().where(*of_task).values(last_heartbeat_at=hour_ago))
        engine.dispose()
        assert done.rowcount == 1

    def ask(self, code: str) -> str:
        """What a program prints that has this Airflow's settings, and so its database."""
        env = self.airflow.env
        return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout

    def database_rows(self) -> str:
        """Every row of Airflow's database as text, whatever keeps it: a server's files may hold them compressed."""
        return self.ask(_ROWS)

    def run_until_asked(self, dag_id: str, conf: dict[str, Any], task_id: str = "approve") -> str:
        """The id of a run that has come to wait for a person."""
        run_id = self.trigger(dag_id, conf)
        states = frozenset({"awaiting_input", "deferred", "failed", "skipped", "upstream_failed"})
        state = self.client.wait_for_task(dag_id, run_id, task_id, states, timeout=300)
        assert state in ("awaiting_input", "deferred"), self.client.task_states(dag_id, run_id)
        # Airflow takes an answer that comes before the process that asked has ended for a failure; a person is slower.
        deadline = time.monotonic() + 120
        while self.processes_of(dag_id, run_id, task_id):
            assert time.monotonic() < deadline, f"the process of {dag_id}.{task_id} does not end"
            time.sleep(0.2)
        time.sleep(3)  # until the scheduler, too, has heard that it ended
        return run_id

    def part(self, name: str) -> psutil.Process:
        """The process of a part of Airflow, which it has started itself, or which was started for it."""
        if name in self.airflow.parts:
            return psutil.Process(self.airflow.parts[name])
        [part] = [one for one in psutil.Process(self.airflow.pid).children() if one.cmdline()[-1:] == [name]]
        return part

    def processes_of(self, dag_id: str, run_id: str, task_id: str) -> list[psutil.Process]:
        """The processes that Airflow names after a task: its own, and the one of LocalExecutor that supervises it."""
        [row] = [one for one in self.client.task_instances(dag_id, run_id) if one["task_id"] == task_id]
        return [
            process
            for process in psutil.process_iter(["cmdline"])
            if (title := " ".join(process.info["cmdline"] or [])).startswith("airflow worker") and row["id"] in title
        ]
