"""How far Spark is, asked of a real session while it works."""

from __future__ import annotations

import threading
import time
from typing import Any

from spark_apps.jobs.heartbeat import Reporting, SparkTasks
from spark_apps.jobs.job import Job
from spark_apps.timeline.transactions import CURRENT


def test_the_tasks_of_running_stages_are_counted_with_rate_and_time_left(spark: Any) -> None:
    tasks = SparkTasks()
    tasks.follow(spark)
    slow = "SELECT reflect('java.lang.Thread', 'sleep', bigint(400 + id * 0)) FROM range(0, 12, 1, 12)"
    work = threading.Thread(target=lambda: spark.sql(slow).collect())
    seen = []

    work.start()
    while work.is_alive():
        tasks.ask()
        if (now := tasks.now()) is not None and now[1] == 12:
            seen.append(now)
        time.sleep(0.1)
    work.join()
    tasks.ask()

    assert tasks.now() is None
    done = [one[0] for one in seen]
    assert done == sorted(done) and any(0 < number < 12 for number in done)
    _, total, rate, left = seen[-1]
    assert rate is not None and rate > 0 and left is not None
    assert abs(left - (total - done[-1]) / rate) < 1e-6


def test_an_action_that_counts_by_itself_is_told_in_its_own_numbers() -> None:
    with Reporting(Job("tested", "/t")) as reporting:
        CURRENT.phase("fold file groups", 0, 7)
        assert reporting.now().line() == "fold file groups"
        CURRENT.phase("fold file groups", 3, 7)
        assert reporting.now().line() == "fold file groups: 3 of 7"
