"""The wheels in an empty environment of this row, by its Python and its pins and without development extras: all public
names, a table written and read, the quickstart, and what Airflow says of the provider."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_apps.jobs.environment import java_home
from spark_apps.version import __version__
from tests.matrix.installing import CONSTRAINTS
from tests.packaging.building import build, copy_sources, install

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]

TABLE = """
import sys
from pyspark.sql import SparkSession
from spark_apps import IndexedTable
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
table = IndexedTable.create(spark, sys.argv[1], "id bigint, city string", ["id"], buckets=2)
table.upsert(spark.createDataFrame([(n, f"c{n % 3}") for n in range(30)], "id bigint, city string"))
table.create_index("by_city", kind="secondary", columns=["city"])
print(table.read("city = 'c1'").count(), table.verify("by_city").ok, table.version)
"""

NAMES = """
import importlib, sys
for module in ("operators", "sensors", "triggers", "hooks", "task_groups", "runners", "testing", "maintenance"):
    package = importlib.import_module(f"airflow_provider_index.{module}")
    for name in package.__all__:
        assert getattr(package, name) is not None, name
import spark_apps
for name in spark_apps.__all__:
    assert getattr(spark_apps, name) is not None, name
print(sys.modules["spark_apps"].__file__)
"""

Run = Callable[..., str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run the Python of the empty environment; returns what it printed."""
    provider, lake = build(copy_sources(tmp_path_factory.mktemp("source")))
    home, pins = tmp_path_factory.mktemp("home"), CONSTRAINTS / f"{Path(sys.prefix).name}.txt"
    row = [f"{name}=={importlib.metadata.version(name)}" for name in ("apache-airflow", "pyspark")]
    python = install(tmp_path_factory.mktemp("empty"), lake.wheel, f"{provider.wheel}[spark]", *row, constraints=pins)

    def run(*arguments: str) -> str:
        variables = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW", "PYTHON", "PYSPARK", "SPARK"))}
        variables |= {
            "AIRFLOW_HOME": str(home / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "JAVA_HOME": str(java_home()),
            "PATH": f"{python.parent}:{os.environ['PATH']}",
            "PYSPARK_PYTHON": str(python),
        }
        done = subprocess.run([python, *arguments], cwd=home, env=variables, capture_output=True, text=True)
        assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
        return done.stdout.strip()

    return run


def test_every_public_name_is_imported_from_the_wheel(run: Run) -> None:
    assert "/site-packages/spark_apps/" in run("-c", NAMES)


def test_a_table_is_written_indexed_and_read(run: Run, tmp_path: Path) -> None:
    assert run("-c", TABLE, str(tmp_path / "t")).splitlines()[-1] == "10 True 2"


def test_the_quickstart_runs(run: Run) -> None:
    assert "Verify" in run("-m", "spark_apps", "quickstart")


def test_airflow_knows_the_provider_and_its_version(run: Run) -> None:
    output = run("-m", "airflow", "providers", "get", "airflow-provider-index", "--full", "--output", "json")

    assert f'"{__version__}"' in output and "airflow_provider_index.operators.indexes" in output
