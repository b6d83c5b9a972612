"""Parsing a DAG that uses everything stays light."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

# One process serves all of them, and takes longer than they do.
pytestmark = pytest.mark.by_turn(4, together=9)

AIRFLOW = """
from airflow.sdk import BaseHook, BaseOperator, BaseSensorOperator, TaskGroup
try:
    from airflow.sdk import conf
except ImportError:  # before Airflow 3.2
    from airflow.configuration import conf
"""
DAG_FILE = """
import airflow_provider_index.operators, airflow_provider_index.sensors
import airflow_provider_index.task_groups, airflow_provider_index.hooks
"""
PARSED = ("operators", "sensors", "task_groups", "hooks")
BESIDE = {
    *(
        "airflow_version",
        "arguments",
        "import_shadowing",
        "compat",
        "connected",
        "documentation",  # a task's text is made with the task
        "failures",
        "identity",
        "links",
        "masking",  # secrets in a DAG's own arguments are hidden from when it is parsed
        "reporting",
    ),  # of the provider
    *(
        "moved",
        "version",
        "storage",
        "storage.errors",
        "storage.secrets",
        "storage.supported",
        "timeline",
        "timeline.limits",  # of the apps
        "timeline.operations",
    ),
}


def modules_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stdout.strip().splitlines()[-1]))


@pytest.fixture(scope="module")
def parsed() -> set[str]:
    """What the file adds to what Airflow imports anyway."""
    return modules_after(DAG_FILE) - modules_after(AIRFLOW)


def test_importing_all_that_dags_and_triggerers_use_imports_neither_pyspark_nor_pyarrow_nor_pandas() -> None:
    loaded = modules_after(f"{DAG_FILE}\nimport airflow_provider_index.triggers, airflow_provider_index.runners")

    assert not {name.split(".")[0] for name in loaded} & {"pyspark", "pyarrow", "pandas", "py4j", "numpy"}
    # Its hook alone takes longer than all of ours: it is imported when a task submits.
    of_spark = ("airflow.providers.apache.spark.hooks", "airflow.providers.apache.spark.operators")
    assert not [name for name in loaded if name.startswith(of_spark)]


def test_parsing_a_dag_file_imports_nothing_that_only_a_running_task_needs(parsed: set[str]) -> None:
    ours = {name.partition(".")[2] for name in parsed if name.startswith(("airflow_provider_index.", "spark_apps."))}
    more = {name for name in ours if name.partition(".")[0] not in PARSED} - BESIDE

    assert not more, "import it in the method that uses it: see airflow_provider_index/operators/__init__.py"


def test_parsing_a_dag_file_imports_no_library_beside_airflow(parsed: set[str]) -> None:
    more = {name.split(".")[0] for name in parsed}

    assert more - set(sys.stdlib_module_names) <= {"airflow", "airflow_provider_index", "spark_apps"}
