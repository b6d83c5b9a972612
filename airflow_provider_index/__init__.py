"""Airflow's side: operators, sensors, triggers, hooks and task groups which keep the indexes of lake tables.

Everything that touches rows runs in a Spark app of :mod:`spark_apps`; what is here checks, submits, waits and reads the
receipt from the table's timeline. Importing it, or parsing a DAG that does, imports neither pyspark nor pyarrow.
"""

__version__ = "0.1.0"
