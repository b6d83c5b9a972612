"""Parsing a DAG that uses everything stays light."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_importing_all_that_dags_use_imports_neither_pyspark_nor_pyarrow_nor_pandas() -> None:
    code = """
import sys
import airflow_provider_index.operators, airflow_provider_index.sensors, airflow_provider_index.triggers
import airflow_provider_index.task_groups, airflow_provider_index.hooks, airflow_provider_index.runners
print(sorted({name.split(".")[0] for name in sys.modules} & {"pyspark", "pyarrow", "pandas", "py4j",
"numpy"}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip().splitlines()[-1] == "[]"
