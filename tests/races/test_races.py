"""Real processes race on one table, on local disk and on S3: no version is lost, none written twice, none missing.

A plain run lets 8 processes make a few commits each; ``make races`` (``RACES=full``) 200 each. Both print counts and
speed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from spark_apps.storage.store import Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import DATA_TREE, Field, TableDefinition
from tests.simulation.s3 import BUCKET, s3_server

pytestmark = pytest.mark.by_turn(8)

PROCESSES = 8
FULL = os.environ.get("RACES") == "full"
COMMITS = {"local disk": 200 if FULL else 25, "S3": 200 if FULL else 6}


@pytest.fixture(params=["local disk", "S3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str, dict[str, str]]]:
    if request.param == "local disk":
        yield request.param, str(tmp_path / "table"), {}
    else:
        with s3_server() as options:
            yield request.param, f"s3://{BUCKET}/db/table", options


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_processes_that_race_all_get_their_commits_in(
    place: tuple[str, str, dict[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    name, uri, options = place
    commits = COMMITS[name]
    store = Store(uri, options)
    create_table(store, TableDefinition("t", (Field("k", "string"),), ("k",)), txn_id="create")
    versions, seconds = race(store, commits)
    expected = {f"writer{p}.{n}" for p in range(PROCESSES) for n in range(commits)}
    assert versions.keys() == expected
    timeline = Timeline.load(store)
    log = list(timeline.commits())
    assert [commit.version for commit in log] == list(range(1 + PROCESSES * commits))
    assert {commit.txn_id: commit.version for commit in log[1:]} == versions
    assert all(earlier.instant < later.instant for earlier, later in pairwise(log))
    files = timeline.head.files(DATA_TREE)
    assert {store.get(file.path).decode() for file in files} == expected
    assert len(files) == len(expected)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{name}: {PROCESSES} processes x {commits} commits: {len(log) - 1} versions, {len(expected)} "
            f"transactions, each once; {len(expected) / seconds:.0f} commits/s\n"
        )


def race(store: Store, commits: int) -> tuple[dict[str, int], float]:
    """Starts the processes, lets them go at once, and gathers the versions that each got."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.simulation.racing", store.uri, json.dumps(store.options)]
    racers = [
        subprocess.Popen([*command, f"writer{number}", str(commits)], cwd=root, stdout=subprocess.PIPE, text=True)
        for number in range(PROCESSES)
    ]
    try:
        end = time.monotonic() + 120
        while len(store.list("ready")) < PROCESSES:
            assert time.monotonic() < end, "The processes do not start."
            time.sleep(0.05)
        begun = time.monotonic()
        store.put("go", b"")
        outputs = [racer.communicate()[0] for racer in racers]
        seconds = time.monotonic() - begun
        assert all(racer.returncode == 0 for racer in racers)
    finally:
        for racer in racers:
            if racer.poll() is None:
                racer.kill()
                racer.wait()
    versions: dict[str, int] = {}
    for output in outputs:
        versions |= json.loads(output)
    return versions, seconds
