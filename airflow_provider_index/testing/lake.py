"""A lake that lasts for one test: an empty warehouse, connections to it, a local Spark, and DAGs run by ``dag.test()``.

No scheduler is started: a DAG runs in one process of its own, task after task, as ``dag.test()`` does it, against an
Airflow home that is thrown away. For a whole Airflow there is :class:`~airflow_provider_index.testing.LocalAirflow`.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from airflow_provider_index.testing.client import DagRunFailed
from airflow_provider_index.testing.local_airflow import airflow_environment
from spark_apps.jobs.environment import java_home
from spark_apps.timeline.locations import Warehouse
from spark_apps.timeline.log import Timeline

SPARK_CONF: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    # Apps that live for seconds gain nothing from the second compiler.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}
"""Settings of the local Spark, so that a test neither opens a port to the outside nor makes 200 tiny tasks."""


@dataclass(frozen=True)
class DagTestReport:
    """Report of how a run by ``dag.test()`` ended.

    :param tasks: task id (``id[3]`` for a mapped one) -> state. :param xcoms: task id -> what it returned.
    :param log: all that the tasks logged.
    """

    dag_id: str
    state: str
    tasks: dict[str, str | None] = field(default_factory=dict)
    xcoms: dict[str, Any] = field(default_factory=dict)
    log: str = ""


@dataclass(frozen=True)
class TemporaryLake:
    """A lake with all that a test needs; made by :func:`temporary_lake`.

    :param warehouse: the folder below which tables have names.
    :param dags: the folder of DAG files.
    :param env: the environment in which DAGs are run: home, database, connections, Variables.
    """

    warehouse: Path
    dags: Path
    env: Mapping[str, str]

    def run(
        self,
        dag_id: str,
        conf: Mapping[str, Any] | None = None,
        *,
        expect: str = "success",
        skip: str | None = None,
        timeout: float = 600,
        logical_date: datetime | None = None,
    ) -> DagTestReport:
        """Run a DAG by ``dag.test()``.

        ::

            report = lake.run("nightly", {"day": "2026-11-20"}, skip="wait_.*")
            assert report.xcoms["load"]["version"] == 1

        :param conf: becomes the run's params.
        :param expect: the state in which the run has to end.
        :param skip: a pattern of task ids which are marked a success instead of run, such as a sensor for something
            outside.
        :param timeout: seconds.
        :param logical_date: of the run, for templates such as ``{{ ds }}``, with its time zone; none by default.
        :param dag_id: of a DAG in the lake's folder.
        :returns: how it ended: state, tasks, what they returned, the log.
        :raises DagRunFailed: the run ended otherwise, or there is no such DAG; with what was logged last.
        """
        date = None if logical_date is None else logical_date.isoformat()
        order = {"dags": str(self.dags), "dag_id": dag_id, "conf": dict(conf or {}), "skip": skip, "date": date}
        with tempfile.TemporaryDirectory(prefix="dag-test-") as folder:
            answer = Path(folder) / "answer.json"
            done = subprocess.run(
                [sys.executable, "-m", "airflow_provider_index.testing.dag_test", str(answer)],
                input=json.dumps(order),
                env=dict(self.env),
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=timeout,
                check=False,
            )
            if not answer.exists():
                raise DagRunFailed(f"{dag_id} did not run.\n{_tail(done.stdout)}")
            report = DagTestReport(log=done.stdout, **json.loads(answer.read_text()))
        if report.state != expect:
            raise DagRunFailed(f"{dag_id} ended as {report.state}: {report.tasks}\n{_tail(report.log)}")
        return report

    def location(self, table: str) -> str:
        """Return where a table is that DAGs call by its name."""
        return Warehouse(str(self.warehouse)).locate(table)

    def timeline(self, table: str) -> Timeline:
        """Return a table's log, read anew: versions, files, windows, what each index covers.

        :raises TableNotFound: if there is no such table.
        """
        location = self.location(table)
        return Timeline.load(Warehouse(str(self.warehouse)).log_of(location) or Warehouse().store(location))

    @property
    def spark(self) -> Any:
        """A local Spark session in the test's own process: the active one, or a small one made now."""
        os.environ.setdefault("JAVA_HOME", str(java_home()))
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        # By name: what Airflow imports of this package must not import Spark, and this module does not either.
        sessions = import_module("pyspark.sql").SparkSession
        active = sessions.getActiveSession()
        if active is not None:
            return active
        builder = sessions.builder.master("local[1]").appName("temporary lake")
        for key, value in SPARK_CONF.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()

    def table(self, table: str) -> Any:
        """Return the :class:`spark_apps.IndexedTable` of that name, at its newest version.

        :raises TableNotFound: if there is no such table.
        """
        return import_module("spark_apps.table").IndexedTable.load(self.spark, self.location(table))

    def rows(self, table: str, where: str | None = None, columns: list[str] | None = None) -> list[dict[str, Any]]:
        """Return the rows of a table now, in no order.

        :param where: a SQL predicate. :param columns: only these.
        """
        return [row.asDict(recursive=True) for row in self.table(table).read(where=where, columns=columns).collect()]


