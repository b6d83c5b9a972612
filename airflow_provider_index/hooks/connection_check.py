"""Check of a connection's warehouse: by ``obstore`` from this machine, and by both stacks from a Spark driver.

Each side is asked to do, once, what tables need of it; the answer is a list of what was tried. Files of the check are
in a folder of their own, which is removed.
"""

from __future__ import annotations

import logging
import time
import uuid
from typing import TYPE_CHECKING, Any

import msgspec
import msgspec.structs

from airflow_provider_index.runners.base import Runner
from airflow_provider_index.runners.choosing import make_runner
from spark_apps.jobs.job import Job, Outcome, rebuild_error
from spark_apps.jobs.job_folder import JobFolder
from spark_apps.storage.credentials import hadoop_settings
from spark_apps.storage.errors import JobFailed, LakeIndexError
from spark_apps.storage.store import Store
from spark_apps.storage.store_check import FOLDER, ROW_STACK, Reach, try_store

if TYPE_CHECKING:
    from airflow_provider_index.hooks.table_store import TableStoreHook

PATIENCE_SECONDS = 900.0


def check_store(hook: TableStoreHook) -> list[Reach]:
    """Return what ``obstore`` can do in the warehouse, from this machine.

    :raises InvalidInput: if the connection names no warehouse.
    """
    return try_store(_folder(hook))


def check_spark(hook: TableStoreHook, spark_conn_id: str | None = None, log: Any = None) -> list[Reach]:
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
        *(
            msgspec.structs.replace(one, what=f"{one.what}, on the driver")
            for one in msgspec.convert(outcome.value, list[Reach])
        ),
    ]


def unsupported_options(hook: TableStoreHook) -> list[str]:
    """Return storage options that only ``obstore`` understands."""
    return hadoop_settings(str(hook.warehouse or ""), hook.storage_options).unsupported_options


def _folder(hook: TableStoreHook) -> Store:
    warehouse: Store = hook.get_conn()
    return warehouse.below(f"{FOLDER}/{uuid.uuid4().hex}")


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
