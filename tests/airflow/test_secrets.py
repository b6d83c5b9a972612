"""Secrets of both connections, looked for wherever a run leaves something: while its task is deferred and its driver
works, and afterwards."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from airflow_provider_index.testing import DagRunReport
from tests.airflow.lake import SECRET, STORAGE_SECRET, Lake
from tests.airflow.test_deferring import drivers, start_and_wait_for_the_attempt

PLANTED = (SECRET.encode(), STORAGE_SECRET.encode())
TRIGGERS = """
from airflow.models.trigger import Trigger
from airflow.utils.session import create_session
with create_session() as session:
    for one in session.query(Trigger):
        print(one.classpath, one.kwargs)
"""


def holding(paths: Iterator[Path]) -> list[Path]:
    """The files among these in which a secret stands."""
    found = []
    for path in paths:
        with contextlib.suppress(OSError):
            # A pipe would wait for somebody to write.
            if path.is_file() and any(secret in path.read_bytes() for secret in PLANTED):
                found.append(path)
    return found


def said_by(processes: list[psutil.Process], environment: bool) -> list[str]:
    told = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            told += process.cmdline()
            told += [f"{name}={value}" for name, value in process.environ().items()] if environment else []
    return [word for word in told if any(secret.decode() in word for secret in PLANTED)]


@pytest.fixture(scope="module")
def run(lake: Lake) -> DagRunReport:
    run_id, job_id = start_and_wait_for_the_attempt(lake, "deferring", "secretive", 12)
    # As the database holds them, decrypted.
    told = lake.ask(TRIGGERS)
    assert "JobTrigger" in told and "secretive" in told
    assert not any(secret.decode() in told for secret in PLANTED)
    at_work = drivers(job_id)
    assert at_work and said_by(at_work, environment=True) == []
    # Airflow's own processes were given the connections by their environment; nobody has them on a command line.
    assert said_by(list(psutil.process_iter()), environment=False) == []
    assert holding(lake.warehouse.rglob("*")) == []
    assert holding(Path(tempfile.gettempdir()).glob("index-job-*/*")) == []
    return lake.client.wait("deferring", run_id, timeout=240)


def test_while_a_driver_works_no_process_trigger_or_file_tells_a_secret(run: DagRunReport) -> None:
    assert run.tasks == {"write": "success", "seen": "success"}


def test_afterwards_no_log_database_or_table_tells_one(lake: Lake, run: DagRunReport) -> None:
    assert lake.client.xcom("deferring", run.run_id, "write")["operation"] == "upsert"
    # Logs, drivers' logs, XCom, rendered templates and serialized DAGs: Airflow keeps all in its home and its database.
    home = [path for path in lake.airflow.home.rglob("*") if path.is_file()]
    assert any("index_drivers" in path.parts for path in home)
    assert holding(iter(home)) == []
    rows = lake.database_rows()
    assert "secretive" in rows and not any(secret.decode() in rows for secret in PLANTED)
    assert holding(lake.warehouse.rglob("*")) == []
