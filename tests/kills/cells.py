"""The matrix: what may happen, to what kind of work, and what must hold afterwards.

A cell makes a table, starts one kind of work on it, waits until the work's attempt stands in the timeline, stops its
driver for a moment so that the work cannot be over too early, lets the event happen, and then lets Airflow (and, where
a person would, a person) bring it to its end.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from spark_apps.timeline.transactions import live_requests
from tests.kills.ground import Ground, NotSo, wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEFORE, AFTER = 4000, 6000
"""Rows of a table before and after the write."""


@dataclass(frozen=True)
class StagedChanges:
    """One kind of work.

    :param operation: what its commit is called in the log.
    :param task: the task that is hit.
    :param writes: whether it changes the rows.
    """

    name: str
    operation: str
    task: str = "work"
    writes: bool = False


@dataclass(frozen=True)
class Event:
    """One thing that may happen.

    :param mode: whether the task holds its worker meanwhile, is ``deferred``, or holds it for a ``detached`` app.
    :param strike: lets it happen. Given the cell while its driver stands still.
    :param limit: the DAG's limit of time that the event is about.
    :param by_hand: whether a person clears the run afterwards, since Airflow takes it for ended.
    :param holds: what stands still meanwhile: the ``driver``, or its ``jvm``, while the driver goes on to give signs of
        life: slow, not dead.
    :param attempt: which attempt commits, where that is sure: the first where the app outlives the event, the second
        where it must not.
    """

    name: str
    mode: str
    strike: Callable[[Cell], None]
    limit: str = ""
    by_hand: bool = False
    holds: str = "driver"
    attempt: int | None = None


WORKS = {
    work.name: work
    for work in (
        StagedChanges("write", "upsert", writes=True),
        StagedChanges("build", "create_index"),
        StagedChanges("compact", "compact"),
        StagedChanges("rescale", "rescale", task="window.work"),
        StagedChanges("transaction", "transaction", task="together.work", writes=True),
    )
}


class Cell:
    """One meeting of an event and a work."""

    def __init__(self, ground: Ground, spark: SparkSession, event: Event, work: StagedChanges) -> None:
        self.ground = ground
        self.client = ground.airflow.client
        self.spark = spark
        self.event = event
        self.work = work
        self.dag_id = self.dag_of(event, work)
        self.table = f"kills.{event.name}_{work.name}"
        self.run_id = ""
        self.driver: psutil.Process | None = None
        self.held: psutil.Process | None = None

    @staticmethod
    def dag_of(event: Event, work: StagedChanges) -> str:
        """The DAG that does the work, in the way that the event asks for."""
        return "_".join(filter(None, [work.name, event.mode, event.limit]))

    # --- the course of it -----------------------------------------------------------------------------------------

    def run(self) -> str:
        """Everything; returns one line of what was seen. :raises NotSo: naming what does not hold."""
        self.make_table()
        base = self.timeline().head.version
        self.run_id = self.client.trigger(self.dag_id, {"table": self.table})
        self.hold()
        self.event.strike(self)
        self.let_go()
        if self.event.by_hand:
            state = wait_for("the end of the run", self.ended, 180)
            self.nothing_is_left("before the retry")
            # Airflow judges a run by its last task, and of one that was marked it skips the commit of a transaction.
            if state != "failed" and self.task_state() != "failed":
                raise NotSo(f"the run that was ended is {state}, and its task {self.task_state()}")
            self.client.clear(self.dag_id, self.run_id)
        state = wait_for("the end of the run", self.ended, 420)
        if state != "success":
            raise NotSo(self.client.describe(self.client.wait(self.dag_id, self.run_id)))
        self.nothing_is_left("at the end")
        return self.check(base)

    def hold(self) -> None:
        """Waits for the work's attempt and makes it stand still by SIGSTOP."""

        def at_work() -> bool:
            return any(request.operation == self.work.operation for request in live_requests(self.timeline()))

        wait_for(f"an attempt of {self.work.operation}", at_work, 180)
        self.driver = wait_for("a driver", self.ground.driver, 60)
        if self.work.operation == "transaction":
            # Its attempt was begun by a task before; the driver is at work once Spark writes for it.
            data = self.ground.warehouse / self.table.replace(".", "/") / "data"
            wait_for("rows that are being written", lambda: any(data.glob("*together-begin*")), 120)
        self.held = self.driver if self.event.holds == "driver" else self.submit()
        self.signal(signal.SIGSTOP)

    def let_go(self) -> None:
        """Lets it go on, if it still lives."""
        self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        """Sends what is held a signal, if it is there still."""
        if self.held is not None:
            with suppress(psutil.NoSuchProcess):
                self.held.send_signal(number)

    def submit(self) -> psutil.Process:
        """The process of ``spark-submit``, which is the driver's JVM."""
        assert self.driver is not None
        above = [one for one in self.driver.parents() if "SparkSubmit" in " ".join(one.cmdline())]
        if not above:
            raise NotSo("the driver has no spark-submit above it")
        return above[0]

    def supervisor(self) -> psutil.Process:
        """The process that watches over the task's own."""
        supervisor = psutil.Process(self.submit().ppid()).parent()
        if supervisor is None or supervisor.pid == self.ground.airflow.pid:
            raise NotSo("no supervisor was found")
        return supervisor

    def wait_for_second_try(self) -> None:
        """Wait for the job to be taken up where it outlives its task; else another one is begun as soon as it ended."""
        if self.event.mode == "detached":
            wait_for("a try that takes the job up", self.is_taken_up, 120)

    def tries(self) -> int:
        """The number of tries that were begun of the task that is hit."""
        rows = self.client.task_instances(self.dag_id, self.run_id)
        return next(row["try_number"] for row in rows if row["task_id"] == self.work.task)

    def is_taken_up(self) -> bool:
        """Test whether a second try waits for the app of the first."""
        second = self.tries() == 2 and self.task_state() == "running"
        return second and "takes it up" in self.client.log(self.dag_id, self.run_id, self.work.task, 2)

    def committed(self, operation: str) -> bool:
        """Test whether the table has a commit of this operation."""
        return any(commit.operation == operation for commit in self.timeline().commits())

    def story(self) -> str:
        """What Airflow tells of the run: every try of every task, with the end of its log."""
        lines = [self.dag_id]
        for row in self.client.task_instances(self.dag_id, self.run_id) if self.run_id else ():
            for number in range(1, (row["try_number"] or 0) + 1):
                log = self.client.log(self.dag_id, self.run_id, row["task_id"], number)
                lines += [f"--- {row['task_id']}, try {number}: {row['state']}", *log.splitlines()[-25:]]
            if not row["try_number"]:
                lines.append(f"--- {row['task_id']}: {row['state']}")
        return "\n".join(lines)

    # --- what it asks ---------------------------------------------------------------------------------------------

    def timeline(self) -> Any:
        return self.ground.timeline(self.table)

    def ended(self) -> str | None:
        """The run's state once it is a last one."""
        state = self.client.run_state(self.dag_id, self.run_id)
        return state if state in ("success", "failed") else None

    def task_state(self) -> str | None:
        """The state of the task that is hit."""
        return self.client.task_states(self.dag_id, self.run_id).get(self.work.task)

    # --- the table ------------------------------------------------------------------------------------------------

    def make_table(self) -> None:
        from spark_apps import IndexedTable

        table = IndexedTable.create(
            self.spark,
            str(self.ground.warehouse / self.table.replace(".", "/")),
            "id bigint, note string, part string",
            record_key=["id"],
            partition_by=["part"],
            buckets=2,
        )
        rows = "concat('old ', id % 5) AS note, concat('p', id % 3) AS part"
        table.upsert(self.spark.sql(f"SELECT id, {rows} FROM range(0, 3000)"))
        table.create_index("by_note", kind="secondary", columns=["note"], deferred=self.work.name == "transaction")
        table.upsert(self.spark.sql(f"SELECT id, {rows} FROM range(2500, {BEFORE})"))

    def check(self, base: int) -> str:
        """Holds the table against what it must be."""
        from spark_apps import IndexedTable

        table = IndexedTable.load(self.spark, str(self.ground.warehouse / self.table.replace(".", "/")))
        commits = [commit for commit in self.timeline().commits() if commit.version > base]
        mine = [commit for commit in commits if commit.operation == self.work.operation]
        if len(mine) != 1:
            raise NotSo(f"{len(mine)} commits of {self.work.operation}: {[one.operation for one in commits]}")
        if self.event.attempt not in (None, mine[0].attempt):
            raise NotSo(f"the commit is of attempt {mine[0].attempt}, and not of {self.event.attempt}")
        rows = table.read().count()
        if rows != (AFTER if self.work.writes else BEFORE):
            raise NotSo(f"{rows} rows")
        new = table.read(where="note LIKE 'new%'").count()
        if new != (4000 if self.work.writes else 0):
            raise NotSo(f"{new} rows that were written")
        for name in table.indexes:
            report = table.verify(name)
            if not report.ok:
                raise NotSo(f"the index {name}: {report.differences}")
        if self.work.name == "rescale" and {one.buckets for one in table.partitions.values()} != {4}:
            raise NotSo(f"bucket counts: {table.partitions}")
        aborts = sum(commit.operation == "abort" for commit in commits)
        return f"1 {self.work.operation}, {aborts} aborts, {rows} rows, {len(table.indexes)} indexes verified"

    def nothing_is_left(self, when: str) -> None:
        """No process, no attempt, and no window past its deadline."""
        wait_for(f"{when}, an end of all apps (left: {self.ground.apps()})", lambda: not self.ground.apps(), 60)

        def quiet() -> bool:
            timeline = self.timeline()
            # Airflow skips the roll back when a run's time is over: the transaction stays, unseen, for its patience.
            stays = (
                self.work.operation == "transaction" and self.event.limit == "run_limit" and when.startswith("before")
            )
            return (stays or not live_requests(timeline)) and all(
                window.deadline > timeline.clock() for window in timeline.refresh().windows.values()
            )

        wait_for(f"{when}, an end of all attempts and windows", quiet, 60)


