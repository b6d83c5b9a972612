"""An index on a Delta table, by the name that it has in Spark's catalog.

The table is others': they write it with ``delta-spark``, and only the catalog knows where it is. Its log and its index
are in the warehouse of the connection, and the name finds them there. From then on the connector's own scans, and those
of its ``MERGE``, read the files that the index leaves.
"""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_index.operators import BuildIndexOperator, RegisterTableOperator

TABLE = "lake.flights"

with DAG("flights_lake", schedule=None, tags=["flights"], doc_md=__doc__):
    register = RegisterTableOperator(task_id="register", table=TABLE, format="delta", record_key=["flight_id"])
    by_id = BuildIndexOperator(task_id="index_by_id", table=TABLE, index="by_id", kind="record")
    register >> by_id
