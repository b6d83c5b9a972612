"""Airflow's side: operators, sensors, triggers, hooks and task groups which keep the indexes of lake tables.

Everything that touches rows runs in a Spark app of :mod:`spark_apps`; this package checks, submits, waits and
reads the receipt from the table's timeline. Importing it, or parsing a DAG that does, imports neither pyspark
nor pyarrow.
"""

from airflow_provider_index.import_shadowing import check_installed_apps

# First of all: everything below imports spark_apps, and a folder of a user's own may hide it.
check_installed_apps()

# Then: what an older Airflow lacks would fail anywhere.
from airflow_provider_index.airflow_version import check_airflow  # noqa: E402

check_airflow()

from spark_apps.version import __version__ as __version__  # noqa: E402
