"""Jobs as the operators make them, run by any runner, and what the tests ask of the tables afterwards."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_index.runners.base import JobStatus, Runner
from airflow_provider_index.runners.choosing import make_runner
from airflow_provider_index.runners.settings import SparkSettings
from spark_apps.jobs.job import Job, Outcome, rebuild_error
from spark_apps.jobs.job_folder import JobFolder
from spark_apps.storage.store import Store

CREATE = {
    "schema": "id bigint, dt string, city string, ts bigint",
    "record_key": ["id"],
    "partition_by": ["dt"],
    "ordering_column": "ts",
    "buckets": 2,
}
CITIES = ("oslo", "rome", "lima")


def write_rows(path: Path, ids: range, ts: int) -> str:
    """A Parquet file of rows for the table of :data:`CREATE`; returns its path."""
    table = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "dt": [f"2026-11-{1 + n % 2:02d}" for n in ids],
            "city": [CITIES[(n + ts) % 3] for n in ids],
            "ts": pa.array([ts] * len(ids), pa.int64()),
        }
    )
    pq.write_table(table, path)
    return str(path)


def upsert(path: str, create: bool = False) -> dict[str, Any]:
    """Arguments of ``write_table`` for one upsert of a file."""
    source = {"format": "parquet", "paths": [path], "options": {}}
    batch = {"operation": "upsert"}
    return {"source": source, "batches": [batch], **({"create": CREATE} if create else {})}


def run(settings: SparkSettings, program: str, table: Path | str, arguments: Mapping[str, Any], **fields: Any) -> Any:
    """Runs an app to its end; returns what it answered. :raises LakeIndexError: the app's own error."""
    detached = fields.pop("detached", False)
    runner = make_runner(
        settings, logging.getLogger("tests.spark"), detached=detached, runner=fields.pop("runner", None)
    )
    job = Job(program, str(table), dict(arguments), app_name="tests", **fields)
    if runner.detached:
        return _detached(runner, job)
    try:
        status = wait(runner, runner.submit(job))
    finally:
        runner.close()
    assert status.outcome is not None, status.detail
    return answered(status.outcome)


def wait(runner: Runner, handle: str, seconds: float = 150) -> JobStatus:
    deadline = time.monotonic() + seconds
    while (status := runner.status(handle)).running:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return status


def answered(outcome: Outcome) -> Any:
    if outcome.error is not None:
        raise rebuild_error(outcome.error)
    return outcome.value


def _detached(runner: Runner, job: Job, seconds: float = 150) -> Any:
    import msgspec.structs

    job = msgspec.structs.replace(job, detached=True, job_id=f"job-{time.time_ns():x}", jobs_at=job.table)
    folder = JobFolder(Store(job.table, job.storage_options), str(job.job_id))
    handle = runner.submit(job)
    runner.close()
    deadline = time.monotonic() + seconds
    while (outcome := folder.outcome()) is None:
        assert time.monotonic() < deadline, runner.status(handle)
        time.sleep(0.1)
    return answered(outcome)
