"""SQL from a DAG: one more index, the others brought up to date, and a query that finds its rows by one of them.

All statements run in one app; a retry goes on behind the last one that landed.
"""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_index.operators import IndexSQLOperator, VerifyIndexOperator

TABLE = "demo.flights"

with DAG("flights_sql", schedule=None, tags=["flights"], doc_md=__doc__):
    create = IndexSQLOperator(
        task_id="create",
        sql=f"""
        CREATE INDEX IF NOT EXISTS by_dest ON {TABLE} (dest) USING secondary
          COMMENT 'asked for {{{{ dag_run.run_id }}}}';
        REFRESH INDEX by_route ON {TABLE};
        REFRESH INDEX by_delay ON {TABLE};
        CALL partition_bucket_index_manager(table => '{TABLE}', show_config => true);
        SHOW FORMATTED INDEXES ON {TABLE};
        SELECT dest, count(*) AS flights FROM {TABLE} WHERE dest IN ('SFO', 'BOS') GROUP BY dest ORDER BY dest;
        """,
    )
    verify = VerifyIndexOperator(task_id="verify", table=TABLE)
    create >> verify
