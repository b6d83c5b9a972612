"""Which environments there are, what each is made of, and which suites run there.

A line of ``ENVIRONMENTS`` is all that a new one takes: its pins (``constraints/<name>.txt``) are written by its first
set-up.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Suite:
    """Tests that are counted together.

    :param paths: of pytest, files or folders. :param markers: which tests of these, as pytest's ``-m`` has it.
    :param module: what is run by ``python -m`` where it is no run of pytest; its exit status is the result.
    """

    paths: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    markers: str = "not unit and not heavy"
    module: tuple[str, ...] = ()


@dataclass(frozen=True)
class Environment:
    """An environment: ``extras`` of this package, and what is asked of others beside them.

    :param python: such as ``3.11``. :param versions: the distributions whose releases the tables name.
    """

    name: str
    python: str
    requirements: tuple[str, ...]
    suites: tuple[str, ...]
    extras: tuple[str, ...] = ("test",)
    versions: tuple[str, ...] = ("pyspark", "pyspark-client", "apache-airflow")


_QUERIES, _SQL = ("tests/spark_apps/optimizer",), ("tests/spark_apps/sql",)

SUITES = {
    "tables": Suite(
        ("tests/spark_apps", "tests/compatibility", "tests/hostile", "tests/pairs", "tests/races"), _QUERIES + _SQL
    ),
    "SQL": Suite(_SQL),
    "queries": Suite(_QUERIES),
    "histories": Suite(("tests/differential",)),
    "faults": Suite(("tests/faults",)),
    "runners": Suite(("tests/spark",)),
    "demo": Suite(module=("dags_examples.demo",)),
    "provider": Suite(("tests/airflow_provider_index",), markers="not heavy"),
    "whole Airflow": Suite(("tests/airflow",)),
}

SPARK = ("tables", "SQL", "queries", "histories", "faults", "runners", "demo")
AIRFLOW = ("provider", "whole Airflow")

ENVIRONMENTS = (
    # No pyspark-client of its line, and no Spark Connect server among its jars.
    Environment("spark-3.5", "3.11", ("pyspark[connect]==3.5.9",), SPARK),
    Environment("spark-4.0", "3.11", ("pyspark==4.0.4", "pyspark-client==4.0.4"), SPARK),
    Environment("spark-4.1", "3.11", ("pyspark==4.1.3", "pyspark-client==4.1.3"), SPARK),
    Environment("spark-4.2", "3.11", ("pyspark==4.2.0", "pyspark-client==4.2.0"), SPARK),
    # No pyspark-client of its line: what Connect needs comes by an extra of pyspark.
    Environment("spark-4.3", "3.11", ("pyspark[connect]==4.3.0",), SPARK),
)
