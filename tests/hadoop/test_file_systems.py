"""Tables on ``hdfs://`` and ``viewfs://``: the store's calls, races, random histories, and what is refused there."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_given_file_systems_of_hadoop_then_tables_live_there_and_each_version_is_written_once() -> None:
    # A process of its own: its Spark begins with a file system that is like HDFS.
    done = subprocess.run(
        [sys.executable, "-m", "tests.hadoop"],
        env={**os.environ, "HISTORIES": "1", "RACERS": "2"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert done.stdout.count("processes x 8 commits: 16 versions, each once") == 2
    assert "3 histories agree on file systems of Hadoop" in done.stdout
    assert "refused: the data source in Python workers, a registered source, a process without Spark" in done.stdout
