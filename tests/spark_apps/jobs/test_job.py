"""The two documents between a task and its app, and how they travel."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import msgspec
import pytest

from spark_apps.jobs.job import (
    FORMAT,
    ErrorDocument,
    Job,
    Outcome,
    TaskGone,
    describe_error,
    encode_job,
    read_outcome,
    rebuild_error,
    receive_job,
    write_outcome,
)
from spark_apps.storage.errors import (
    AlreadyCommitted,
    CommitUndone,
    ConcurrentWrite,
    EnvironmentMismatch,
    JobFailed,
    LakeIndexError,
)
from spark_apps.timeline.model import Receipt

JOB = Job("build_index", "/t", {"name": "by_city"}, storage_options={"key": "s3cret"}, txn_id="a.b", window=4)


def test_a_job_in_a_file_is_read_and_the_file_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "job"
    path.write_bytes(encode_job(JOB))

    assert receive_job(path) == (JOB, None)
    assert not path.exists()


def test_a_job_through_a_pipe_comes_with_a_lifeline_that_ends_with_the_other_side(tmp_path: Path) -> None:
    path = tmp_path / "job"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    big = msgspec.structs.replace(JOB, arguments={"sql": "x" * 200_000})
    thread = threading.Thread(target=os.write, args=(writer, encode_job(big)))
    thread.start()

    job, lifeline = receive_job(path)
    thread.join()

    assert job == big
    assert lifeline is not None
    assert not path.exists()
    os.close(writer)
    os.set_blocking(lifeline, True)
    assert os.read(lifeline, 1) == b""
    os.close(lifeline)


def test_a_pipe_whose_task_has_gone_does_not_hold_the_app_up(tmp_path: Path) -> None:
    path = tmp_path / "job"
    os.mkfifo(path)

    with pytest.raises(TaskGone):
        receive_job(path)


def test_a_job_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job"
    path.write_bytes(encode_job(msgspec.structs.replace(JOB, format=FORMAT + 1)))

    with pytest.raises(EnvironmentMismatch, match=f"format {FORMAT + 1}.*same version"):
        receive_job(path)


def test_an_outcome_is_only_readable_by_its_owner_and_comes_back_whole(tmp_path: Path) -> None:
    path = tmp_path / "outcome"
    assert read_outcome(path) is None

    write_outcome(str(path), Outcome("receipt", {"version": 3}))

    assert read_outcome(path) == Outcome("receipt", {"version": 3})
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "error",
    [
        ConcurrentWrite("Somebody was first.", hint="Again."),
        AlreadyCommitted("Done.", Receipt(3, "t", "upsert"), outcome="Nothing was written again."),
        CommitUndone("Undone.", Receipt(3, "t", "upsert")),
        JobFailed("Ended.", outcome=""),
    ],
)
def test_an_error_of_ours_crosses_as_itself(error: LakeIndexError) -> None:
    document = msgspec.json.decode(msgspec.json.encode(describe_error(error)), type=ErrorDocument)
    rebuilt = rebuild_error(document)

    assert type(rebuilt) is type(error)
    assert str(rebuilt) == str(error)


@pytest.mark.parametrize("name", ["ValueError", "Any", "annotations", "__class__", "LookupError"])
def test_no_error_document_makes_anything_but_an_error_of_ours(name: str) -> None:
    rebuilt = rebuild_error(ErrorDocument(name, "boom"))

    assert type(rebuilt) is JobFailed
    assert "boom" in str(rebuilt)
