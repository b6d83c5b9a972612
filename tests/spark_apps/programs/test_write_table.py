"""The program that writes a table: what Spark refuses before it runs is short and final, and says what was made."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from spark_apps.jobs import program
from spark_apps.jobs.job import Job
from spark_apps.programs.write_table import write_table
from spark_apps.storage.errors import InvalidInput
from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline

pytestmark = pytest.mark.spark

CREATE = {"schema": "id bigint", "record_key": ["id"], "buckets": 1}
BATCH = {"operation": "upsert", "sql": None, "where": None, "deleted": None, "partitions": None}


def job(table: Path, source: Path | None = None, **batch: Any) -> Job:
    read = {"paths": [str(source)], "format": "parquet", "options": {}, "schema": None} if source else None
    arguments = {"source": read, "create": CREATE, "batches": [{**BATCH, **batch}], "several": False}
    return Job("write_table", str(table), arguments)


def test_given_what_spark_refuses_then_it_is_a_mistake_of_the_caller_and_says_what_was_made(
    spark: Any, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match=r"Spark refuses the source: .*gone"):
        write_table(spark, job(tmp_path / "t", tmp_path / "gone"))
    assert not (tmp_path / "t").exists()

    with pytest.raises(InvalidInput, match=r"Spark refuses the query: .*nope") as refused:
        write_table(spark, job(tmp_path / "t", sql="SELECT nope FROM range(1)"))
    assert "The table was created; this write changed nothing." in str(refused.value)
    assert "at org.apache" not in str(refused.value)
    assert Timeline.load(Store(tmp_path / "t")).head.version == 0


def test_given_an_error_that_was_not_foreseen_then_the_log_has_its_place_in_python_and_no_stack_of_java(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def work(session: Any, _job: Job) -> Any:
        return session.sql("SELECT raise_error('so it goes')").collect()

    monkeypatch.setattr(program, "start_session", lambda _job: spark)
    monkeypatch.setattr(program, "_stop", lambda _session, _job: None)
    with caplog.at_level(logging.INFO, logger="spark_apps"):
        assert program.run(work, job(tmp_path / "t")) == 1

    assert "so it goes" in caplog.text and "in work" in caplog.text
    assert "at org.apache" not in caplog.text
    assert len(caplog.text.splitlines()) < 40
