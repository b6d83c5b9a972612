"""Index statements from a DAG: a covering and a compact index, and a look at what there is.

All statements run in one app; a retry goes on behind the last one that landed. The covering index answers a query over
a route from its own files, with the columns that are asked for; the compact one knows which blocks hold which delays,
and answers ranges too.
"""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_index.operators import IndexSQLOperator, VerifyIndexOperator

TABLE = "demo.flights"

with DAG("flights_sql", schedule=None, tags=["flights"], doc_md=__doc__):
    create = IndexSQLOperator(
        task_id="create",
        sql=f"""
        CREATE INDEX IF NOT EXISTS by_route ON {TABLE} (origin, dest) USING covering
          INCLUDE (arr_delay, air_time) COMMENT 'asked for {{{{ dag_run.run_id }}}}';
        CREATE INDEX IF NOT EXISTS by_delay ON {TABLE} (dep_delay) USING compact;
        CALL partition_bucket_index_manager(table => '{TABLE}', show_config => true);
        SHOW FORMATTED INDEXES ON {TABLE};
        """,
    )
    verify = VerifyIndexOperator(task_id="verify", table=TABLE)
    create >> verify
