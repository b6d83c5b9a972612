"""Makes the table of flights, loads its history, and builds an index of each kind over it.

Run it once. The connection ``index_table_store_default`` says where tables are and which Spark works on
them; the load has a Spark of its own, by ``spark-submit``, that of the connection ``spark_submit``. The
Variable ``flights_landing`` is the folder that raw files arrive in.
"""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_index.operators import BuildIndexOperator, WriteTableOperator

TABLE = "demo.flights"

with DAG("flights_initial_load", schedule=None, tags=["flights"], doc_md=__doc__):
    load = WriteTableOperator(
        task_id="load",
        table=TABLE,
        # Many rows are worth the start of a Spark that has room for them; small tasks share one over Spark Connect.
        spark_conn_id="spark_submit",
        source="{{ var.value.flights_landing }}/history",
        create={
            "schema": "time_hour timestamp, carrier string, flight int, month int, day int, dep_time int, "
            "sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int, arr_delay int, tailnum string, "
            "origin string, dest string, air_time int, distance int",
            # An airline uses a flight number once an hour at most.
            "record_key": ["time_hour", "carrier", "flight"],
            "partition_by": ["month"],
            "buckets": 2,
            # A line of each query, by which the table can be asked for advice on its indexes.
            "properties": {"query_log": "on"},
        },
    )
    by_key = BuildIndexOperator(task_id="index_by_key", table=TABLE, index="by_key", kind="record")
    by_tailnum = BuildIndexOperator(
        task_id="index_by_tailnum", table=TABLE, index="by_tailnum", kind="secondary", columns=["tailnum"]
    )
    # Answers a query over a route from its own files, with the columns that are asked for.
    by_route = BuildIndexOperator(
        task_id="index_by_route",
        table=TABLE,
        index="by_route",
        kind="covering",
        columns=["origin", "dest"],
        included=["arr_delay", "air_time"],
    )
    # Knows which blocks hold which delays, and answers ranges too.
    by_delay = BuildIndexOperator(
        task_id="index_by_delay", table=TABLE, index="by_delay", kind="compact", columns=["dep_delay"]
    )
    # Builds may run side by side; one after the other suits a small machine.
    load >> by_key >> by_tailnum >> by_route >> by_delay
