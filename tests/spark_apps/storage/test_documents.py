"""Documents that several threads read for the first time at once."""

from __future__ import annotations

import subprocess
import sys

AT_ONCE = """
import sys, threading
import msgspec
from spark_apps.job import Outcome
from spark_apps.timeline import jobs, maintenance, model

sys.setswitchinterval(1e-6)
KINDS = (model.Commit, model.Requested, model.StageManifest, maintenance.LastPlans, jobs.Beat, Outcome)
ready = threading.Barrier(24)

def read(kind):
    ready.wait()
    try:
        msgspec.json.decode(b"{}", type=kind)
    except msgspec.DecodeError:
        pass

threads = [threading.Thread(target=read, args=(KINDS[number % len(KINDS)],)) for number in range(24)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_given_threads_that_read_a_kind_for_the_first_time_at_once_then_the_process_lives() -> None:
    # Where the kinds were not looked through before, about one process in eight ends by a segmentation fault.
    ended = [subprocess.run([sys.executable, "-c", AT_ONCE], check=False).returncode for _ in range(20)]

    assert set(ended) == {0}