@contextmanager
def temporary_lake(
    dags: str | os.PathLike[str],
    *,
    table_conn_id: str = "index_table_store_default",
    spark_conn_id: str = "spark_default",
    spark_conf: Mapping[str, str] | None = None,
    connections: Mapping[str, Mapping[str, Any]] | None = None,
    variables: Mapping[str, str] | None = None,
    config: Mapping[str, str] | None = None,
) -> Iterator[TemporaryLake]:
    """Return an empty warehouse with a local Spark, for the length of a test; all of it is removed at the end.

    ::

        with temporary_lake("dags") as lake:
            lake.run("nightly", {"day": "2026-11-20"})
            assert len(lake.rows("shop.orders")) == 3

    :param dags: folder of the DAG files. ``dag.test()`` finds a DAG only in a folder that Airflow knows.
    :param table_conn_id: the connection of tables that the DAGs name; it leads to the empty warehouse.
    :param spark_conn_id: the Spark connection that they name; it is ``local[2]`` in the lake.
    :param spark_conf: settings over :data:`SPARK_CONF`.
    :param connections: more connections, id -> fields.
    :param variables: Airflow Variables.
    :param config: ``section__key`` -> value, over the settings of the lake.
    """
    with tempfile.TemporaryDirectory(prefix="lake-", ignore_cleanup_errors=True) as folder:
        home, warehouse = Path(folder) / "airflow", Path(folder) / "warehouse"
        warehouse.mkdir()
        home.mkdir()
        shutil.copyfile(_empty_database(), home / "airflow.db")
        spark = {"conf": {**SPARK_CONF, **(spark_conf or {})}, "driver-memory": "1g"}
        known = {
            table_conn_id: {
                "conn_type": "index_table_store",
                "extra": {"warehouse": str(warehouse), "spark_conn_id": spark_conn_id},
            },
            spark_conn_id: {"conn_type": "spark", "host": "local[2]", "extra": spark},
            **(connections or {}),
        }
        env = _environment(home, Path(dags).absolute(), config or {}, known, variables)
        yield TemporaryLake(warehouse, Path(dags).absolute(), env)


@cache
def _empty_database() -> Path:
    """Return a database with Airflow's tables in it, made once a process: that takes longer than many a test."""
    folder = Path(tempfile.mkdtemp(prefix="airflow-empty-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    airflow = str(Path(sys.executable).parent / "airflow")
    done = subprocess.run(
        [airflow, "db", "migrate"],
        env=_environment(folder, folder, {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise DagRunFailed(f"Airflow could not make its database.\n{_tail(done.stdout)}")
    return folder / "airflow.db"


def _environment(
    home: Path,
    dags: Path,
    config: Mapping[str, str],
    connections: Mapping[str, Mapping[str, Any]] | None = None,
    variables: Mapping[str, str] | None = None,
) -> dict[str, str]:
    settings = {
        "core__unit_test_mode": "False",
        "database__sql_alchemy_conn": f"sqlite:///{home / 'airflow.db'}",
        **config,
    }
    return {
        **airflow_environment(home, dags, settings, connections, variables),
        "SPARK_LOCAL_IP": "127.0.0.1",
        # Where the test's own interpreter finds this package, the DAGs' one does too.
        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
    }


def _tail(text: str, lines: int = 60) -> str:
    return "\n".join(text.splitlines()[-lines:])
