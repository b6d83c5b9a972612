"""What importing every operator, sensor and task group adds to a DAG file that imports Airflow anyway.

Each run is a fresh process, as the first parse of a file is; what is counted is time on the processor, since other work
on the machine changes that little. The modules are compiled, as those of an installed package are.
"""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import Namespace

from benchmarks.measure import Timing
from benchmarks.report import Report

AIRFLOW = "from airflow.sdk import DAG, Asset, BaseOperator, BaseSensorOperator, task, task_group"
PROVIDER = """
from airflow_provider_index.operators import *
from airflow_provider_index.sensors import *
from airflow_provider_index.task_groups import *
"""
_TIMED = """
import time
began = time.process_time()
{airflow}
between = time.process_time()
{ours}
print(between - began, time.process_time() - between)
"""


def run(report: Report, arguments: Namespace) -> None:
    """Prints one table."""
    samples = [_one() for _ in range(arguments.repeats + 1)][1:]
    airflow, provider = zip(*samples, strict=True)
    timings = [Timing("Airflow's own", airflow), Timing("every operator, sensor and task group, on top", provider)]
    report.timings("Imports of a DAG file", timings, "Airflow's own")
    report.verdict(11, "a DAG file with every operator, sensor and task group", 1000 * timings[1].median)


def _one() -> tuple[float, float]:
    script = _TIMED.format(airflow=AIRFLOW, ours=PROVIDER)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    airflow, provider = done.stdout.split()[-2:]
    return float(airflow), float(provider)
