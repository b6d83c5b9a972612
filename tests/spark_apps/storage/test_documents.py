"""Documents that several threads read for the first time at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

AT_ONCE = """
import sys, threading
import msgspec
from spark_apps.timeline import log, maintenance_records, model

sys.setswitchinterval(1e-6)
COMMIT = {"version": 1, "instant": "20261121000000000", "operation": "upsert", "txn_id": "t", "attempt": 1}
FILE = {"action": "add", "tree": "data", "partition": "", "group": "0", "path": "p", "kind": "base"}
BODY = msgspec.json.encode({**COMMIT, "actions": [{**FILE, "rows": 1, "bytes": 1}]})
KINDS = (model.Commit, model.Requested, model.StageManifest, log._CheckpointHeader, maintenance_records.LastPlans)
ready = threading.Barrier(24)

def read(kind):
    ready.wait()
    try:
        msgspec.json.decode(BODY if kind is model.Commit else b"{}", type=kind)
    except msgspec.DecodeError:
        pass

threads = [threading.Thread(target=read, args=(KINDS[number % len(KINDS)],)) for number in range(24)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.by_turn(8)
def test_given_threads_that_read_a_kind_for_the_first_time_at_once_then_the_process_lives() -> None:
    # Where the kinds were not looked through before, about one process in six ends by a segmentation fault.
    ended = [subprocess.run([sys.executable, "-c", AT_ONCE], check=False).returncode for _ in range(20)]

    assert set(ended) == {0}