# --- what may happen ----------------------------------------------------------------------------------------------


def worker_killed(cell: Cell) -> None:
    cell.supervisor().send_signal(signal.SIGKILL)


def worker_lost(cell: Cell) -> None:
    cell.supervisor().send_signal(signal.SIGKILL)
    wait_for("a try that takes the job up", cell.is_taken_up, 120)


def worker_stopped(cell: Cell) -> None:
    cell.supervisor().send_signal(signal.SIGTERM)
    wait_for("a try that takes the job up", cell.is_taken_up, 120)


def worker_frozen(cell: Cell) -> None:
    """Airflow takes for lost a worker that lives, and tells it so at its next sign of life."""
    supervisor = cell.supervisor()
    supervisor.send_signal(signal.SIGSTOP)
    try:
        wait_for("another try", lambda: cell.tries() > 1 and cell.task_state() == "running", 120)
        if cell.event.mode == "held":
            wait_for("an end of the first attempt", lambda: cell.committed("abort"), 60)
            # Nobody ends its driver for some seconds yet: only the commit keeps it from committing.
            cell.let_go()
            time.sleep(5)
    finally:
        supervisor.send_signal(signal.SIGCONT)
    cell.wait_for_second_try()


def task_marked_failed(cell: Cell) -> None:
    cell.client.mark(cell.dag_id, cell.run_id, cell.work.task, "failed")


