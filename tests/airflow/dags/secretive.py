"""Secrets in all that a task is given: of the connections, of its own settings, options and statement."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_index.operators import WriteTableOperator

# A field that Airflow itself takes for no secret.
HELD = "conn.vault.extra_dejson.held"
SLEEP = "reflect('java.lang.Thread', 'sleep', bigint(6000))"
SHARED = {
    "table": "db.secretive",
    "table_conn_id": "secret_lake",
    "conf": {
        "spark.hadoop.fs.azure.account.key.kms.dfs.core.windows.net": f"{{{{ {HELD}.account }}}}",
        "spark.my.jdbc": f"postgresql://ada:{{{{ {HELD}.address }}}}@database/x",
    },
    "source": "{{ params.source }}",
    "format": "csv",
    "options": {"header": True, "header.X-Api-Key": f"{{{{ {HELD}.reader }}}}"},
}

with DAG("secretive", params={"source": ""}):
    write = WriteTableOperator(
        task_id="write",
        sql=f"SELECT bigint(id) AS id, concat('', {SLEEP}) AS note FROM source",
        create={"schema": "id bigint, note string", "record_key": ["id"], "buckets": 1},
        deferrable=True,
        poll_interval=1,
        **SHARED,
    )
    broken = WriteTableOperator(
        task_id="broken",
        sql=f"SELECT * FRM source OPTIONS (password '{{{{ {HELD}.statement }}}}')",
        deferrable=False,
        **SHARED,
    )
    write >> broken
