"""Check of a connection's warehouse: by ``obstore`` from here, and by both stacks from a Spark driver.

Each side is asked to do, once, what tables need of it; the answer is a list of what was tried. Files of the check lie
in a folder of their own, which is removed.
"""

from __future__ import annotations

import logging
import time
import uuid
from typing import Any, Protocol

import msgspec
import msgspec.structs

from airflow_provider_index.runners.base import Runner
from airflow_provider_index.runners.choosing import make_runner
from airflow_provider_index.runners.settings import SparkSettings
from spark_apps.jobs.job import Job, Outcome, rebuild_error
from spark_apps.jobs.job_folder import JobFolder
from spark_apps.storage.credentials import hadoop_settings
from spark_apps.storage.errors import InvalidInput, JobFailed, LakeIndexError
from spark_apps.storage.store import Store
from spark_apps.storage.store_check import FOLDER, ROW_STACK, Reach, try_store

PATIENCE_SECONDS = 900.0


class Connection(Protocol):
    """The part of a hook of the connection type ``index_table_store`` that is asked for."""

    table_conn_id: str

    @property
    def warehouse(self) -> str | None: ...

    @property
    def storage_options(self) -> dict[str, Any]: ...

    def spark_settings(self, spark_conn_id: str | None = None) -> SparkSettings: ...


def check_store(hook: Connection) -> list[Reach]:
    """Return what ``obstore`` can do in the warehouse, from this machine.

    :raises InvalidInput: if the connection names no warehouse.
    """
    return try_store(_folder(hook))


def check_spark(hook: Connection, spark_conn_id: str | None = None, log: Any = None) -> list[Reach]:
    """Return what both stacks can do there from a driver of the connection's Spark. Starts Spark.

    :param log: where the driver's lines go.
    """
    store = _folder(hook)
    settings = hook.spark_settings(spark_conn_id)
    job = Job("check_storage", store.uri, storage_options=hook.storage_options, app_name="check storage")
    begun = time.monotonic()
    try:
        runner = make_runner(settings, log or logging.getLogger(__name__))
        outcome = _detached(runner, job, store) if runner.detached else _attached(runner, job)
        if outcome.error is not None:
            raise rebuild_error(outcome.error)
    except LakeIndexError as error:
        return [Reach(ROW_STACK, f"start an app on {settings.master}", False, str(error))]
    spent = sum(one["seconds"] for one in outcome.value)
    return [
        Reach(ROW_STACK, f"start an app on {settings.master}", True, seconds=time.monotonic() - begun - spent),
        *(_from_driver(one) for one in msgspec.convert(outcome.value, list[Reach])),
    ]


def unsupported_options(hook: Connection) -> list[str]:
    """Return storage options that only ``obstore`` understands."""
    return hadoop_settings(str(hook.warehouse or ""), hook.storage_options).unsupported_options


def _folder(hook: Connection) -> Store:
    if hook.warehouse is None:
        raise InvalidInput(f"The connection {hook.table_conn_id!r} names no warehouse.", hint="Fill it in.")
    return Store(f"{hook.warehouse.rstrip('/')}/{FOLDER}/{uuid.uuid4().hex}", hook.storage_options)


def _attached(runner: Runner, job: Job) -> Outcome:
    try:
        handle = runner.submit(job)
        while (status := runner.status(handle)).running:
            time.sleep(0.2)
    finally:
        runner.close()
    if status.outcome is None:
        raise JobFailed(f"The app gave no answer; {status.detail}.")
    return status.outcome


def _detached(runner: Runner, job: Job, store: Store) -> Outcome:
    """Of a driver elsewhere: its answer comes by the store, if the store can be reached from there."""
    job_id = f"check-{uuid.uuid4().hex}"
    folder = JobFolder(store.below("answer"), job_id)
    runner.submit(msgspec.structs.replace(job, detached=True, job_id=job_id, jobs_at=store.below("answer").uri))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (outcome := folder.outcome()) is None:
        if time.monotonic() > deadline:
            raise JobFailed(f"The driver has written nothing to {store.uri} within {PATIENCE_SECONDS:g} s.")
        time.sleep(2)
    folder.remove()
    return outcome


def _from_driver(reach: Reach) -> Reach:
    return msgspec.structs.replace(reach, what=f"{reach.what}, on the driver")