def task_cleared(cell: Cell) -> None:
    wanted = "deferred" if cell.event.mode == "deferred" else "running"
    wait_for(f"a task that is {wanted}", lambda: cell.task_state() == wanted, 60)
    cell.client.clear(cell.dag_id, cell.run_id, cell.work.task, include_downstream=True)


def run_marked_failed(cell: Cell) -> None:
    cell.client.patch(f"dags/{cell.dag_id}/dagRuns/{cell.run_id}", {"state": "failed"})


def limit_passes(cell: Cell) -> None:
    states = {"run_limit": lambda: cell.ended() == "failed", "task_limit": lambda: cell.task_state() != "deferred"}
    wait_for("the limit", states[cell.event.limit], 180)


def triggerer_killed(cell: Cell) -> None:
    wait_for("a deferred task", lambda: cell.task_state() == "deferred", 60)
    cell.ground.restart("triggerer")


def scheduler_restarted(cell: Cell) -> None:
    cell.ground.restart("scheduler")


def driver_killed(cell: Cell) -> None:
    assert cell.driver is not None
    cell.driver.send_signal(signal.SIGKILL)


def parent_killed(cell: Cell) -> None:
    assert cell.driver is not None
    parent = cell.driver.parent()
    if parent is None:
        raise NotSo("the driver has no parent")
    parent.send_signal(signal.SIGKILL)


def executor_killed(cell: Cell) -> None:
    executors = [one for one in psutil.process_iter(["cmdline"]) if _is_executor(one)]
    if not executors:
        raise NotSo("no executor was found")
    cell.let_go()
    time.sleep(0.2)
    for executor in executors:
        with suppress(psutil.NoSuchProcess):
            executor.send_signal(signal.SIGKILL)


# --- what may happen to a worker of Celery ------------------------------------------------------------------------


