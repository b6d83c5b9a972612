"""Rows that Spark writes to S3 and reads there: the check of the storage, and random histories of tables."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_given_rows_on_s3_then_both_stacks_agree_and_every_answer_is_another_engine_s() -> None:
    # A process of its own: Spark's jars are those that it begins with.
    done = subprocess.run(
        [sys.executable, "-m", "tests.s3a"],
        env={**os.environ, "HISTORIES": "4", "MINUTES": "5"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "the check of the storage: 19 of 19 ok" in done.stdout
    assert "histories agree, rows on S3 by Spark" in done.stdout
