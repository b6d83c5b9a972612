"""Where the kills happen: one Airflow with short timeouts, a table for each, and the processes that may be hit."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from airflow_provider_index.testing import LocalAirflow
from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline
from tests.airflow.database import database
from tests.airflow.executor import CELERY_WORKER, executor
from tests.spark.local import SMALL

DAGS = Path(__file__).parent / "dags"
PROGRAMS = ("write_table.py", "build_index.py", "refresh_index.py", "compact_index.py", "rescale_buckets.py")

_SPARK = {**SMALL, "spark.sql.shuffle.partitions": "2"}
_TIMEOUTS = {
    # A worker that was killed is noticed after this, not after five minutes; so are a scheduler and a triggerer.
    "scheduler__task_instance_heartbeat_timeout": "20",
    "scheduler__task_instance_heartbeat_timeout_detection_interval": "5",
    "scheduler__task_instance_heartbeat_sec": "3",
    "scheduler__scheduler_health_check_threshold": "15",
    "scheduler__scheduler_heartbeat_sec": "2",
    "scheduler__orphaned_tasks_check_interval": "15",
    "scheduler__trigger_timeout_check_interval": "5",
    "triggerer__job_heartbeat_sec": "2",
    "triggerer__triggerer_health_check_threshold": "15",
}
# What a worker of Celery has not acknowledged after this is handed out once more; a day, as Airflow has it by default,
# no test waits for.
_OF_CELERY = {"celery_broker_transport_options__visibility_timeout": "30"}


class NotSo(AssertionError):
    """What a cell insists on did not come about."""


def wait_for(what: str, condition: Callable[[], Any], seconds: float = 90) -> Any:
    """The first true answer. :raises NotSo: if there was none in time."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise NotSo(f"{what}: not within {seconds:g} s")
        time.sleep(0.1)
    return answer


@dataclass
class Ground:
    """The Airflow that runs, and its warehouse."""

    airflow: LocalAirflow
    warehouse: Path

    # --- tables -------------------------------------------------------------------------------------------------

    def timeline(self, table: str) -> Timeline:
        """A table's timeline, read anew."""
        return Timeline.load(Store(self.warehouse / table.replace(".", "/")))

    # --- processes ----------------------------------------------------------------------------------------------

    def processes(self, *words: str) -> list[psutil.Process]:
        """Processes of this Airflow, by its home in their environment, whose command holds all the words."""
        matching = []
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
                if process.environ().get("AIRFLOW_HOME") != str(self.airflow.home):
                    continue
                command = " ".join(process.cmdline())
                if all(word in command for word in words):
                    matching.append(process)
        return matching

    def apps(self) -> list[psutil.Process]:
        """Everything of Spark that tasks have started: submits, JVMs, drivers."""
        return [one for one in self.processes() if "SparkSubmit" in (said := " ".join(_command(one))) or _program(said)]

    def driver(self) -> psutil.Process | None:
        """The Python driver of the app that runs."""
        return next((one for one in self.apps() if "SparkSubmit" not in " ".join(_command(one))), None)

    def restart(self, part: str) -> None:
        """Kills a part of Airflow by -9, the ``scheduler`` or the ``triggerer``, and starts it again."""
        for process in wait_for(f"a running {part}", lambda: self._parts(part)):
            process.send_signal(signal.SIGKILL)
        self.airflow.start_part(part)

    def start_worker(self) -> None:
        """Start another worker of Celery."""
        self.airflow.start_part(CELERY_WORKER)

    def worker(self) -> psutil.Process:
        """The worker of Celery that was started last, whose processes run the tasks."""
        return psutil.Process(self.airflow.parts[CELERY_WORKER])

    def _parts(self, part: str) -> list[psutil.Process]:
        """The processes of a part of Airflow. What the scheduler runs is not the scheduler."""
        pids = [*filter(None, [self.airflow.pid]), *self.airflow.parts.values()]
        roots = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
        near = [process for root in roots for process in (root, *root.children())]
        parts = [process for process in near if f"airflow {part}" in " ".join(_command(process)).replace("/", " ")]
        return parts + [
            child for process in parts if part == "triggerer" for child in process.children() if child not in parts
        ]

    def close(self) -> None:
        """Ends every app."""
        for process in self.apps():
            with suppress(psutil.NoSuchProcess):
                process.kill()


def _program(command: str) -> bool:
    """Whether a command runs one of the bundled apps."""
    return any(f"/{program} " in command for program in PROGRAMS)


def _command(process: psutil.Process) -> list[str]:
    try:
        return [*process.cmdline(), ""]
    except psutil.Error:
        return ["", ""]


@contextmanager
def ground(
    folder: Path, master: str = "local[2]", conf: Mapping[str, str] | None = None, *, celery: bool = False
) -> Iterator[Ground]:
    """An Airflow that runs the DAGs of this folder.

    :param folder: for the warehouse.
    :param master: where the apps run, and ``conf`` what they need for it.
    :param celery: run the tasks by a worker of Celery, which does not work beside SQLite.
    """
    warehouse = folder / "warehouse"
    warehouse.mkdir(parents=True)
    connections = {
        "lake": {"conn_type": "index_table_store", "extra": {"warehouse": str(warehouse), "spark_conn_id": "here"}},
        "here": {
            "conn_type": "spark",
            "host": master,
            "extra": {"conf": {**_SPARK, **(conf or {})}, "driver-memory": "1g"},
        },
    }
    with (
        database("postgresql" if celery else None) as where,
        executor("celery" if celery else "local") as tasks,
        LocalAirflow(DAGS, connections=connections, **tasks.settings({**_TIMEOUTS, **_OF_CELERY, **where})) as airflow,
    ):
        begun = Ground(airflow, warehouse)
        try:
            yield begun
        finally:
            begun.close()