def celery_stopped(cell: Cell) -> None:
    """A warm shutdown: the worker takes nothing more, and ends when what it runs has ended."""
    worker = cell.ground.worker()
    worker.send_signal(signal.SIGTERM)
    cell.ground.start_worker()
    time.sleep(3)
    if not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE or cell.ground.driver() != cell.driver:
        raise NotSo("the worker did not wait for the task that it ran")
    cell.let_go()
    wait_for("the end of the worker", lambda: worker.status() == psutil.STATUS_ZOMBIE, 120)


def celery_evicted(cell: Cell) -> None:
    """All processes of the worker's group are asked to end, as by a container's init."""
    os.killpg(cell.ground.worker().pid, signal.SIGTERM)
    cell.ground.start_worker()
    cell.wait_for_second_try()


def celery_quit(cell: Cell) -> None:
    """A cold shutdown: the worker ends its processes, and gives back what they ran."""
    cell.ground.worker().send_signal(signal.SIGQUIT)
    cell.ground.start_worker()
    cell.wait_for_second_try()


def celery_killed(cell: Cell) -> None:
    """All of the worker is gone at once, and of what its tasks have started nothing."""
    worker = cell.ground.worker()
    apps = cell.ground.apps()
    for process in (worker, *worker.children(recursive=True)):
        if process not in apps:
            with suppress(psutil.NoSuchProcess):
                process.kill()
    cell.ground.start_worker()
    cell.wait_for_second_try()


def celery_delivered_again(cell: Cell) -> None:
    """Redis hands the task out a second time, since nobody has acknowledged it for the time that it is hidden."""
    log = cell.ground.airflow.log_file
    seen = log.read_text().count(_DELIVERED_AGAIN)
    wait_for("a second delivery", lambda: log.read_text().count(_DELIVERED_AGAIN) > seen, 120)


_DELIVERED_AGAIN = "already running elsewhere, ignoring redelivered message"


def _is_executor(process: psutil.Process) -> bool:
    return any("CoarseGrainedExecutorBackend" in word for word in process.info["cmdline"] or [])


EVENTS = {
    event.name: event
    for event in (
        Event("worker_killed", "held", worker_killed),
        Event("worker_lost", "detached", worker_lost, holds="jvm", attempt=1),
        Event("worker_stopped", "detached", worker_stopped, holds="jvm", attempt=1),
        Event("worker_frozen", "held", worker_frozen, attempt=2),
        Event("worker_frozen_detached", "detached", worker_frozen, holds="jvm", attempt=1),
        Event("marked_failed", "held", task_marked_failed, by_hand=True),
        Event("marked_failed_deferred", "deferred", task_marked_failed, by_hand=True),
        Event("cleared_running", "held", task_cleared),
        Event("cleared_deferred", "deferred", task_cleared),
        Event("run_marked_failed", "deferred", run_marked_failed, by_hand=True),
        Event("run_limit", "deferred", limit_passes, limit="run_limit", by_hand=True, holds="jvm"),
        Event("task_limit", "deferred", limit_passes, limit="task_limit", holds="jvm"),
        Event("task_limit_held", "held", limit_passes, limit="task_limit", holds="jvm"),
        Event("triggerer_killed", "deferred", triggerer_killed),
        Event("scheduler_restarted", "held", scheduler_restarted),
        Event("driver_killed", "deferred", driver_killed),
        Event("driver_killed_held", "held", driver_killed),
        Event("executor_killed", "held", executor_killed),
        Event("parent_killed", "deferred", parent_killed),
    )
}

OF_CELERY = {
    event.name: event
    for event in (
        Event("celery_stopped", "held", celery_stopped, attempt=1),
        Event("celery_stopped_detached", "detached", celery_stopped, holds="jvm", attempt=1),
        Event("celery_evicted", "held", celery_evicted, attempt=2),
        Event("celery_evicted_detached", "detached", celery_evicted, holds="jvm", attempt=1),
        Event("celery_quit", "held", celery_quit, attempt=2),
        Event("celery_quit_detached", "detached", celery_quit, holds="jvm", attempt=1),
        Event("celery_killed", "held", celery_killed, attempt=2),
        Event("celery_killed_detached", "detached", celery_killed, holds="jvm", attempt=1),
        Event("celery_delivered_again", "held", celery_delivered_again, attempt=1),
        Event("celery_delivered_again_detached", "detached", celery_delivered_again, holds="jvm", attempt=1),
        EVENTS["worker_frozen"],
        EVENTS["worker_frozen_detached"],
        EVENTS["triggerer_killed"],
    )
}
"""What may happen where a worker of Celery runs the tasks."""
