"""One real Airflow for all tests here: scheduler, DAG processor, API server, triggerer, and Spark in the tasks.

Tasks go to one Spark Connect server, but for those that name the connection ``spark_submit``. Runs that meet no other
are begun together, as soon as Airflow is up: see :meth:`~tests.airflow.lake.Lake.begin`.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from airflow_provider_index.__main__ import copy_examples
from airflow_provider_index.testing import LocalAirflow, LocalConnectServer
from tests.airflow.database import database
from tests.airflow.executor import executor
from tests.airflow.lake import SECRET, STORAGE_SECRET, Lake
from tests.folders import kept_for_folder
from tests.mail import mailbox
from tests.spark.local import SMALL

HERE = Path(__file__).parent
AT_ONCE = 6
"""Tasks that run at once: some sleep until they are killed."""
USERS = {"olga": "op", "ulf": "user", "vera": "viewer"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.airflow)
            item.add_marker(pytest.mark.slow)
            # A run of a DAG is a dozen starts of Spark, and a busy machine takes its time over each.
            item.add_marker(pytest.mark.timeout(1800))


_DAILY = re.compile(r'schedule="\d+ \d+ \* \* [*\d]"')


@pytest.fixture(scope="module")
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The one Airflow of this folder. It has the example DAGs that the modules name in ``EXAMPLES``, by subject, and
    their functions ``begin_runs`` are called as soon as it is up."""
    return kept_for_folder(request, "lake", lambda modules: whole_airflow(modules, tmp_path_factory))


@contextmanager
def whole_airflow(modules: list[ModuleType], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    landing = tmp_path_factory.mktemp("landing")
    dags = tmp_path_factory.mktemp("airflow") / "dags"
    shutil.copytree(HERE / "dags", dags, ignore=shutil.ignore_patterns("__pycache__"))
    # As a user has them: copied, with the connections and the Variable that they name. Only those that a test runs:
    # each file takes a process of a second or two, and some are scheduled, or watched in the triggerer.
    for subject in sorted({subject for module in modules for subject in getattr(module, "EXAMPLES", ())}):
        copy_examples(dags, subject)
    for file in dags.rglob("*.py"):
        # Within hours of the time that it names, Airflow would begin a run of its own before those of the tests.
        file.write_text(_DAILY.sub("schedule=None", file.read_text()))
    local = {**SMALL, "spark.sql.shuffle.partitions": "2"}
    secret = {"spark.hadoop.planted.password": SECRET}
    # Queries that sleep take a thread each, and others go on.
    server = LocalConnectServer(local, master="local[4]")
    tables = {
        "conn_type": "index_table_store",
        "extra": {
            "warehouse": str(warehouse),
            "spark_conn_id": "spark_connect",
            "source_roots": [f"sqlite:///{landing.with_name('copies')}/catalog.db"],
            # A local disk needs no key; it takes the way of all storage options.
            "storage_options": {"aws_secret_access_key": STORAGE_SECRET},
        },
    }
    connections = {
        "lake": tables,
        "index_table_store_default": tables,
        "spark_submit": {
            "conn_type": "spark",
            "host": "local[2]",
            "extra": {"conf": {**local, **secret}, "driver-memory": "1g"},
        },
    }
    config = {
        # No task of a busy machine is taken for dead sooner; a test that kills a worker puts its heartbeat back.
        "scheduler__task_instance_heartbeat_timeout": "120",
        "scheduler__task_instance_heartbeat_timeout_detection_interval": "5",
        # For connections that hold secrets in fields of other names than docs/runners.md asks for.
        "core__sensitive_var_conn_names": "storage_options,keytab,runner_options",
    }
    variables = {
        "flights_landing": str(landing),
        "orders_landing": str(landing),
        "flights_copies": str(landing.with_name("copies")),
        "index_maintenance_off": "sales.closed\n",
    }
    # Beside many tasks a request that changes something can hold SQLite up for as long as a lock is waited for: Airflow
    # writes its audit log from the thread that the lock's holder needs to commit.
    kept_in = os.environ.get("DATABASE", "postgresql")
    with (
        database(kept_in) as where,
        # Celery does not work beside SQLite.
        executor("local" if kept_in == "sqlite" else None, processes=AT_ONCE) as tasks,
        server,
        mailbox() as box,
    ):
        connections["spark_connect"] = server.connection(secret)
        connections["smtp_default"] = box.connection
        airflow = LocalAirflow(
            dags,
            connections=connections,
            variables=variables,
            users=USERS,
            parallelism=AT_ONCE,
            **tasks.settings({**config, **where}),
        )
        with airflow:
            lake = Lake(airflow, warehouse, landing, box)
            for module in modules:
                if hasattr(module, "begin_runs"):
                    module.begin_runs(lake)
            yield lake
